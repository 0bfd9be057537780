"""Names: one that does not exist, where the nearest is offered, and those of a user's own parts."""

import sys

import numpy as np
import pytest

from cissl import CISSLClassifier, cli_data, datasets, load
from cissl.execution import execute_seeds
from cissl.methods import method
from cissl.names import unknown
from cissl.run import Run

NAMES = ["two-moons", "four-spins", "CIFAR"]


@pytest.mark.parametrize(
    ("name", "nearest"), [("two-moon", "two-moons"), ("FOUR_SPINS", "four-spins"), ("cifar10", "CIFAR")]
)
def test_the_nearest_name_is_offered(name, nearest):
    error = unknown("data set", name, NAMES)
    assert str(error) == (
        f"unknown data set {name!r}: did you mean {nearest!r}? Choose from: two-moons, four-spins, CIFAR"
    )


@pytest.mark.parametrize("name", ["xyz", "", 3, None])
def test_nothing_is_offered_for_what_is_near_to_nothing(name):
    assert str(unknown("data set", name, NAMES)) == (
        f"unknown data set {name!r}. Choose from: two-moons, four-spins, CIFAR"
    )


def test_there_may_be_nothing_to_choose_from():
    assert str(unknown("option", "a", iter(()))) == "unknown option 'a'. Choose from: none"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module `their_parts` with what users write themselves."""
    (tmp_path / "their_parts.py").write_text(PARTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("their_parts", None)


PARTS = '''
from dataclasses import dataclass
import numpy as np
from cissl.datasets import Dataset
from cissl.methods import Consistency, MeanTeacher, Supervised

@dataclass(frozen=True, kw_only=True)
class Calm(MeanTeacher):
    """Mean Teacher with less weight."""
    consistency_weight: float = 2.0
    calm: float = 0.5

class Undecorated(MeanTeacher):
    calm: float = 0.5

@dataclass(frozen=True, kw_only=True)
class NoWeight(Consistency):
    def compare(self, said, student, teacher, batch):
        ...

@dataclass(frozen=True, kw_only=True)
class NoTargets(Consistency):
    consistency_weight: float = 1.0

def points(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 2)) + 4 * y[:, None], y, rng.normal(size=(9, 2)), y[:9].astype(np.int32)

def named(seed):
    x = np.zeros((4, 1, 2, 2), np.uint8)
    return Dataset("named", x, np.arange(4) % 2, x, np.arange(4) % 2, ("cat", "dog"))

def lists(seed):
    return [[0.0, 1.0], [1.0, 0.0]], [0, 1], [[0.5, 0.5]], [1]

def words(seed):
    return np.zeros((2, 2)), np.array(["a", "b"]), np.zeros((1, 2)), np.array(["a"])

def pair(seed):
    return np.zeros((2, 2)), np.zeros(2)

def raising(seed):
    raise KeyError("no such thing")
'''


def test_a_method_of_ones_own_is_one_class(mine):
    made = method("their_parts:Calm+scl", beta=0.3, calm=0.1)
    assert made.name == "their_parts:Calm+scl"
    assert made.options == {
        "consistency_weight": 2.0,
        "teacher_decay": 0.95,
        "calm": 0.1,
        "beta": 0.3,
        "form": "exponential",
    }
    assert made.teacher_decay == 0.95
    with pytest.raises(ValueError, match="did you mean 'calm'"):
        method("their_parts:Calm", clam=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("their_parts:Undecorated", r"write @dataclass\(frozen=True, kw_only=True\) above its class"),
        ("their_parts:NoWeight", "its consistency_weight has no default"),
        ("their_parts:NoTargets", r"makes no targets: give it compare\(self"),
        ("their_parts:points", "expected a class that extends cissl.methods.Consistency"),
        ("their_parts:Absent", "'Absent' is not in it"),
        ("no_such_module:Calm", "method 'no_such_module:Calm': importing 'no_such_module' failed.*PYTHONPATH"),
    ],
)
def test_what_is_wrong_with_a_method_of_ones_own_is_said_before_training(mine, name, message):
    with pytest.raises(ValueError, match=message):
        method(name)
    with pytest.raises(ValueError, match=message):
        Run(dataset="two-moons", method=name)


def test_data_of_ones_own_are_four_arrays_or_a_dataset(mine):
    data = datasets.load("their_parts:points", seed=3)
    assert data.train_x.dtype == np.float32
    assert data.test_y.dtype == np.int64
    assert data.class_names == ("0", "1", "2")
    assert not np.array_equal(data.train_x, datasets.load("their_parts:points", seed=4).train_x)
    assert datasets.load("their_parts:named").class_names == ("cat", "dog")
    assert datasets.load("their_parts:lists").train_x.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("their_parts:pair", r"expected \(train_x, train_y, test_x, test_y\), got tuple"),
        ("their_parts:words", "expected 2 int64 labels"),
        ("their_parts:raising", r"called as raising\(0\) and failed: 'no such thing'"),
        ("their_parts:Absent", "'Absent' is not in it"),
    ],
)
def test_what_is_wrong_with_data_of_ones_own_is_said(mine, name, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(name)


def test_a_run_of_nothing_but_ones_own(mine, capsys):
    fields = {"labeled": 9, "imbalance": 2, "unlabeled_total": 12, "network": "mlp", "preprocessing": "standardize"}
    run = Run(dataset="their_parts:points", method="their_parts:Calm+scl", steps=3, validations=0, **fields)
    (result,) = execute_seeds([run])
    assert result["status"] == "done"
    assert Run(**result["run"]) == run
    cli_data.show("their_parts:points")
    assert "60 training samples of 2, float32" in capsys.readouterr().out


def test_a_kept_model_runs_no_code_of_the_method_that_trained_it(mine, tmp_path):
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.repeat([0, 1, -1, -1], 10)
    CISSLClassifier("their_parts:Calm+scl", steps=2, random_state=0).fit(x, y).save(tmp_path / "model")
    del sys.modules["their_parts"]
    assert len(load(tmp_path / "model").predict(x)) == 40
    assert "their_parts" not in sys.modules
