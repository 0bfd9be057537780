"""Table 5 as a study."""

import json

import numpy as np
import pytest
from test_detection_cli import few_shapes

from cissl.detection import training
from cissl.recipes import detection
from cissl.report import paper


def test_table_5_is_five_methods_and_three_seeds():
    runs = detection()
    assert len(set(runs)) == 15
    assert {(run.dataset, run.backbone, run.steps) for run in runs} == {("voc", "vgg16", 120_000)}
    assert {run.seed for run in runs} == {0, 1, 2}
    published = {key[2] for key in paper._published() if key[0] == "detection"}
    assert {run.method for run in runs} == published
    assert detection(methods=["all"]) == runs


def test_on_shapes_it_is_for_a_processor():
    runs = detection(dataset="shapes", seeds=5, steps=10)
    assert len(runs) == 25
    assert {(run.backbone, run.size, run.steps, run.augmentation) for run in runs} == {("small", 96, 10, "light")}


def test_what_there_is_not_is_named():
    with pytest.raises(ValueError, match="unknown method of detection 'csd\\+slc': did you mean 'csd\\+scl'"):
        detection(methods=["csd+slc"])
    with pytest.raises(ValueError, match="dataset: input should be 'voc'"):
        detection(dataset="voc07")


def test_the_study_runs_and_counts_the_classes(cissl, monkeypatch, tmp_path):
    monkeypatch.setattr(training.shapes, "load", few_shapes)
    command = ("run", "detection", "--dataset", "shapes", "--seeds", 1, "--methods", "csd+scl", "--steps", 2)
    code, out, err = cissl(*command, "--set", "batch=2", "--accelerator", "cpu")
    assert code == 0, err
    assert "Table 5" in out
    folder = tmp_path / "runs" / "detection-shapes"
    (result,) = [json.loads(path.read_text()) for path in folder.glob("*/result.json")]
    assert result["run"]["batch"] == 2
    with np.load(folder / "analysis" / "class_distribution.npz") as counted:
        assert counted["class_names"].tolist() == result["class_names"]
        assert counted["labeled"].tolist() == result["labeled_counts"]
        assert counted["unlabeled"].tolist() == result["unlabeled_counts"]
    assert (folder / "figures" / "class-distribution.png").stat().st_size > 5000
    assert "map_mean" in (folder / "results.csv").read_text()
    code, out, _ = cissl(*command, "--set", "batch=2", "--accelerator", "cpu")
    assert code == 0
    assert "All 1 runs are done already." in out
