"""Methods by name: their parts, their hyper-parameters (the paper's, each once), and what is refused."""

import dataclasses
import math
import re

import jaxtyping
import pytest
import torch
from builders import ALL, CONSISTENT, batches, network, step_of

from cissl.methods import BASES, MODIFIERS, PAPER, method, named
from cissl.objective import FOCAL_GAMMA, Step

# The supplement's table, with what is decided where the paper's code and text differ.
DEFAULTS = {
    "supervised": {},
    "pi": {"consistency_weight": 20},
    "mean-teacher": {"consistency_weight": 8, "teacher_decay": 0.95},
    "vat": {"consistency_weight": 0.3, "epsilon": 1, "xi": 1e-3},
    "pseudo-label": {"consistency_weight": 1, "threshold": 0.95},
    "ict": {"consistency_weight": 100, "teacher_decay": 0.999, "alpha": 1},
    "em": {"entropy_weight": 0.06},
    "sntg": {"sntg_weight": 0.4, "margin": 1},
    "scl": {"beta": 0.5, "form": "exponential"},
}


def test_every_part_is_tested():
    assert DEFAULTS.keys() == BASES.keys() | MODIFIERS.keys()
    assert {part for name in ALL for part in name.split("+")} == DEFAULTS.keys()
    assert set(PAPER) <= set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_hyper_parameters_are_the_papers(name):
    expected = {option: value for part in name.split("+") for option, value in DEFAULTS[part].items()}
    assert method(name).options == expected
    assert FOCAL_GAMMA == 1


def test_the_eight_of_the_paper():
    assert list(PAPER) == [
        "supervised", "pi", "mean-teacher", "vat+em", "vat+em+sntg", "pseudo-label", "ict", "mean-teacher+scl"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_method_comes_back_from_its_name_and_options(name):
    changed = {option: value / 2 for option, value in method(name).options.items() if not isinstance(value, str)}
    made = method(name, **changed)
    assert made.name == method(made.name).name
    assert set(made.name.split("+")) == set(name.split("+"))
    assert {option: value for option, value in made.options.items() if option != "form"} == changed
    assert method(made.name, **made.options) == made
    assert (made != method(name)) == bool(changed)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.base = None


def test_modifiers_have_one_order():
    assert method("vat+scl+sntg+em") == method("vat+em+sntg+scl")
    assert method("vat+scl+sntg+em").name == "vat+em+sntg+scl"
    assert named(["vat+sntg+em", "pi", "vat+em+sntg"]) == ["vat+em+sntg", "pi"]
    assert named(["pi", "all"]) == ["pi", *(name for name in PAPER if name != "pi")]


@pytest.mark.parametrize("name", ALL)
def test_what_a_method_asks_of_its_batches(name):
    made, (base, *modifiers) = method(name), name.split("+")
    assert made.needs_unlabeled == (name != "supervised")
    assert made.base.needs_second_view == (base in ("pi", "mean-teacher", "ict"))
    assert (made.teacher_decay is not None) == (base in ("mean-teacher", "ict"))
    draws = {"vat": {"direction"}, "ict": {"share", "partner"}}.get(base, set())
    assert set(made.draws) == draws | ({"pairs"} if "sntg" in modifiers else set())


def test_the_teachers_decay_is_an_option():
    assert method("mean-teacher").teacher_decay == 0.95
    assert method("ict").teacher_decay == 0.999
    assert method("ict", teacher_decay=0.5).teacher_decay == 0.5
    assert method("pi").teacher_decay is None


# --- what is refused ---


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mean-techer", {}, "unknown method 'mean-techer': did you mean 'mean-teacher'? Choose from: supervised, pi, "),
        ("Mean-Teacher+scl", {}, "unknown method 'Mean-Teacher': did you mean 'mean-teacher'?"),
        ("", {}, "unknown method ''. Choose from: supervised"),
        ("scl", {}, "unknown method 'scl'"),
        ("nothing", {}, "vat, ict, pseudo-label, module:Class"),
        ("vat+ent", {}, "unknown modifier in the method 'vat+ent': 'ent'"),
        ("pi+slc", {}, "did you mean 'scl'? Choose from: em, sntg, scl"),
        ("pi+", {}, "unknown modifier in the method 'pi+': ''"),
        ("pi+vat", {}, "unknown modifier in the method 'pi+vat': 'vat'"),
        ("vat+em+em", {}, "the method 'vat+em+em' names +em twice"),
        ("supervised+scl", {}, "+scl acts on the consistency of unlabeled samples and 'supervised' has none"),
        ("supervised+em+sntg", {}, "choose another method, such as 'mean-teacher+sntg'"),
        ("mean-teacher", {"beta": 0.5}, "unknown option of the method 'mean-teacher': 'beta'"),
        ("mean-teacher+scl", {"betta": 0.5}, "did you mean 'beta'? Choose from: consistency_weight, teacher_decay"),
        ("vat", {"eps": 6.0}, "unknown option of the method 'vat': 'eps': did you mean 'epsilon'?"),
        ("supervised", {"xi": 1.0}, "unknown option of the method 'supervised': 'xi'. Choose from: none"),
        ("pi+scl", {"form": "linaer"}, "unknown form of the suppression 'linaer': did you mean 'linear'?"),
        ("pi+scl", {"form": 3}, "unknown form of the suppression 3"),
        ("pi+scl", {"beta": 0}, "beta should be a number above 0 and at most 1, got 0"),
        ("pi+scl", {"beta": 1.5}, "beta should be a number above 0 and at most 1, got 1.5"),
        ("pi+scl", {"beta": math.nan}, "beta should be a number above 0 and at most 1, got nan"),
        ("pi", {"consistency_weight": -1.0}, "consistency_weight should be a number at least 0, got -1.0"),
        ("pi", {"consistency_weight": math.inf}, "consistency_weight should be a number at least 0, got inf"),
        ("pi", {"consistency_weight": "20"}, "consistency_weight should be a number at least 0, got '20'"),
        ("pi", {"consistency_weight": True}, "consistency_weight should be a number at least 0, got True"),
        ("pi", {"consistency_weight": None}, "consistency_weight should be a number at least 0, got None"),
        ("ict", {"teacher_decay": 1.01}, "teacher_decay should be a number at least 0 and at most 1, got 1.01"),
        ("ict", {"alpha": 0}, "alpha should be a number above 0, got 0"),
        ("vat", {"xi": 0.0}, "xi should be a number above 0, got 0.0"),
        ("vat", {"epsilon": -6}, "epsilon should be a number at least 0, got -6"),
        ("pseudo-label", {"threshold": 95}, "threshold should be a number at least 0 and at most 1, got 95"),
        ("pi+sntg", {"margin": -1}, "margin should be a number at least 0, got -1"),
    ],
)
def test_mistakes_are_told(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        method(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("pi+scl", {"beta": 1}),
        ("pi", {"consistency_weight": 0}),
        ("ict", {"teacher_decay": 0.0, "alpha": 0.1}),
        ("mean-teacher", {"teacher_decay": 1}),
        ("pseudo-label", {"threshold": 1.0}),
        ("vat+sntg", {"epsilon": 0.0, "margin": 0.0, "sntg_weight": 0}),
    ],
)
def test_bounds_belong_to_what_is_allowed(name, options):
    assert method(name, **options).options.items() >= options.items()


@pytest.mark.parametrize("name", ["ict", "ict+scl"])
@pytest.mark.parametrize("reweight", ["in", "focal", "cb"])
def test_mixtures_of_classes_cannot_be_reweighted(name, reweight):
    with pytest.raises(ValueError, match="weighs a sample by its class") as refused:
        step_of(name, network("small", (2,)), reweight)
    assert str(refused.value) == (
        f"re-weighting '{reweight}' weighs a sample by its class, and '{name}' trains on mixtures of classes: "
        "use reweight='ce' with it"
    )


@pytest.fixture
def unchecked():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_an_unknown_reweighting_is_told(unchecked):
    with pytest.raises(ValueError, match="unknown re-weighting 'focl': did you mean 'focal'"):
        step_of("pi", network("small", (2,)), "focl")


@pytest.mark.parametrize("name", ["mean-teacher", "ict"])
def test_a_method_with_a_teacher_asks_for_one(name):
    with pytest.raises(ValueError, match=f"'{name}' learns from a teacher: give one"):
        Step(method(name), "ce", network("small", (2,)), None)


@pytest.mark.parametrize("base", CONSISTENT)
def test_without_unlabeled_samples_there_is_no_consistency(base):
    step, _ = step_of(base, network("small", (2,)))
    batch = batches(step.method).step(1)
    n = len(batch["labels"])
    cut = {key: value[:n] if key in ("x", "x_again", "partner") else value for key, value in batch.items()}
    cut |= {"direction": batch["direction"][:0]} if base == "vat" else {}
    losses = step(cut)
    assert losses["consistency"] == 0
    assert torch.isfinite(losses["loss"])
