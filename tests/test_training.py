"""The loop, the teacher and the curve, against loops written out for one number."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from cissl.training import (
    Average,
    Curve,
    EagerLearner,
    Record,
    curve_of,
    first_not_finite,
    sgd,
    stops,
    train,
)


class Numbers:
    """Batches: the step's number, seen as data."""

    def __init__(self):
        self.asked = []

    def step(self, step):
        self.asked.append(step)
        return torch.tensor(float(step), dtype=torch.float64)


def learner(parameter):
    """loss = (θ − t)² + 3 θ; "pull" is only told."""

    def step(batch):
        return {"loss": (parameter - batch) ** 2 + 3 * parameter, "pull": parameter - batch}

    return EagerLearner(step, [parameter])


def written_out(steps, rates, momentum, weight_decay, decay=None):
    """Nesterov's SGD and the moving average, for one number."""
    value, velocity, teacher, seen = 0.5, 0.0, 0.5, []
    for step in range(1, steps + 1):
        gradient = 2 * (value - step) + 3 + weight_decay * value
        velocity = gradient if step == 1 else momentum * velocity + gradient
        value -= rates(step) * (gradient + momentum * velocity if momentum else gradient)
        if decay is not None:
            keep = min(1 - 1 / (step + 1), decay)
            teacher = keep * teacher + (1 - keep) * value
        seen.append((value, teacher))
    return seen


def rates(step):
    return 0.05 / step


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 0.0), (0.9, 0.3), (0.0, 0.0)])
@pytest.mark.parametrize("decay", [0.95, 0.6])
def test_the_loop_is_nesterovs_sgd_and_the_teacher_follows_it(momentum, weight_decay, decay):
    student = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor(0.5, dtype=torch.float64)
    optimizer = sgd([student], 123.0, momentum, weight_decay)  # the rate of each step is given to the loop
    taken = train(learner(student), optimizer, Numbers(), rates, range(1, 31), Average([teacher], [student], decay))
    seen = [(student.item(), teacher.item()) for _ in taken]
    assert np.array(seen) == pytest.approx(np.array(written_out(30, rates, momentum, weight_decay, decay)), rel=1e-12)


def test_a_record_tells_the_losses_before_the_step_and_keeps_no_graph():
    parameter = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    first, second = train(learner(parameter), sgd([parameter], 0.1, 0.0, 0.0), Numbers(), lambda step: 0.1, [1, 2])
    assert (first.step, second.step, second.learning_rate) == (1, 2, 0.1)
    assert first.losses["loss"].item() == pytest.approx((0.5 - 1) ** 2 + 3 * 0.5)
    assert first.losses["pull"].item() == pytest.approx(-0.5)
    assert second.losses["pull"].item() == pytest.approx(0.5 - 0.1 * (2 * (0.5 - 1) + 3) - 2)
    assert not any(loss.requires_grad for record in (first, second) for loss in record.losses.values())


def test_steps_are_taken_when_they_are_asked_for_and_may_start_anywhere():
    parameter, batches = torch.tensor(0.5, dtype=torch.float64, requires_grad=True), Numbers()
    taken = train(learner(parameter), sgd([parameter], 0.1, 0.9, 0.0), batches, rates, range(41, 1000))
    assert batches.asked == []
    assert [record.learning_rate for record in islice(taken, 2)] == [rates(41), rates(42)]
    assert batches.asked == [41, 42]


def test_the_gradient_is_the_last_steps_alone():
    parameter = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    learn = learner(parameter)
    for _ in range(2):
        learn.gradients(torch.tensor(1.0, dtype=torch.float64))
        assert parameter.grad.item() == pytest.approx(2 * (0.5 - 1) + 3)


def test_the_teacher_is_at_first_the_mean_of_what_the_student_was():
    teacher, student = torch.tensor([2.0]), torch.tensor([0.0])
    average, seen = Average([teacher], [student], 0.8), [2.0]
    for step in (1, 2, 3, 4):  # γ_t is 1/2, 2/3, 3/4, 4/5
        student.fill_(step)
        average.follow(step)
        seen.append(float(step))
        assert teacher.item() == pytest.approx(np.mean(seen))
    student.fill_(10.0)
    before = teacher.item()
    average.follow(5)  # 1 − 1/6 would be more than γ
    assert teacher.item() == pytest.approx(0.8 * before + 0.2 * 10)


def test_the_teacher_follows_parameters_and_no_statistics():
    student, teacher = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
    teacher.load_state_dict(student.state_dict())
    student.train()(torch.arange(8.0).reshape(4, 2))  # moves the student's statistics
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(1.0)
    kept = {name: value.clone() for name, value in student.state_dict().items()}
    Average(teacher.parameters(), student.parameters(), 0.95).follow(1)
    for name, value in dict(teacher.named_parameters()).items():
        assert value.detach().numpy() == pytest.approx(kept[name].numpy() - 0.5)
    assert teacher[1].running_mean.tolist() == [0, 0]
    assert student[1].running_mean.abs().min() > 0
    assert all(torch.equal(kept[name], value) for name, value in student.state_dict().items())


def test_stops_are_at_every_multiple_and_at_the_end():
    assert list(stops(0, 250, 100)) == [100, 200, 250]
    assert list(stops(0, 300, 100)) == [100, 200, 300]
    assert list(stops(150, 420, 100)) == [200, 300, 400, 420]  # as if it had never stopped
    assert list(stops(0, 12, 5, 4)) == [4, 5, 8, 10, 12]
    assert list(stops(7, 7, 5)) == []


def records(losses):
    """One record per row of losses."""
    return [Record(number, {"loss": loss, "half": loss / 2}, 0.1) for number, loss in enumerate(losses, start=41)]


def test_a_curve_is_the_records_side_by_side():
    single = curve_of(records(torch.tensor([1.0, 3.0])))
    assert (single.steps.tolist(), single.learning_rates.tolist()) == ([41, 42], [0.1, 0.1])
    assert {name: values.tolist() for name, values in single.losses.items()} == {"loss": [1, 3], "half": [0.5, 1.5]}
    assert single.losses["loss"].dtype == np.float64
    seeds = curve_of(records(torch.arange(6.0).reshape(2, 3)))
    assert seeds.losses["half"].tolist() == [[0, 0.5, 1], [1.5, 2, 2.5]]


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([1.0, 2.0, 3.0], [0]),
        ([1.0, np.nan, 3.0], [42]),
        ([np.inf, np.nan, 3.0], [41]),
        ([1.0, 2.0, -np.inf], [43]),
        ([[1, 1, np.nan], [1, np.inf, 1], [1, np.nan, np.nan]], [0, 42, 41]),
    ],
)
def test_the_first_loss_that_is_no_number_is_found_for_each_seed(losses, found):
    losses = np.array(losses, dtype=float)
    other = np.full_like(losses, np.nan)  # only "loss" counts
    curve = Curve(np.arange(41, 44), {"loss": losses, "half": other}, np.ones(3))
    assert first_not_finite(curve).tolist() == found
