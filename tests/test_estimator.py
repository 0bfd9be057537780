"""The scikit-learn face: it learns from what it is given, keeps scikit-learn's contract, and explains what is wrong."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.utils.estimator_checks import check_estimator

from cissl import CISSLClassifier

# scikit-learn exempts its own semi-supervised classifiers from these by name.
MINUS_ONE = "uses -1 as an ordinary class, and here it says that a sample has no label"
EXPECTED_TO_FAIL = {
    "check_classifiers_classes": MINUS_ONE,
    "check_class_weight_balanced_linear_classifier": MINUS_ONE,
}


def blobs(n=60, labeled=12, seed=0):
    """(X, all labels, labels with −1 from the place `labeled` on)."""
    X, y = make_blobs(n, centers=3, n_features=4, random_state=seed)
    given = y.copy()
    given[labeled:] = -1
    return X, y, given


def quick(**parameters):
    return CISSLClassifier(**{"steps": 60, "random_state": 0, **parameters})


def test_it_learns_from_labeled_and_unlabeled_samples():
    X, y, given = blobs()
    fitted = quick().fit(X, given)
    assert fitted.score(X[12:], y[12:]) > 0.9
    np.testing.assert_array_equal(fitted.transduction_[:12], y[:12])
    assert (fitted.transduction_ == y).mean() > 0.9
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.n_features_in_ == 4


def test_unlabeled_samples_may_come_apart():
    X, _, given = blobs()
    together, apart = quick().fit(X, given), quick().fit(X[:12], given[:12], X_unlabeled=X[12:])
    np.testing.assert_array_equal(together.predict_proba(X), apart.predict_proba(X))


def test_many_models_are_averaged():
    X, y, given = blobs()
    fitted = quick(n_models=3).fit(X, given)
    assert len(fitted.networks_) == 3
    assert fitted.score(X, y) > 0.9


def test_images():
    X, y = load_digits(return_X_y=True)
    X = X[:300].reshape(-1, 8, 8)
    given = np.where(np.arange(300) < 100, y[:300], -1)
    fitted = quick(steps=20, device="cpu").fit(X, given)
    assert fitted.input_shape_ == (1, 8, 8)
    assert fitted.predict_proba(X[:5]).shape == (5, 10)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X[:5]), fitted.predict_proba(X[:5]))


def test_memory_mapped_arrays_are_read_by_batches(tmp_path):
    X, _, given = blobs()
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(quick().fit(mapped, given).predict_proba(X), quick().fit(X, given).predict_proba(X))


@pytest.mark.usefixtures("unchecked")  # they try parameters of every type
def test_scikit_learn_s_checks():
    results = check_estimator(quick(), expected_failed_checks=EXPECTED_TO_FAIL, on_fail=None, on_skip=None)
    failed = {result["check_name"]: repr(result["exception"]) for result in results if result["status"] == "failed"}
    assert not failed, failed


def test_a_clone_gives_the_same():
    X, _, given = blobs()
    fitted = quick().fit(X, given)
    np.testing.assert_array_equal(clone(fitted).fit(X, given).predict_proba(X), fitted.predict_proba(X))
    assert isinstance(fitted.networks_[0]["student"], torch.nn.Module)


def test_bad_samples_are_explained():
    X, _, given = blobs()
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.where(X > 5, np.nan, X), given)
    with pytest.raises(ValueError, match="no sample in y has a label"):
        quick().fit(X, np.full(60, -1))
