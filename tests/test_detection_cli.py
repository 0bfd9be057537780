"""`cissl detect train | eval | predict` as their users meet them, on pictures of rectangles."""

import json

import numpy as np
import pytest
from detection_files import write_coco, write_voc
from PIL import Image

from cissl.detection import shapes, training, voc

CPU = ("--accelerator", "cpu")
TRAIN = ("detect", "train", "--backbone", "small", "--steps", 2, "--batch", 2, "--out", "one", *CPU)


@pytest.fixture
def devkit(tmp_path):
    return write_voc(tmp_path)


def test_voc_from_training_to_drawn_boxes(cissl, devkit, tmp_path):
    code, out, err = cissl(*TRAIN, "--voc", devkit.parent, "--method", "csd+scl")
    assert code == 0
    assert err.startswith("step 2 of 2, 0 s left, ")
    assert "consistency_localisation" in err
    lines = out.splitlines()
    assert lines[0].split() == ["class", "labeled", "objects", "AP"]
    assert [line.split()[:2] for line in lines if line.startswith(("cat", "sofa"))] == [["cat", "4"], ["sofa", "0"]]
    assert lines[-3] == "2 test pictures, AP in %, 11 points, as VOC2007, after the last step"
    assert lines[-2] == "Trained on 4 labeled and 5 unlabeled pictures"
    result = json.loads((tmp_path / "one" / "result.json").read_text())
    assert result["run"]["method"] == "csd+scl"
    assert result["student"]["average_precision"][voc.CLASSES.index("sofa")] is None

    code, again, err = cissl(*TRAIN, "--voc", devkit.parent, "--method", "csd+scl")
    assert (code, err) == (0, "")
    assert again == "This run is done already.\n" + out

    code, out, _ = cissl("detect", "eval", "one", "--voc", devkit, "--split", "train", "--to", "numbers.json", *CPU)
    assert code == 0
    assert "4 train pictures, AP in %, 11 points, as VOC2007" in out
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert (numbers["split"], numbers["pictures"], len(numbers["average_precision"])) == ("train", 4, 20)
    code, out, _ = cissl("detect", "eval", "one", "--data-dir", tmp_path, "--metric", "coco", *CPU)
    assert code == 0
    assert out.splitlines()[0].split()[0] == "ap"

    pictures = devkit / "VOC2012" / "JPEGImages"
    code, out, _ = cissl("detect", "predict", "one", pictures, "--out", "found", "--draw", "--score", 0.02, *CPU)
    assert code == 0
    assert "in 5 pictures with a score of at least 0.02" in out
    found = json.loads((tmp_path / "found" / "detections.json").read_text())
    assert [image["file"] for image in found["images"]] == sorted(path.name for path in pictures.iterdir())
    assert [image["width"] for image in found["images"]] == [60] * 5
    objects = [known for image in found["images"] for known in image["objects"]]
    assert objects
    for known in objects:
        assert known["class"] in voc.CLASSES
        assert known["score"] >= 0.02
        x0, y0, x1, y1 = known["box"]
        assert 0 <= x0 <= x1 <= 60
        assert 0 <= y0 <= y1 <= 48
    drawn = np.asarray(Image.open(tmp_path / "found" / "trainval_000.png"))
    assert drawn.shape == (48, 60, 3)
    assert not np.array_equal(drawn, np.asarray(Image.open(pictures / "trainval_000.jpg")))


def test_the_test_numbers_come_again_from_the_run_folder(cissl, devkit, tmp_path):
    assert cissl(*TRAIN, "--voc", devkit, "--method", "supervised")[0] == 0
    assert cissl("detect", "eval", "one", "--voc", devkit, "--to", "numbers.json", *CPU)[0] == 0
    student = json.loads((tmp_path / "one" / "result.json").read_text())["student"]
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {name: numbers[name] for name in student} == student


def test_coco_annotations_of_ones_own(cissl, tmp_path):
    labeled, test = write_coco(tmp_path), write_coco(tmp_path, count=2, name="test")
    write_coco(tmp_path / "more", name="more")
    given = ("--coco", labeled, "--images", "pictures", "--unlabeled", "more/pictures", "--test", test)
    code, out, _ = cissl(*TRAIN, *given)
    assert code == 0
    assert "2 test pictures, AP in %, all points" in out
    assert "Trained on 3 labeled and 3 unlabeled pictures" in out
    files = json.loads((tmp_path / "one" / "run.json").read_text())["files"]
    assert files["images"] == str(tmp_path / "pictures")
    code, out, _ = cissl("detect", "eval", "one", "--coco", labeled, "--images", "pictures", "--metric", "voc", *CPU)
    assert code == 0
    assert "3 test pictures, AP in %, all points, as VOC from 2010" in out
    code, out, _ = cissl("detect", "train", *TRAIN[2:-4], "--out", "two", *CPU, "--method", "supervised", *given[:4])
    assert code == 0
    assert "there are no test pictures" in out


def test_every_setting_reaches_the_description(cissl, monkeypatch, tmp_path):
    monkeypatch.setattr(training.shapes, "load", few_shapes)
    given = {
        "method": "csd-cls", "size": 128, "batch": 3, "steps": 2, "learning-rate": 0.004, "precision": "bf16-mixed",
        "seed": 7, "augmentation": "none",
    }  # fmt: skip
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    assert cissl("detect", "train", "--shapes", "--out", "one", *words, *CPU)[0] == 0
    described = json.loads((tmp_path / "one" / "run.json").read_text())
    assert {name: described[name.replace("-", "_")] for name in given} == given
    assert (described["dataset"], described["backbone"]) == ("shapes", "small")


def few_shapes(seed, unlabeled=4):
    return made(seed, labeled=3, unlabeled=unlabeled, test=2)


made = shapes.load


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say on which data: one of --voc DIR, --coco ANNOTATIONS.json and --shapes, got none of them"),
        (("--shapes", "--voc", "."), "got --voc, --shapes"),
        (("--voc", "nowhere"), "expected a folder VOCdevkit with VOC2007 in it at nowhere"),
        (("--coco", "a.json"), "give the folder of their pictures with --images"),
        (("--coco", "a.json", "--images", "."), "give some with --unlabeled"),
        (("--coco", "a.json", "--images", ".", "--method", "supervised"), "a.json: give the path of a JSON file"),
        (("--shapes", "--method", "cds"), "method: input should be 'supervised'"),
        (("--shapes", "--weights", "vgg.pth"), "there is no file vgg.pth: give VGG16's weights"),
        (("--shapes", "--weights", "vgg16-ssd"), "weights are those of VGG16"),
        (("--shapes", "--size", 100), "a multiple of 32 from 96, got 100"),
    ],
)
def test_a_mistake_in_training_is_one_sentence(arguments, said, cissl, tmp_path):
    code, out, err = cissl(*TRAIN, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("**/result.json"))


def test_vgg_without_its_weights_says_how_to_get_them(cissl, devkit, tmp_path):
    code, _, err = cissl("detect", "train", "--voc", devkit, "--out", "one", "--data-dir", tmp_path / "data", *CPU)
    assert code == 2
    assert "run `cissl data fetch vgg16-ssd`" in err


def test_mistakes_with_a_run(cissl, devkit, tmp_path):
    assert "there is no finished run in none" in cissl("detect", "eval", "none", *CPU)[2]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "result.json").write_text('{"status": "done", "run": {"dataset": "cifar10"}}')
    assert "the run in other trained no detector" in cissl("detect", "predict", "other", ".", "--out", "x", *CPU)[2]
    labeled = write_coco(tmp_path)
    coco = ("--coco", labeled, "--images", "pictures")
    assert cissl(*TRAIN, *coco, "--method", "supervised")[0] == 0
    code, _, err = cissl("detect", "eval", "one", "--voc", devkit, *CPU)
    assert code == 2
    assert err.startswith("error: the detector in one knows cat, dog; the data has aeroplane, ")
    assert (
        "unknown metric 'voc70': did you mean 'voc07'?" in cissl("detect", "eval", "one", "--metric", "voc70", *CPU)[2]
    )
    assert "there are no test pictures" in cissl("detect", "eval", "one", *CPU)[2]
    assert "expected a folder of pictures" in cissl("detect", "predict", "one", "nowhere", "--out", "x", *CPU)[2]
    (tmp_path / "one" / "weights.npz").write_bytes(b"damaged")
    code, _, err = cissl("detect", "eval", "one", *coco, *CPU)
    assert code == 2
    assert "weights.npz cannot be used" in err


def test_what_diverged_is_said(cissl, monkeypatch):
    monkeypatch.setattr(training.shapes, "load", few_shapes)
    code, out, _ = cissl(*TRAIN, "--shapes", "--learning-rate", 1e20)
    assert code == 0
    assert "the run diverged" in out
    assert "diverged at step" in cissl("detect", "eval", "one", *CPU)[2]
