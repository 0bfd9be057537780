"""The scikit-learn face: it learns from what it is given, keeps scikit-learn's contract, and explains what is wrong."""

import contextlib
import pickle

import joblib
import numpy as np
import pandas
import polars
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from torch import nn
from torch.utils.data import TensorDataset

from cissl import CISSLClassifier
from cissl.execution import Machine

# scikit-learn exempts its own semi-supervised classifiers from these by name.
MINUS_ONE = "uses -1 as an ordinary class, and here it says that a sample has no label"
EXPECTED_TO_FAIL = {
    "check_classifiers_classes": MINUS_ONE,
    "check_class_weight_balanced_linear_classifier": MINUS_ONE,
}
CENTERS = np.array([[4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 4, 0]])


def blobs(n=60, labeled=12):
    """(X, all labels, labels with −1 from the place `labeled` on); the first labels are 0, 1, 2, 0, 1, 2, …"""
    y = np.arange(n) % 3
    X = CENTERS[y] + np.random.default_rng(0).normal(size=(n, 4))
    return X, y, np.where(np.arange(n) < labeled, y, -1)


def quick(**parameters):
    return CISSLClassifier(**{"steps": 50, "random_state": 0, "device": "cpu", **parameters})


def small_network(input_shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(input_shape)), n_classes))


# ---- Learning


def test_it_learns_from_labeled_and_unlabeled_samples():
    X, y, given_y = blobs()
    fitted = quick().fit(X, given_y)
    assert fitted.score(X[12:], y[12:]) > 0.9
    np.testing.assert_array_equal(fitted.transduction_[:12], y[:12])
    np.testing.assert_array_equal(fitted.transduction_[12:], fitted.predict(X[12:]))
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.labeled_counts_.tolist() == [4, 4, 4]
    assert fitted.n_features_in_ == 4
    assert fitted.input_shape_ == (4,)


def test_unlabeled_samples_teach():
    X, _, given_y = blobs()
    with_them, others = quick().fit(X, given_y), quick().fit(np.concatenate([X[:12], X[:12:-1]]), given_y[:59])
    assert abs(with_them.predict_proba(X) - others.predict_proba(X)).max() > 1e-6


def test_what_has_a_label_keeps_it():
    X, _, given_y = blobs()
    X[3] = X[4] = X[0]  # one sample with two labels: at least one of them is not what is predicted
    fitted = quick(steps=2).fit(X, given_y)
    assert (fitted.predict(X[:12]) != given_y[:12]).any()
    np.testing.assert_array_equal(fitted.transduction_[:12], given_y[:12])


def test_unlabeled_samples_may_come_apart():
    X, _, given_y = blobs()
    together, apart = quick().fit(X, given_y), quick().fit(X[:12], given_y[:12], X_unlabeled=X[12:])
    np.testing.assert_array_equal(together.predict_proba(X), apart.predict_proba(X))
    np.testing.assert_array_equal(together.transduction_, apart.transduction_)


def test_without_unlabeled_samples_the_labeled_ones_serve_as_such():
    X, y, _ = blobs()
    fitted = quick().fit(X, y)
    assert fitted.results_[0]["unlabeled"] == 60
    assert fitted.score(X, y) > 0.9


@pytest.mark.parametrize("method", ["supervised", "pi", "vat+em", "pseudo-label", "ict"])
def test_every_method_fits(method):
    X, y, given_y = blobs()
    assert quick(method=method).fit(X, given_y).score(X, y) > 0.8


def test_names_as_labels():
    X, y, given_y = blobs()
    names = np.array(["rare", "common", "other"], dtype=object)[y]
    names[given_y < 0] = None
    fitted = quick().fit(X, names)
    assert fitted.classes_.tolist() == ["common", "other", "rare"]
    assert fitted.predict(X[:1]).tolist() == ["rare"]
    assert fitted.score(X, names) == 1


def test_score_leaves_out_what_has_no_label():
    X, y, given_y = blobs()
    fitted = quick().fit(X, given_y)
    assert fitted.score(X, given_y) == (fitted.predict(X[:12]) == y[:12]).mean()
    assert fitted.score(X, given_y, sample_weight=np.arange(60)) == pytest.approx(1)
    with pytest.raises(ValueError, match="nothing to score"):
        fitted.score(X, np.full(60, -1))


def test_images_of_any_layout_are_the_same():
    X, y = load_digits(return_X_y=True)
    images, given_y = X[:60].reshape(-1, 8, 8), np.where(np.arange(60) < 40, y[:60], -1)
    said = []
    for same in (images, images[..., None], torch.tensor(images)[:, None], images.tolist()):
        fitted = quick(steps=3).fit(same, given_y)
        assert fitted.input_shape_ == (1, 8, 8)
        assert fitted.n_features_in_ == 64
        said.append(fitted.predict_proba(same))
    for other in said[1:]:
        np.testing.assert_array_equal(other, said[0])


def test_memory_mapped_arrays_and_datasets_are_as_arrays(tmp_path):
    X, _, given_y = blobs()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = quick().fit(X, given_y).predict_proba(X)
    np.testing.assert_array_equal(quick().fit(mapped, given_y).predict_proba(mapped), expected)
    apart = quick().fit(mapped[:12], given_y[:12], X_unlabeled=mapped[12:])
    np.testing.assert_array_equal(apart.predict_proba(X), expected)
    x = torch.tensor(X)
    pairs = TensorDataset(x, torch.tensor(given_y))
    np.testing.assert_array_equal(quick().fit(pairs).predict_proba(TensorDataset(x)), expected)
    both = quick().fit(TensorDataset(x[:12]), given_y[:12], X_unlabeled=TensorDataset(x[12:]))
    np.testing.assert_array_equal(both.predict_proba(x), expected)


def test_frames():
    X, _, given_y = blobs()
    expected = quick().fit(X, given_y).predict_proba(X)
    columns = list("abcd")
    for frame in (pandas.DataFrame(X, columns=columns), polars.DataFrame(X, schema=columns)):
        fitted = quick().fit(frame, given_y)
        assert fitted.feature_names_in_.tolist() == columns
        np.testing.assert_array_equal(fitted.predict_proba(frame), expected)
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.predict(frame[columns[::-1]])


def test_networks_of_ones_own():
    X, _, given_y = blobs()
    module = small_network((4,), 3)
    weights = module[1].weight.detach().clone()
    fitted = quick(network=module).fit(X, given_y)
    assert fitted.predict_proba(X).shape == (60, 3)
    torch.testing.assert_close(module[1].weight.detach(), weights, rtol=0, atol=0)  # a copy was trained
    moved = fitted.networks_[0]["student"].module[1].weight
    assert 0 < (moved - weights).abs().max() < 2  # from these weights
    first, again = (quick(network=small_network, n_models=2).fit(X, given_y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ValueError, match=r"Linear: expected logits of shape \(2, 3\)"):
        quick(network=nn.Linear(4, 7)).fit(X, given_y)


# ---- What its parameters do


def test_many_models_are_averaged():
    X, _, given_y = blobs()
    fitted = quick(n_models=3).fit(X, given_y)
    assert len(fitted.networks_) == len(fitted.results_) == len(fitted.history_) == 3
    alone = []
    for networks in fitted.networks_:
        one = clone(fitted).set_params(n_models=1)
        vars(one).update({**vars(fitted), "networks_": [networks]})
        alone.append(one.predict_proba(X))
    np.testing.assert_allclose(fitted.predict_proba(X), np.mean(alone, 0))
    assert abs(alone[0] - alone[1]).max() > 1e-3


def test_the_random_state_decides():
    X, _, given_y = blobs()

    def said(state):
        return quick(random_state=state, steps=5).fit(X, given_y).predict_proba(X)

    np.testing.assert_array_equal(said(3), said(3))
    np.testing.assert_array_equal(said(np.random.RandomState(3)), said(3))
    assert abs(said(3) - said(4)).max() > 1e-6
    assert abs(said(None) - said(None)).max() > 1e-6


def test_the_teacher_may_predict():
    X, _, given_y = blobs()
    fitted = quick().fit(X, given_y)
    student = fitted.predict_proba(X)
    assert abs(fitted.set_params(predict_with="teacher").predict_proba(X) - student).max() > 1e-6
    with pytest.raises(ValueError, match="has no teacher"):
        quick(method="supervised", predict_with="teacher").fit(X, given_y)


@pytest.mark.parametrize("reweight", ["ce", "in"])
def test_a_prior_corrects_the_probabilities(reweight):
    X, _, given_y = blobs()
    given_y[[1, 4, 7]] = -1  # one label of class 1, four of the others
    fitted = quick(reweight=reweight, prior=None).fit(X, given_y)
    said = fitted.predict_proba(X)
    trained_for = np.array([4, 1, 4]) / 9 if reweight == "ce" else np.ones(3) / 3
    for prior in ([0.2, 0.2, 0.6], {0: 0.2, 2: 0.6, 1: 0.2}):
        expected = said * [0.2, 0.2, 0.6] / trained_for
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(fitted.set_params(prior=prior).predict_proba(X), expected, rtol=1e-6)
    uniform = said / trained_for
    uniform /= uniform.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.set_params(prior="uniform").predict_proba(X), uniform, rtol=1e-6)


def test_class_counts_replace_the_labeled_ones():
    X, y, given_y = blobs()
    plain, world = quick().fit(X, given_y), quick(class_counts={0: 900, 1: 90, 2: 9}).fit(X, given_y)
    assert world.results_[0]["run"]["class_counts"] == [900, 90, 9]
    assert abs(plain.predict_proba(X) - world.predict_proba(X)).max() > 1e-6
    assert world.labeled_counts_.tolist() == [4, 4, 4]
    assert world.score(X, y) > 0.6  # it looks for few of class 2


def test_validation_selects_and_stops():
    X, y, given_y = blobs(labeled=60)
    fitted = quick(early_stopping=True, validation_fraction=0.25, steps=200).fit(X, given_y)
    result = fitted.results_[0]
    assert fitted.labeled_counts_.tolist() == [15, 15, 15]
    seen = [one["student_balanced_error"] for one in result["validation"]]
    assert result["best_step"] == result["validation"][int(np.argmin(seen))]["step"]
    assert result["validation"][-1]["step"] < 200  # long after the best one
    assert fitted.validation_["balanced_error"] == min(seen)
    assert fitted.history_[0]["step"][-1] == result["validation"][-1]["step"]
    together = quick(early_stopping=True, validation_fraction=0.25, steps=200, n_models=2).fit(X, given_y)
    assert together.results_[0]["best_step"] == result["best_step"]
    assert together.score(X, y) > 0.9


def test_the_best_networks_are_kept_not_the_last():
    X, _, _ = blobs(n=300)
    y = np.random.default_rng(1).integers(0, 3, 300)  # labels that nothing says: the error goes up and down
    fitted = quick(early_stopping=True, validation_fraction=0.5, steps=200).fit(X, y)
    seen = [one["student_balanced_error"] for one in fitted.results_[0]["validation"]]
    assert min(seen) < seen[-1]
    assert fitted.validation_["balanced_error"] == min(seen)


def test_validation_needs_labels():
    X, _, given_y = blobs()
    assert quick().fit(X, given_y).validation_ is None
    given_y[[1, 4, 7]] = -1
    with pytest.raises(ValueError, match=r"2 labeled samples of each class, one to validate on, and class 1 has 1"):
        quick(early_stopping=True).fit(X, given_y)


def test_callbacks_are_told():
    X, _, given_y = blobs()
    told = []
    quick(callbacks=[told.append]).fit(X, given_y)
    assert [status.step for status in told] == [50]


def test_a_folder_keeps_it(tmp_path):
    X, _, given_y = blobs()
    undisturbed = quick().fit(X, given_y).predict_proba(X)
    machine = Machine(accelerator="cpu", checkpoint_every=10)

    def stop(status):
        if status.step == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick()._fit(X, given_y, folder=tmp_path, watch=stop, machine=machine)
    steps = []
    for _ in range(2):
        fitted = quick()._fit(
            X, given_y, folder=tmp_path, watch=lambda status: steps.append(status.step), machine=machine
        )
        np.testing.assert_array_equal(fitted.predict_proba(X), undisturbed)
        assert fitted.history_[0]["step"] == [10, 20, 30, 40, 50]
    assert steps == [20, 30, 40, 50]  # the second time it was done
    with pytest.raises(ValueError, match="holds another run"):
        quick()._fit(X + 1, given_y, folder=tmp_path)


def test_what_is_left_open_is_decided_by_the_data():
    X, _, given_y = blobs()
    fitted = CISSLClassifier()
    fitted._read(X, given_y, None)
    fitted.labeled_counts_ = np.array([4, 4, 4])
    decided = [fitted._describe(n, 0.0, "", 0, 0) for n in (100, 50_000, 10**7)]
    assert [run.network for run in decided] == ["mlp"] * 3
    steps = [run.steps for run in decided]
    assert steps == sorted(set(steps))
    assert all(run.preprocessing == "features" and run.crop == 0 for run in decided)
    assert all(run.reweight == "in" and run.weight_decay == 0.05 for run in decided)
    assert CISSLClassifier(method="ict")._reweight() == "ce"  # it mixes labels


# ---- scikit-learn's contract


@pytest.mark.usefixtures("unchecked")  # they try parameters of every type
def test_scikit_learn_s_checks():
    results = check_estimator(quick(steps=30), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None)
    failed = {result["check_name"]: repr(result["exception"]) for result in results if result["status"] == "failed"}
    assert not failed, failed
    assert {result["check_name"] for result in results if result["status"] == "xfail"} <= EXPECTED_TO_FAIL.keys()


def test_inside_scikit_learn_s_tools(tmp_path):
    X, y, given_y = blobs()
    holes = np.where(np.random.default_rng(1).random(X.shape) < 0.05, np.nan, X)
    assert make_pipeline(SimpleImputer(), quick()).fit(holes, given_y).score(X, y) > 0.8
    search = GridSearchCV(quick(), {"beta": [0.5, 0.9]}, cv=2).fit(X[:30], y[:30], X_unlabeled=X[30:])
    assert search.best_estimator_.transduction_.shape == (60,)
    assert cross_val_score(quick(), X, y, cv=2, scoring="balanced_accuracy").min() > 0.8
    tuned = TunedThresholdClassifierCV(quick(), cv=2).fit(X, y == 1)
    assert tuned.score(X, y == 1) > 0.8
    fitted = search.best_estimator_
    joblib.dump(fitted, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(fitted)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_a_clone_gives_the_same():
    X, _, given_y = blobs()
    fitted = quick().fit(X, given_y)
    np.testing.assert_array_equal(clone(fitted).fit(X, given_y).predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)


# ---- What is wrong is explained


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "mean-techer"}, "did you mean 'mean-teacher'"),
        ({"network": "convnet"}, "use mlp"),
        ({"reweight": "no"}, "re-weighting|'ce', 'in', 'focal'"),
        ({"options": {"gamma": 1}}, "option of the method"),
        ({"n_models": 0}, "n_models should be a whole number of at least 1, got 0"),
        ({"steps": 0}, "steps"),
        ({"batch_size": 1}, "batch_size should be a whole number of at least 2, got 1"),
        ({"early_stopping": "yes"}, "early_stopping should be True, False or 'auto', got 'yes'"),
        ({"validation_fraction": 1.0}, "validation_fraction should lie between 0 and 1"),
        ({"predict_with": "both"}, "predict_with should be 'student' or 'teacher', got 'both'"),
        ({"prior": "balanced"}, "prior should be 'uniform'"),
        ({"prior": [0.5, 0.5]}, r"each of the 3 classes \[0, 1, 2\], got 2"),
        ({"prior": [1, -1, 1]}, "numbers >= 0"),
        ({"prior": {0: 1, 1: 1}}, "prior should have a number for each"),
        ({"class_counts": [1, 0, 2]}, "whole numbers above 0"),
        ({"learning_rate": 1e6}, "diverged at step .* smaller learning_rate"),
        ({"device": "toaster"}, "cannot train on"),
    ],
)
def test_wrong_parameters_are_explained(parameters, message):
    X, _, given_y = blobs()
    with pytest.raises(ValueError, match=message):
        quick(**parameters).fit(X, given_y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (np.where(X > 3, np.nan, X), y), "NaN"),
        (lambda X, y: (X, np.full(len(X), -1)), "no sample in y has a label"),
        (lambda X, y: (X, None), "requires y to be passed"),
        (lambda X, y: (X[:5], y), "inconsistent numbers of samples"),
        (lambda X, y: (X[:, :0], y), "0 feature"),
        (lambda X, y: (X * 1e200, y), "too large to square"),
        (lambda X, y: (X, y, X[:, :2]), "2 features"),
        (lambda X, y: (X, y, np.zeros((5, 8, 8))), r"samples are of shape \(1, 8, 8\)"),
    ],
)
def test_wrong_samples_are_explained(change, message):
    X, _, given_y = blobs()
    with pytest.raises(ValueError, match=message):
        quick().fit(*change(X, given_y))


NUMBERS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([float("nan"), float("inf"), 0.0, 1e30])
LABELS = st.sampled_from([-1, 0, 1, 2]) | st.sampled_from([None, "", "a", "b"]) | st.sampled_from([0.5, float("nan")])


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.sampled_from([np.float64, np.float32, np.int32, np.uint8, bool, object, str]),
    st.data(),
)
def test_whatever_comes_there_is_a_result_or_an_explanation(shape, dtype, data):
    """Shapes, kinds of numbers, missing values and labels of every kind."""
    n = int(np.prod(shape))
    with np.errstate(all="ignore"):
        X = np.array(data.draw(st.lists(NUMBERS, min_size=n, max_size=n))).reshape(shape)
        X = X.astype(dtype) if np.isfinite(X).all() or np.dtype(dtype).kind in "fOU" else np.nan_to_num(X).astype(dtype)
    labels = data.draw(st.lists(LABELS, min_size=shape[0], max_size=shape[0]))
    with contextlib.suppress(ValueError):
        fitted = quick(steps=2, batch_size=4).fit(X, labels)
        said = fitted.predict_proba(X)
        np.testing.assert_allclose(said.sum(1), 1)
        assert set(fitted.transduction_) <= set(fitted.classes_)
