"""A model in a folder: it comes back as it was, runs no code, and what is damaged or of tomorrow is refused."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import cissl
from cissl import model_folder
from cissl.records import canonical

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)) + np.repeat([[0.0], [2.0], [4.0]], 20, 0)
Y = np.repeat(["a", "b", "c"], 20)


def fitted(x=X, y=Y, **parameters):
    return cissl.CISSLClassifier(**{"steps": 3, "random_state": 0, **parameters}).fit(x, y)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder, and the classifier that was saved there."""
    classifier, folder = fitted(n_models=2, prior={"a": 1, "b": 2, "c": 3}), tmp_path_factory.mktemp("saved") / "model"
    classifier.save(folder)
    return folder, classifier


@pytest.fixture
def copy(model, tmp_path):
    """A copy to damage."""
    for path in model[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_what_is_loaded_is_what_was_saved(model):
    folder, classifier = model
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.json", "preprocessing.safetensors", "weights.safetensors",
    ]  # fmt: skip
    loaded = cissl.load(folder)
    assert (loaded.predict_proba(X) == classifier.predict_proba(X)).all()
    assert (loaded.predict(X) == classifier.predict(X)).all()
    assert loaded.score(X, Y) == classifier.score(X, Y)
    for name in (
        "labeled_counts_",
        "input_shape_",
        "n_features_in_",
        "classes_",
        "results_",
        "history_",
        "validation_",
    ):
        assert np.array_equal(getattr(loaded, name), getattr(classifier, name)), name
    kept = {name: value for name, value in classifier.get_params().items() if name not in ("callbacks", "prior")}
    assert {name: loaded.get_params()[name] for name in kept} == kept
    assert loaded.prior == [1, 2, 3]


def test_a_loaded_classifier_can_be_saved_fitted_and_asked_for_another_prior(model, tmp_path):
    folder, classifier = model
    loaded = cissl.load(str(folder))
    loaded.save(tmp_path / "again")
    assert (cissl.load(tmp_path / "again").predict_proba(X) == classifier.predict_proba(X)).all()
    rare = loaded.set_params(prior=[0.98, 0.01, 0.01]).predict_proba(X)
    assert (rare[:, 0] >= classifier.predict_proba(X)[:, 0]).all()
    loaded.set_params(prior=None, n_models=1).fit(X[:40], Y[:40])
    assert loaded.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [-3, 5, 9], [True, False, True], [1.0, 2.0, 3.0], ["é", "b c", "x" * 50]]
)
def test_labels_come_back_as_what_they_were(tmp_path, labels):
    classifier = fitted(y=np.repeat(labels, 20), method="supervised")
    classifier.save(tmp_path)
    loaded = cissl.load(tmp_path)
    assert loaded.classes_.tolist() == classifier.classes_.tolist()
    assert {type(name) for name in loaded.classes_.tolist()} == {type(name) for name in classifier.classes_.tolist()}


def test_frames_images_and_teachers(tmp_path):
    frame = pd.DataFrame(X, columns=["p", "q", "r", "s"])
    classifier = fitted(frame, predict_with="teacher")
    classifier.save(tmp_path / "frame")
    loaded = cissl.load(tmp_path / "frame")
    assert (loaded.predict_proba(frame) == classifier.predict_proba(frame)).all()
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["q", "p", "r", "s"]])
    images = RNG.integers(0, 255, (60, 8, 8, 3)).astype(np.uint8)
    for preprocessing in ("none", "standardize", "gcn+zca"):
        classifier = fitted(images, preprocessing=preprocessing)
        classifier.save(tmp_path / "images")
        assert (cissl.load(tmp_path / "images").predict_proba(images) == classifier.predict_proba(images)).all()


def test_saving_anew_replaces_the_model(copy):
    fitted(X[:, :2]).save(copy)
    assert cissl.load(copy).n_features_in_ == 2


def test_a_save_that_is_stopped_leaves_no_model_that_loads(copy, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model_folder.records, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        fitted(X[:, :2]).save(copy)
    with pytest.raises(ValueError, match="is no model folder"):
        cissl.load(copy)


def test_what_cannot_be_saved_is_said(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        cissl.CISSLClassifier().save(tmp_path / "model")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match=r"cannot write to .*file"):
        fitted().save(tmp_path / "file")


# ---- Networks of one's own


class Own(nn.Module):
    def __init__(self, input_shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(input_shape[0], n_classes)

    def forward(self, x):
        return self.layer(x)


MODULE = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
def make(input_shape, n_classes):
    return nn.Linear(input_shape[0], n_classes)
"""


def test_code_is_imported_only_when_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "network_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    classifier = fitted(network="network_of_mine:make")
    classifier.save(tmp_path / "model")
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(__import__("sys").modules, "network_of_mine")
    with pytest.raises(ValueError, match=r"a network of its own, 'network_of_mine:make', whose code is run to load it"):
        cissl.load(tmp_path / "model")
    assert not (tmp_path / "imported").exists()
    loaded = cissl.load(tmp_path / "model", network="network_of_mine:make")
    assert (loaded.predict_proba(X) == classifier.predict_proba(X)).all()


def test_modules_and_functions_are_given_again(tmp_path):
    for network in (Own((4,), 3), Own):
        classifier = fitted(network=network)
        classifier.save(tmp_path)
        with pytest.raises(ValueError, match="a network of its own, 'Own'"):
            cissl.load(tmp_path)
        loaded = cissl.load(tmp_path, network=network)
        assert (loaded.predict_proba(X) == classifier.predict_proba(X)).all()
    with pytest.raises(ValueError, match="the weights do not fit the network"):
        cissl.load(tmp_path, network=lambda shape, n_classes: nn.Sequential(nn.Linear(4, 3)))


def test_a_network_of_the_library_is_not_given(model):
    with pytest.raises(ValueError, match="which comes with cissl: give none"):
        cissl.load(model[0], network="json:loads")


# ---- Damage


def rewritten(folder, **changes):
    """model.json with other content and a checksum that fits, as a later version would write it."""
    described = json.loads((folder / "model.json").read_text())
    del described["checksum"]
    described |= changes
    (folder / "model.json").write_text(json.dumps(described | {"checksum": model_folder._own_checksum(described)}))


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors", "preprocessing.safetensors"])
def test_missing_truncated_and_tampered_files_are_refused(copy, name):
    path = copy / name
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(ValueError, match=r"model folder|is missing: take it from a copy, or train again"):
        cissl.load(copy)
    path.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"torn or changed; take it from a copy|no valid JSON"):
        cissl.load(copy)
    middle = len(whole) // 2
    other = b"7" if whole[middle : middle + 1] != b"7" else b"8"
    path.write_bytes(whole[:middle] + other + whole[middle + 1 :])
    with pytest.raises(ValueError, match=r"not as it was written, its checksum differs|no valid JSON"):
        cissl.load(copy)
    path.write_bytes(whole)
    cissl.load(copy)


def test_a_changed_label_or_parameter_is_refused(copy):
    text = (copy / "model.json").read_text()
    (copy / "model.json").write_text(text.replace('"a"', '"z"', 1))
    with pytest.raises(ValueError, match="its checksum differs"):
        cissl.load(copy)


def test_a_later_version_is_refused_with_what_to_do(copy):
    rewritten(copy, format=2, versions={"cissl": "9.1.0"})
    with pytest.raises(ValueError, match=r"by cissl 9.1.0 in format 2, and this is cissl .*: install a newer cissl"):
        cissl.load(copy)


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"nonsense": 1}}, {"classes": {"kind": "dates", "names": []}}, {"networks": [["student"]]},
        {"networks": []}, {"preprocessing": None}, {"input_shape": [7]}, {"files": {}}, {"parameters": None},
        {"input_shape": None}, {"preprocessing": "else"},
    ],
)  # fmt: skip
def test_a_description_that_describes_nothing_is_refused(copy, changes):
    rewritten(copy, **changes)
    with pytest.raises(ValueError, match=r"\w"):
        cissl.load(copy).predict(X)


def test_no_model_folder(tmp_path):
    with pytest.raises(ValueError, match=r"is no model folder, there is no model.json in it: give the folder that"):
        cissl.load(tmp_path / "nowhere")
    (tmp_path / "training").mkdir()
    with pytest.raises(ValueError, match="Its training is not finished: start the same `cissl train` command again"):
        cissl.load(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["model.json", "weights.safetensors"]), content=st.binary(max_size=300))
def test_whatever_stands_in_a_file_is_refused(copy, name, content):
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        cissl.load(copy)
    (copy / name).write_bytes(whole)


def test_weights_are_no_pickle_and_hold_what_was_trained(model):
    from safetensors.torch import load_file

    folder, classifier = model
    stored = load_file(folder / "weights.safetensors")
    assert {name.split("/")[0] for name in stored} == {"0", "1"}
    assert {name.split("/")[1] for name in stored} == {"student", "teacher"}
    first = classifier.networks_[0]["student"].state_dict()
    assert all(torch.equal(stored[f"0/student/{name}"], value) for name, value in first.items())
    described = json.loads((folder / "model.json").read_text())
    assert described["versions"].keys() >= {"cissl", "torch", "numpy", "python"}
    assert canonical(described)  # plain JSON


def test_no_warning_is_given(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cissl.load(model[0]).predict(X)
