"""What must hold for every method: each agrees with a slow loop written from the formulas (tests/reference.py), its
unlabeled samples teach the student and only the student, and a step draws, moves and keeps nothing it should not."""

import contextlib
import copy
import random

import numpy as np
import pytest
import reference
import torch
from builders import ALL, CONSISTENT, COUNTS, RAMP, batches, gradients, network, step_of
from torch import nn
from torch.func import stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from cissl.batches import StackedBatches
from cissl.losses import probabilities
from cissl.many_seeds import FunctionalNetwork
from cissl.methods import PAPER, method, unit
from cissl.objective import ModuleNetwork, Step, TeacherNetwork, objective, predicted, still_statistics
from cissl.training import Average, EagerLearner, sgd
from cissl.training import train as taken
from cissl.views import Views

NUMPY = {"toy-mlp": reference.toy_mlp, "small": reference.small, "small-norm": reference.small}
IMAGE = (1, 2, 3)
IMAGE_NETWORKS = {"convnet": (3, 8, 8), "wide-resnet-10-1": (3, 8, 8), "cnn13": (3, 12, 12)}
EVERY_NETWORK = {"toy-mlp": (2,), "mlp": (1, 4, 4), **IMAGE_NETWORKS}


def shape_of(name):
    return {"small": IMAGE, "small-norm": IMAGE, **EVERY_NETWORK}[name]


def arrays(tensors):
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def prepare(name, network_name="toy-mlp", reweight="ce", dtype=torch.float64, certainty=None, seed=1, **options):
    """(step module, teacher, student, batches)"""
    student = network(network_name, shape_of(network_name), dtype, certainty=certainty, seed=seed)
    step, teacher = step_of(name, student, reweight, **options)
    return step, teacher, student, batches(step.method, shape_of(network_name), dtype, reweight=reweight, seed=seed)


# --- the formulas ---


def compare(name, network_name, t, reweight, options=None, **reference_options):
    """Every named loss to 1e-10, and the gradient of the whole along three directions of parameter space."""
    # Where a prediction is certain, VAT's direction is lost to rounding in double precision too.
    certainty = 1.0 if name.startswith("vat") else None
    step, teacher, student, drawn = prepare(name, network_name, reweight, certainty=certainty, **(options or {}))
    batch = drawn.step(t)
    found = step(batch)
    values, parameters = arrays(batch), arrays(dict(student.named_parameters()))
    teachers = arrays(dict(teacher.named_parameters())) if teacher is not None else None

    def slow(weights, part="loss"):
        losses = reference.objective(
            name, NUMPY[network_name], weights, teachers, values, COUNTS,
            t=t, ramp_over=RAMP, reweight=reweight, **reference_options,
        )  # fmt: skip
        return losses if part is None else losses[part]

    expected = slow(parameters, None)
    assert set(found) == set(expected)
    for part, value in expected.items():
        assert found[part].item() == pytest.approx(value, rel=1e-10, abs=1e-10), part

    slopes, rng = gradients(found, student), np.random.default_rng(t)
    for _ in range(3):
        direction = {key: rng.normal(size=value.shape) for key, value in parameters.items()}
        along = sum((slopes[key].numpy() * direction[key]).sum() for key in direction)
        assert along == pytest.approx(reference.slope(slow, parameters, direction), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("network_name", "t", "reweight"),
    [("toy-mlp", 7, "ce"), ("small", 39, "focal"), ("small-norm", 41, "in"), ("small-norm", 1, "cb")],
)
def test_the_objective_and_its_gradient_are_the_formula(name, network_name, t, reweight):
    compare(name, network_name, t, "ce" if name.startswith("ict") else reweight)


OPTIONS = {
    "pi+scl": {"consistency_weight": 3.0, "beta": 0.1},
    "mean-teacher+scl+sntg": {"form": "linear", "sntg_weight": 1.5, "margin": 2.0, "consistency_weight": 2.0},
    "vat+em+scl": {"epsilon": 2.5, "entropy_weight": 0.5, "beta": 0.2},
    "ict+scl+sntg": {"form": "linear", "consistency_weight": 5.0, "sntg_weight": 0.1, "margin": 0.5},
    "pseudo-label+em+scl": {"threshold": 0.6, "entropy_weight": 1.0, "beta": 0.7},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("t", [2, 9])
def test_every_option_is_in_the_formula(name, t):
    options = dict(OPTIONS[name])
    expected = {"w_max" if key == "consistency_weight" else key: value for key, value in options.items()}
    compare(name, "small", t, "ce", options, **expected)


def test_the_comparisons_meet_every_case():
    """Certain and uncertain samples, all classes predicted, pairs of one class and of two, near ones and far."""
    certain, same, near = set(), set(), set()
    for network_name in NUMPY:
        _, _, student, drawn = prepare("mean-teacher+sntg", network_name)
        classes = set()
        for t in (1, 7, 39, 41):
            batch = drawn.step(t)
            said, features = student(batch["x"], features=True)
            confident, winner = probabilities(said[5:]).max(1)
            pairs, everyone = batch["pairs"], torch.cat([batch["labels"], winner])
            classes |= set(winner.tolist())
            certain |= set((confident > 0.95).tolist())
            same |= set((everyone[pairs[:6]] == everyone[pairs[6:12]]).tolist())
            near |= set(((features[pairs[:6]] - features[pairs[6:12]]).square().mean(1) < 1).tolist())
        assert classes == {0, 1, 2}
    assert certain == same == near == {False, True}
    share = torch.stack([batches(method("ict")).step(t)["share"][0] for t in (1, 7, 39, 41)])
    assert share.min() < 0.5 < share.max()


@pytest.mark.parametrize("name", ["mean-teacher", "pseudo-label", "vat+em"])
def test_reweighting_weighs_the_labeled_loss_alone(name):
    found = {}
    for reweight in ("ce", "in", "focal", "cb"):
        step, _, _, drawn = prepare(name, reweight=reweight)
        found[reweight] = step(drawn.step(50))
    assert len({losses["supervised"].item() for losses in found.values()}) == 4
    for part in found["ce"].keys() - {"supervised", "loss"}:
        assert len({losses[part].item() for losses in found.values()}) == 1


@pytest.mark.parametrize("name", ALL)
def test_the_loss_is_the_sum_of_its_parts(name):
    step, _, _, drawn = prepare(name)
    losses = step(drawn.step(5))
    assert losses["loss"].item() == pytest.approx(sum(v.item() for part, v in losses.items() if part != "loss"))
    assert all(value.shape == () for value in losses.values())


@pytest.mark.parametrize("name", CONSISTENT)
def test_without_its_weight_the_consistency_teaches_nothing(name):
    """At w = 0 each method is supervised learning on the same batch, step after step."""
    ends = []
    for which in (name, "supervised"):
        student = network("small-norm", IMAGE)
        step, _ = step_of(which, student)
        drawn = batches(method(name), IMAGE, ramp=lambda step: 0.0)
        optimizer = sgd(student.parameters(), 0.1, 0.9, 1e-4)
        for t in range(1, 11):
            batch = drawn.step(t)
            if name == "ict":  # its labeled samples are mixtures, unless each keeps all of itself
                batch["share"] = torch.ones(2, dtype=torch.float64)
            optimizer.zero_grad()
            step(batch)["loss"].backward()
            optimizer.step()
        ends.append(student.state_dict())
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-14)


# --- who learns from whom ---


@pytest.mark.parametrize("name", [name for name in ALL if name.split("+")[0] in CONSISTENT])
def test_unlabeled_samples_teach_the_student_and_only_the_student(name):
    step, teacher, student, drawn = prepare(name, "small")
    batch = drawn.step(20)
    if teacher is not None:
        teacher.requires_grad_()
    batch = {key: value.requires_grad_() if value.is_floating_point() else value for key, value in batch.items()}
    losses = step(batch)
    slopes = torch.autograd.grad(losses["consistency"], list(student.parameters()), retain_graph=True)
    assert all(slope.abs().sum() > 0 for slope in slopes)
    if teacher is not None:
        reached = torch.autograd.grad(losses["loss"], list(teacher.parameters()), retain_graph=True, allow_unused=True)
        assert all(slope is None for slope in reached)
    if "x_again" in batch:  # the second view only makes targets
        assert torch.autograd.grad(losses["loss"], batch["x_again"], retain_graph=True, allow_unused=True) == (None,)
    (rows,) = torch.autograd.grad(losses["consistency"], batch["x"], retain_graph=True)
    assert (rows[:5] == 0).all()  # consistency is of unlabeled samples
    (rows,) = torch.autograd.grad(losses["supervised"], batch["x"])
    assert (rows[5:] == 0).all()  # and the labeled loss of labeled ones


@pytest.mark.parametrize("name", ALL)
def test_the_step_owns_the_student_alone(name):
    step, teacher, student, _ = prepare(name)
    assert (teacher is not None) == (name.split("+")[0] in ("mean-teacher", "ict"))
    assert {id(p) for p in step.parameters()} == {id(p) for p in student.parameters()}
    assert len(step.state_dict()) == len(student.state_dict())


# Passes of the student: whether a gradient is kept of each. Those that VAT differentiates on its own are "inner".
PASSES = {
    "supervised": ["kept"],
    "pi": ["kept", "free"],
    "mean-teacher": ["kept"],
    "vat": ["kept", "inner", "kept"],
    "pseudo-label": ["kept"],
    "ict": ["kept"],
}


@pytest.mark.parametrize("name", ALL)
def test_no_pass_is_made_in_vain_and_no_gradient_graph_is_kept_of_targets(name):
    step, teacher, student, drawn = prepare(name)
    passes, of_the_teacher = [], []

    def watch(module, args, output):
        logits = output[0] if isinstance(output, tuple) else output
        wrapped = torch._C._functorch.is_functorch_wrapped_tensor(logits)
        passes.append("inner" if wrapped else "kept" if logits.requires_grad else "free")

    student.register_forward_hook(watch)
    if teacher is not None:
        teacher.requires_grad_()
        teacher.register_forward_hook(lambda module, args, output: of_the_teacher.append(output.requires_grad))
    step(drawn.step(3))
    assert passes == PASSES[name.split("+")[0]]
    assert of_the_teacher == ([] if teacher is None else [False])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("network_name", ["convnet", "wide-resnet-10-1"])
def test_statistics_move_by_the_pass_that_learns_and_by_no_other(name, network_name):
    step, teacher, student, drawn = prepare(name, network_name, dtype=torch.float32)
    batch = drawn.step(3)
    moved = copy.deepcopy(student)
    moved(step.method.base.inputs(batch))
    teacher_moved = copy.deepcopy(teacher)
    if teacher_moved is not None:
        teacher_moved(batch["x_again"])
    step(batch)["loss"].backward()
    for who, expected in [(student, moved), (teacher, teacher_moved)]:
        if who is not None:
            state = who.state_dict()
            assert all(torch.equal(state[key], value) for key, value in expected.state_dict().items())
            assert {int(value) for key, value in state.items() if key.endswith("num_batches_tracked")} == {1}


def test_a_quiet_pass_uses_the_batchs_statistics_and_moves_none():
    norms = nn.Sequential(nn.BatchNorm1d(3), nn.InstanceNorm1d(3, track_running_stats=True), nn.BatchNorm1d(3)).double()
    norms[2].eval()
    x = torch.randn(6, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norms(2 * x + 1)  # statistics that are not those of the batch
    expected, before = copy.deepcopy(norms)(x), copy.deepcopy(norms.state_dict())
    with still_statistics(norms):
        found = norms(x)
    assert torch.equal(found, expected)
    assert all(torch.equal(value, before[key]) for key, value in norms.state_dict().items())
    with pytest.raises(RuntimeError, match="stop"), still_statistics(norms):
        raise RuntimeError("stop")
    norms(x)
    assert norms[0].num_batches_tracked == before["0.num_batches_tracked"] + 1
    assert not torch.equal(norms[1].running_mean, before["1.running_mean"])


# --- every parameter learns ---


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("network_name", EVERY_NETWORK)
def test_every_parameter_gets_a_gradient(name, network_name):
    step, _, student, drawn = prepare(name, network_name, dtype=torch.float32)
    step(drawn.step(3))["loss"].backward()
    for key, parameter in student.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", PAPER)
def test_training_moves_every_parameter_and_the_teacher_follows(name):
    student = network("toy-mlp", (2,), torch.float32)
    step, teacher = step_of(name, student)
    before = copy.deepcopy(student.state_dict())
    behind = copy.deepcopy(teacher.state_dict()) if teacher is not None else None
    train(step, teacher, student, 3)
    assert all(not torch.equal(value, before[key]) for key, value in student.state_dict().items())
    if teacher is not None:
        assert all(not torch.equal(value, behind[key]) for key, value in teacher.state_dict().items())


def train(step, teacher, student, steps, seed=0):
    """The losses of every step."""
    drawn = batches(step.method, seed=seed, dtype=next(student.parameters()).dtype)
    optimizer = sgd(student.parameters(), 0.1, 0.9, 0.0)
    decay = step.method.teacher_decay
    average = None if teacher is None else Average(teacher.parameters(), student.parameters(), decay)
    curve = []
    for t in range(1, steps + 1):
        optimizer.zero_grad()
        losses = step(drawn.step(t))
        losses["loss"].backward()
        optimizer.step()
        if average is not None:
            average.follow(t)
        curve.append({part: value.item() for part, value in losses.items()})
    return curve


@pytest.mark.parametrize("name", PAPER)
def test_the_same_seed_is_the_same_curve_whatever_the_global_random_state(name):
    curves = []
    for state, seed in [(0, 5), (1, 5), (1, 6)]:
        random.seed(state)
        np.random.seed(state)
        torch.manual_seed(state)
        before = torch.get_rng_state()
        student = network("toy-mlp", (2,), torch.float32)
        step, teacher = step_of(name, student)
        curves.append(train(step, teacher, student, 5, seed))
        assert torch.equal(torch.get_rng_state(), before)
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]


# --- suppression ---


def losses_and_gradients(name, counts=COUNTS, **options):
    student = network("small", IMAGE)
    step, _ = step_of(name, student, **options)
    losses = step(batches(step.method, IMAGE, counts=counts).step(30))
    return losses, gradients(losses, student)


@pytest.mark.parametrize("modifiers", ["", "+em+sntg"])
@pytest.mark.parametrize("base", CONSISTENT)
def test_beta_one_and_equal_counts_are_the_method_without_suppression_bit_for_bit(base, modifiers):
    equal = (7, 7, 7)
    for counts, options in [(COUNTS, {"beta": 1.0}), (equal, {}), (equal, {"form": "linear"})]:
        plain, plain_gradient = losses_and_gradients(base + modifiers, counts)
        losses, gradient = losses_and_gradients(f"{base}{modifiers}+scl", counts, **options)
        assert {part: value.item() for part, value in losses.items()} == {p: v.item() for p, v in plain.items()}
        assert all(torch.equal(gradient[key], value) for key, value in plain_gradient.items())


@pytest.mark.parametrize("form", ["exponential", "linear"])
@pytest.mark.parametrize("base", CONSISTENT)
def test_unequal_counts_change_the_gradient_of_every_method(base, form):
    plain, plain_gradient = losses_and_gradients(base)
    losses, gradient = losses_and_gradients(f"{base}+scl", form=form)
    assert losses["supervised"] == plain["supervised"]
    assert losses["consistency"] < plain["consistency"]
    assert all((gradient[key] - plain_gradient[key]).abs().sum() > 1e-6 for key in gradient)


@pytest.mark.parametrize("n", [1, 40])
@pytest.mark.parametrize("k", [2, 3, 40])
def test_the_predicted_class_is_the_lowest_of_equals(n, k):
    """However the logits lie in memory, and for many seeds at once."""
    logits = torch.randint(3, (5, n, k), generator=torch.Generator().manual_seed(0)).double()
    expected = torch.tensor([[reference.argmax(z) for z in one] for one in logits.tolist()])
    for one, classes in zip(logits, expected, strict=True):
        assert torch.equal(predicted(one), classes)
        assert torch.equal(predicted(one.t().contiguous().t()), classes)
    assert torch.equal(vmap(predicted)(logits), expected)
    assert torch.equal(vmap(predicted)(logits.transpose(1, 2).contiguous().transpose(1, 2)), expected)


# --- pseudo-labels: none, all ---


def test_pseudo_labels_may_be_none():
    losses, gradient = losses_and_gradients("pseudo-label+scl", threshold=1.0)
    supervised, supervised_gradient = losses_and_gradients("supervised+em", entropy_weight=0.0)
    assert losses["consistency"] == 0
    assert losses["loss"] == losses["supervised"] == supervised["supervised"]
    assert all(torch.equal(gradient[key], value) for key, value in supervised_gradient.items())


def test_pseudo_labels_may_be_all():
    kept = [losses_and_gradients("pseudo-label", threshold=share)[0]["consistency"] for share in (0.0, 0.3, 0.6, 0.9)]
    assert kept[0] == kept[1]  # one of three classes has a third at least
    assert kept[0] > kept[2] > kept[3] > 0


def test_a_pseudo_label_is_the_predicted_class_above_the_threshold():
    """Above, not at it; the lowest class of equals."""
    said = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    batch = {"labels": torch.zeros(0, dtype=torch.int64)}
    _, wanted, kept = method("pseudo-label", threshold=0.5).base.compare(
        said, ModuleNetwork(nn.Identity()), None, batch
    )
    assert wanted.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert kept.tolist() == [0, 1, 1]
    assert wanted.dtype == kept.dtype == said.dtype


# --- one function for many parameters ---


@pytest.mark.parametrize("name", ALL)
def test_the_objective_is_a_pure_function_of_fixed_shapes(name):
    """vmap refuses whatever depends on values or draws random numbers; each seed gets what it gets alone."""
    made = method(name)
    networks = [network("small", IMAGE, seed=seed) for seed in range(3)]
    drawn = [batches(made, IMAGE, seed=seed) for seed in range(3)]
    stacked = {key: value.detach() for key, value in stack_module_state(networks)[0].items()}

    def together(parameters, batch):
        student = FunctionalNetwork(networks[0], parameters, features=made.sntg is not None)
        return objective(made, "ce", student, FunctionalNetwork(networks[0], parameters), batch)

    found = vmap(together, randomness="error")(stacked, StackedBatches(drawn).step(8))
    for place, single in enumerate(networks):
        expected = Step(made, "ce", single, copy.deepcopy(single))(drawn[place].step(8))
        for part, value in expected.items():
            torch.testing.assert_close(found[part][place], value.detach(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_a_step_changes_neither_its_batch_nor_its_weights(name):
    step, teacher, student, drawn = prepare(name)
    batch = drawn.step(4)
    kept = {key: value.clone() for key, value in batch.items()}
    before = copy.deepcopy((student.state_dict(), teacher.state_dict() if teacher is not None else {}))
    first, again = step(batch), step(batch)
    assert {key: value.item() for key, value in first.items()} == {key: value.item() for key, value in again.items()}
    assert all(torch.equal(batch[key], value) for key, value in kept.items())
    after = student.state_dict(), teacher.state_dict() if teacher is not None else {}
    assert all(torch.equal(after[i][key], value) for i in (0, 1) for key, value in before[i].items())


# --- nothing waits for the device ---


@pytest.mark.parametrize("name", ALL)
def test_a_step_stays_on_its_device(name, monkeypatch):
    """Of meta tensors only shapes are known: whatever looks at a value or comes from another device is an error."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)  # which does not know this device
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: contextlib.nullcontext())
    step, teacher, student, drawn = prepare(name, "convnet", dtype=torch.float32)
    batch = {key: value.to("meta") for key, value in drawn.step(3).items()}
    step.to("meta")
    if teacher is not None:
        teacher.to("meta")
    losses = step(batch)
    losses["loss"].backward()
    assert {value.device.type for value in losses.values()} == {"meta"}
    assert {parameter.grad.device.type for parameter in student.parameters()} == {"meta"}


class Unread(TorchDispatchMode):
    """Counts what a device would have to be waited for: a value that Python reads, a shape that depends on values."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "is_nonzero", "bincount")

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.__name__.split(".")[0].strip("_") in {name.strip("_") for name in self.WAITS}:
            self.waits.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", PAPER)
def test_the_loop_looks_at_no_value(name):
    """Drawing the batch, forward, backward, the optimizer, the teacher: a GPU is asked for all of it in advance."""
    student = network("convnet", (3, 8, 8), torch.float32)
    step, teacher = step_of(name, student)
    drawn = batches(step.method, (3, 8, 8), torch.float32, view=Views(flip=True, crop=2, noise=0.15))
    optimizer = sgd(student.parameters(), 0.1, 0.9, 1e-4)
    average = None if teacher is None else Average(teacher.parameters(), student.parameters(), 0.95)
    learner = EagerLearner(step, list(student.parameters()))
    with Unread() as seen:
        assert len(list(taken(learner, optimizer, drawn, lambda step: 0.1, range(1, 4), average))) == 3
        assert seen.waits == []
        student.classifier.bias.sum().item()
    assert seen.waits == ["_local_scalar_dense.default"]  # it does notice


# --- shards ---


def global_rows(rank, n, u, processes=2):
    """Which rows of the global batch are in a shard, in the shard's order."""
    return torch.cat([torch.arange(n)[rank::processes], n + torch.arange(u)[rank::processes]])


def with_partners_of_shards(batch, shards, n, u):
    """The global batch, its samples mixed and paired as in the shards: those two draws are made within each shard, all
    others (samples, views, VAT's directions, ICT's shares) are the global batch's own."""
    batch = dict(batch)
    rows = [global_rows(rank, n, u) for rank in (0, 1)]
    if "partner" in batch:
        batch["partner"] = batch["partner"].clone()
        for own, shard in zip(rows, shards, strict=True):
            batch["partner"][own] = own[shard["partner"]]
    if "pairs" in batch:
        half = (n + u) // 4
        paired = [own[shard["pairs"]] for own, shard in zip(rows, shards, strict=True)]
        batch["pairs"] = torch.cat([p[:half] for p in paired] + [p[half:] for p in paired])
    return batch


@pytest.mark.parametrize("reweight", ["ce", "in"])
@pytest.mark.parametrize("name", ALL)
def test_the_gradient_is_the_mean_over_two_processes(name, reweight):
    if name.startswith("ict"):
        reweight = "ce"
    n, u = 6, 10
    student = network("small", IMAGE)
    step, _ = step_of(name, student, reweight)

    def drawn(**shard):
        return batches(step.method, IMAGE, reweight=reweight, sizes=(n, u), **shard).step(21)

    shards = [drawn(shard=(rank, 2)) for rank in (0, 1)]
    u = u if step.method.needs_unlabeled else 0
    together = with_partners_of_shards(drawn(), shards, n, u)
    for rank, shard in enumerate(shards):
        assert torch.equal(shard["x"], together["x"][global_rows(rank, n, u)])
    whole, parts = step(together), [step(shard) for shard in shards]
    for part in whole:
        torch.testing.assert_close(whole[part], (parts[0][part] + parts[1][part]) / 2, rtol=1e-12, atol=1e-13)
    expected, (one, two) = gradients(whole, student), (gradients(losses, student) for losses in parts)
    for key, value in expected.items():
        torch.testing.assert_close((one[key] + two[key]) / 2, value, rtol=1e-11, atol=1e-12)


# --- VAT's direction ---


def exact_direction(student, x, n, start):
    """One power iteration with the true Hessian, by differentiating twice in double precision."""
    student = copy.deepcopy(student).double()
    x, start = x.double(), start.double()

    shift = torch.zeros_like(start, requires_grad=True)
    with still_statistics(student):
        logits = student(torch.cat([x[:n], x[n:] + shift]))[n:]
    clean = probabilities(logits).detach()
    divergence = (clean * (clean.log() - logits.log_softmax(1))).sum()
    (slope,) = torch.autograd.grad(divergence, shift, create_graph=True)
    (curved,) = torch.autograd.grad((slope * unit(start)).sum(), shift)
    return unit(curved)


def agreement(network_name, precision, **options):
    """Cosines between the library's direction in single precision and the exact one, for 80 samples."""
    made, n, cosines = method("vat", **options), 5, []
    for seed in (0, 1):
        student = network(network_name, shape_of(network_name), torch.float32, seed=seed)
        batch = batches(made, shape_of(network_name), torch.float32, seed=seed, sizes=(n, 40)).step(1)
        seen = ModuleNetwork(student)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision != "float32"):
            assert student(batch["x"]).dtype == (torch.float32 if precision == "float32" else torch.bfloat16)
            found = made.base.worst_direction(seen, probabilities(seen.quietly(batch["x"])[n:].detach()), batch)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(40))
        cosines.append((found * exact_direction(student, batch["x"], n, batch["direction"])).flatten(1).sum(1))
    return torch.cat(cosines)


@pytest.mark.parametrize("precision", ["float32", "bfloat16 autocast"])
@pytest.mark.parametrize("network_name", ["toy-mlp", "mlp", "convnet", "wide-resnet-10-1"])
def test_the_direction_is_that_of_the_exact_hessian(network_name, precision):
    """Computed in single precision, outside autocast. A few samples are so near a kink of the network that ξ crosses it
    (in double precision too), or so certain that little is left to differ."""
    cosine = agreement(network_name, precision)
    assert cosine.median() >= 0.9999
    assert cosine.mean() >= 0.99
    assert (cosine >= 0.99).double().mean() >= 0.95


def test_a_smaller_step_would_be_rounding_noise():
    assert agreement("wide-resnet-10-1", "float32", xi=1e-6).mean() < 0.5


def test_what_a_network_says_has_the_precision_of_its_input():
    class Linear(nn.Linear):
        def forward(self, x, features=False):
            said = super().forward(x)
            return (said, said) if features else said

    module, x = Linear(2, 3), torch.ones(4, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(x).dtype == torch.bfloat16
        found = [*ModuleNetwork(module, features=True)(x), ModuleNetwork(module)(x).logits]
        found += [ModuleNetwork(module).quietly(x), TeacherNetwork(module)(x).logits]
    assert [said.dtype for said in found] == [torch.float32] * 5


@pytest.mark.parametrize("name", ALL)
def test_under_autocast_the_losses_are_computed_in_single_precision(name):
    step, _, student, drawn = prepare(name, "convnet", dtype=torch.float32, certainty=1.0)
    batch = drawn.step(40)
    expected = step(batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert student(batch["x"]).dtype == torch.bfloat16
        found = step(batch)
    for part, value in found.items():
        assert value.dtype == torch.float32
        assert value.item() == pytest.approx(expected[part].item(), rel=0.1, abs=0.02), part
    found["loss"].backward()
    assert all(p.grad.dtype == torch.float32 and torch.isfinite(p.grad).all() for p in student.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-5, 1.0, 1e30])
def test_a_direction_has_length_one_however_small_it_was(scale, dtype):
    """A certain network has slopes whose squares single precision cannot hold."""
    x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = unit((x * scale).to(dtype))
    torch.testing.assert_close(found.double(), x / x.norm(dim=(1, 2), keepdim=True), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(5, dtype=dtype))
    assert torch.equal(unit(torch.zeros(2, 3, dtype=dtype)), torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_vat_moves_by_epsilon_where_the_network_is_certain(seed):
    made, shape = method("vat"), shape_of("mlp")
    student = network("mlp", shape, torch.float32, seed=seed, certainty=160.0)
    batch = batches(made, shape, torch.float32, seed=seed, sizes=(5, 40)).step(1)
    clean = probabilities(student(batch["x"])[5:].detach())
    assert (clean.max(1).values > 0.99).sum() > 10  # their slopes are next to nothing
    found = made.base.worst_direction(ModuleNetwork(student), clean, batch)
    torch.testing.assert_close(found.flatten(1).norm(dim=1), torch.ones(40))
