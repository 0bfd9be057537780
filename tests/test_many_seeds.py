"""Many seeds at once are the runs one by one: the same losses step after step, whatever is trained beside them."""

import copy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from builders import batches, network, step_of
from torch import nn

from cissl.batches import StackedBatches
from cissl.many_seeds import FunctionalNetwork, ManySeeds, for_vmap
from cissl.methods import PAPER, method
from cissl.networks import act, linear
from cissl.objective import Step
from cissl.training import Average, EagerLearner, sgd, train

METHODS = (*PAPER, "pi+scl", "vat+scl", "ict+scl", "pseudo-label+scl+sntg")


def networks_of(seeds, dtype, shape=(2,), name="toy-mlp"):
    return [network(name, shape, dtype, seed=seed, certainty=1.0) for seed in seeds]


def single(name, seed, steps, dtype=torch.float64, reweight="ce"):
    """(losses by name, each (steps,); the student; the teacher) of one seed alone."""
    (student,) = networks_of([seed], dtype)
    step, teacher = step_of(name, student, reweight)
    if teacher is not None:
        teacher.load_state_dict(student.state_dict())
    optimizer = sgd(student.parameters(), 0.1, 0.9, 1e-4)
    average = None
    if teacher is not None:
        average = Average(teacher.parameters(), student.parameters(), step.method.teacher_decay)
    learner = EagerLearner(step, list(student.parameters()))
    drawn = batches(step.method, dtype=dtype, seed=seed, reweight=reweight)
    return curves(train(learner, optimizer, drawn, lambda t: 0.1, range(1, steps + 1), average)), student, teacher


def together(name, seeds, steps, dtype=torch.float64, reweight="ce", spoil=None, sizes=(5, 8)):
    """The same for many seeds: losses are (steps, seeds)."""
    made = method(name)
    students = networks_of(seeds, dtype)
    if spoil is not None:
        with torch.no_grad():
            students[spoil].first.weight.fill_(torch.nan)
    many = ManySeeds(made, reweight, students)
    optimizer = sgd(many.student.values(), 0.1, 0.9, 1e-4)
    average = None
    if many.teacher:
        average = Average(many.teacher.values(), many.student.values(), made.teacher_decay)
    drawn = StackedBatches([batches(made, (2,), dtype, seed, reweight, sizes) for seed in seeds])
    return curves(train(many, optimizer, drawn, lambda t: 0.1, range(1, steps + 1), average)), many, students


def curves(records):
    records = list(records)
    return {part: torch.stack([record.losses[part] for record in records]) for part in records[0].losses}


def apart(name, steps, dtype, reweight="ce"):
    """The largest difference of any loss, relative above 1, of any of two seeds."""
    found = together(name, [0, 1], steps, dtype, reweight)[0]
    worst = 0.0
    for seed in (0, 1):
        for part, expected in single(name, seed, steps, dtype, reweight)[0].items():
            assert torch.isfinite(expected).all()
            worst = max(worst, ((found[part][:, seed] - expected).abs() / expected.abs().clamp(min=1)).max().item())
    return worst


# --- equal to single runs ---


@pytest.mark.parametrize("name", METHODS)
def test_in_double_precision_seeds_are_their_single_runs(name):
    """Rounding grows with the steps; VAT differentiates a difference of 1e-3, and so rounds a thousand times more."""
    steps = 200 if name in PAPER and name != "ict" else 50
    assert apart(name, steps, torch.float64) <= (1e-9 if name.startswith("vat") else 1e-11)


@pytest.mark.parametrize("name", METHODS)
def test_in_single_precision_the_first_steps_agree(name):
    """To 5e-7, which is 4 units in the last place of 1, and VAT to 5e-6; later on chaos parts them."""
    assert apart(name, 10, torch.float32) <= (5e-6 if name.startswith("vat") else 5e-7)


@pytest.mark.parametrize("reweight", ["in", "focal", "cb"])
def test_reweighted_seeds_are_their_single_runs(reweight):
    assert apart("mean-teacher+scl", 20, torch.float64, reweight) <= 1e-11


@pytest.mark.parametrize("name", ["supervised", "mean-teacher+scl"])
def test_the_networks_get_what_their_seeds_have_learnt(name):
    _, many, students = together(name, [4, 5], 20)
    teachers = copy.deepcopy(students)
    many.write_back(students, many.student)
    many.write_back(teachers, many.teacher or many.student)
    for seed, student, teacher in zip([4, 5], students, teachers, strict=True):
        _, expected, expected_teacher = single(name, seed, 20)
        for found, one in [(student, expected), (teacher, expected_teacher or expected)]:
            for key, value in one.state_dict().items():
                torch.testing.assert_close(found.state_dict()[key], value, rtol=1e-11, atol=1e-12)


# --- seeds share nothing ---


GROUPS = ([5], [8, 5], [0, 5, 3, 8, 11, 12, 13])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", METHODS)
def test_a_seed_is_the_same_bit_for_bit_however_many_are_trained_with_it(name, dtype):
    """On one thread, which is what tests run on, and for batches of a multiple of four samples, as the paper's are."""
    assert torch.get_num_threads() == 1
    expected, learnt = together(name, [3, 8, 5, 0], 10, dtype, sizes=(8, 12))[:2]
    for seeds in GROUPS:
        found, others = together(name, seeds, 10, dtype, sizes=(8, 12))[:2]
        for part, values in expected.items():
            assert torch.equal(found[part][:, seeds.index(5)], values[:, 2])
        for key, stacked in learnt.student.items():
            assert torch.equal(others.student[key][seeds.index(5)], stacked[2])


@pytest.mark.parametrize("name", ["supervised", "mean-teacher+scl"])
def test_for_other_batches_it_is_the_same_but_for_rounding(name):
    """The order of a sum depends on where a seed's numbers lie in memory, for one that is no multiple of 16 bytes."""
    expected = together(name, [3, 8, 5, 0], 10, sizes=(5, 8))[0]
    for seeds in GROUPS:
        found = together(name, seeds, 10, sizes=(5, 8))[0]
        for part, values in expected.items():
            torch.testing.assert_close(found[part][:, seeds.index(5)], values[:, 2], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", METHODS)
def test_a_seed_that_diverges_touches_no_other(name):
    expected, learnt = together(name, [0, 1, 2], 10)[:2]
    found, spoilt = together(name, [0, 1, 2], 10, spoil=1)[:2]
    assert not torch.isfinite(found["loss"][:, 1]).any()
    for part, values in expected.items():
        assert torch.equal(found[part][:, [0, 2]], values[:, [0, 2]])
    for before, after in [(learnt.student, spoilt.student), (learnt.teacher, spoilt.teacher)]:
        assert all(torch.equal(after[key][[0, 2]], value[[0, 2]]) for key, value in before.items())
        assert not any(torch.isfinite(value[1]).all() for value in after.values())


def test_teachers_start_as_their_students_and_hold_no_gradient():
    many = ManySeeds(method("mean-teacher"), "ce", networks_of([0, 1], torch.float32))
    for key, value in many.teacher.items():
        assert torch.equal(value, many.student[key])
        assert value.data_ptr() != many.student[key].data_ptr()
        assert not value.requires_grad
        assert many.student[key].requires_grad
    made = method("mean-teacher")
    many.gradients(StackedBatches([batches(made, dtype=torch.float32, seed=seed) for seed in (0, 1)]).step(40))
    assert all(value.grad is None for value in many.teacher.values())
    assert all(value.grad.abs().sum() > 0 for value in many.student.values())
    assert ManySeeds(method("pi"), "ce", networks_of([0], torch.float32)).teacher == {}


def test_gradients_are_of_this_step_alone():
    made = method("pi")
    many = ManySeeds(made, "ce", networks_of([0, 1], torch.float64))
    drawn = StackedBatches([batches(made, seed=seed) for seed in (0, 1)])
    many.gradients(drawn.step(1))
    first = {key: value.grad.clone() for key, value in many.student.items()}
    many.gradients(drawn.step(2))
    many.gradients(drawn.step(1))
    assert all(torch.equal(many.student[key].grad, value) for key, value in first.items())


# --- networks ---


@pytest.mark.parametrize(("name", "shape"), [("toy-mlp", (2,)), ("mlp", (1, 4, 4)), ("small", (1, 2, 3))])
def test_the_network_for_vmap_is_the_same_function(name, shape):
    original = network(name, shape)
    before = [type(module) for module in original.modules()]
    faster = for_vmap(original)
    x = torch.randn(7, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = {key: value.detach() for key, value in original.named_parameters()}
    logits, features = FunctionalNetwork(faster, parameters, features=True)(x)
    torch.testing.assert_close((logits, features), original(x, features=True), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(FunctionalNetwork(faster, parameters).quietly(x), original(x), rtol=1e-12, atol=1e-13)
    assert FunctionalNetwork(faster, parameters)(x).features is None
    assert [type(module) for module in original.modules()] == before


def test_linear_layers_may_have_more_dimensions_and_no_bias():
    for layer in (nn.Linear(3, 4, bias=False), nn.Linear(3, 4)):
        for shape in [(5, 3), (5, 2, 3)]:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            torch.testing.assert_close(for_vmap(layer)(x), layer(x))


class Tied(nn.Module):
    """A user's network that has one weight under two names."""

    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first, self.second = linear(2, 2, generator), linear(2, 2, generator)
        self.classifier = linear(2, 3, generator)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.classifier(act(self.second(act(self.first(x)))))


def test_weights_of_two_names_stay_one():
    made, networks = method("mean-teacher"), [Tied(seed) for seed in (0, 1)]
    many = ManySeeds(made, "ce", networks)
    drawn = [batches(made, dtype=torch.float32, seed=seed) for seed in (0, 1)]
    found = many.gradients(StackedBatches(drawn).step(40))
    for seed, single in enumerate(networks):
        losses = Step(made, "ce", single, copy.deepcopy(single))(drawn[seed].step(40))
        for part, value in losses.items():
            torch.testing.assert_close(found[part][seed], value)
        losses["loss"].backward()
        for key, parameter in single.named_parameters():
            torch.testing.assert_close(many.student[key].grad[seed], parameter.grad)
    with torch.no_grad():
        many.student["first.weight"].add_(1)
    many.write_back(networks, many.student)
    for seed, single in enumerate(networks):
        assert single.second.weight is single.first.weight
        assert torch.equal(single.first.weight, many.student["first.weight"][seed])


def test_networks_with_statistics_are_refused():
    norms = [network("small-norm", (2,), seed=seed) for seed in (0, 1)]
    with pytest.raises(
        ValueError, match="needs a network without running statistics: use one without BatchNorm, such as"
    ):
        ManySeeds(method("pi"), "ce", norms)


def test_what_a_method_cannot_do_is_refused_here_too():
    with pytest.raises(ValueError, match="re-weighting 'cb' weighs a sample by its class"):
        ManySeeds(method("ict"), "cb", networks_of([0], torch.float32))


# --- compiled ---


@pytest.mark.parametrize("name", METHODS)
def test_what_is_compiled_are_the_losses_and_their_gradient(name, monkeypatch):
    """The function that goes into the compiler, run as it is."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    made = method(name)
    drawn = StackedBatches([batches(made, seed=seed) for seed in (0, 1)])
    eager, compiled = (ManySeeds(made, "ce", networks_of([0, 1], torch.float64), compiled=c) for c in (False, True))
    assert compiled.compile_seconds is None
    seconds = []
    for step in (40, 41):
        expected, found = eager.gradients(drawn.step(step)), compiled.gradients(drawn.step(step))
        seconds.append(compiled.compile_seconds)
        assert found.keys() == expected.keys()
        for part, value in expected.items():
            torch.testing.assert_close(found[part].detach(), value.detach(), rtol=1e-10, atol=1e-11)
        for key, parameter in eager.student.items():
            torch.testing.assert_close(compiled.student[key].grad, parameter.grad, rtol=1e-9, atol=1e-10)
    assert 0 < seconds[0] < 60
    assert seconds[1] == seconds[0]  # of the first step
    assert eager.compile_seconds is None


@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="torch.compile needs a C++ compiler")
def test_compiled_gradients_are_the_eager_ones():
    """In a process of its own, without the run-time checks of shapes, which are not made for a compiler."""
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=False, cwd=HERE)
    assert done.returncode == 0, done.stderr


HERE = Path(__file__).parent
COMPILE = """
import torch
from builders import batches
from cissl.batches import StackedBatches
from cissl.many_seeds import ManySeeds
from cissl.methods import method
from test_many_seeds import networks_of

torch.set_num_threads(1)
made = method("mean-teacher+scl")
drawn = StackedBatches([batches(made, seed=seed) for seed in (0, 1)])
eager, compiled = (ManySeeds(made, "ce", networks_of([0, 1], torch.float64), compiled=c) for c in (False, True))
assert compiled.compile_seconds is None
for step in (40, 41):
    expected, found = (many.gradients(drawn.step(step)) for many in (eager, compiled))
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        torch.testing.assert_close(found[part].detach(), value.detach(), rtol=1e-11, atol=1e-12)
    for key, parameter in eager.student.items():
        torch.testing.assert_close(compiled.student[key].grad, parameter.grad, rtol=1e-11, atol=1e-12)
assert compiled.compile_seconds > 0
assert eager.compile_seconds is None
"""
