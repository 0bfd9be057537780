"""The loop: one step after another, each yielding a record. It knows no method and no data set."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cissl.records import Curve

Losses = dict[str, Tensor]
LOOK_EVERY = 100  # steps between looks at the losses: a look waits for the device


class Record(NamedTuple):
    """What a step did. The losses stay on the device, one number, or one per seed."""

    step: int
    losses: Losses
    learning_rate: float


@runtime_checkable
class Learner(Protocol):
    def gradients(self, batch: Any) -> Losses:
        """Compute the losses and put the gradient of "loss" into the parameters."""


@runtime_checkable
class Backward(Protocol):
    def __call__(self, loss: Tensor, /) -> None: ...


def backward(loss: Tensor) -> None:
    torch.autograd.backward(loss)


@dataclass
class EagerLearner:
    """Forward and backward of a step module. `backward` is Fabric's where there is one."""

    step: Callable[[Any], Losses]
    parameters: Sequence[Tensor]
    backward: Backward = backward
    modules: Sequence[nn.Module] = ()  # those whose statistics a step moves

    def gradients(self, batch: Any) -> Losses:
        losses = self.step(batch)
        for parameter in self.parameters:
            parameter.grad = None
        self.backward(losses["loss"].sum())  # over seeds; a single run's sum is itself
        return losses


class GraphLearner(EagerLearner):
    """The same as one CUDA graph, captured at the first step: a small batch keeps a GPU waiting for its launches."""

    captured: tuple[torch.cuda.CUDAGraph, dict[str, Tensor], tuple[str, ...], Tensor] | None = None
    warm_up: int = 3

    def gradients(self, batch: Mapping[str, Tensor]) -> Losses:
        if self.captured is None:
            self.captured = self._capture(batch)
        graph, inputs, names, losses = self.captured
        for name, value in batch.items():
            inputs[name].copy_(value)
        graph.replay()  # writes into the gradients' own memory
        return dict(zip(names, losses.clone(), strict=True))

    def _capture(
        self, batch: Mapping[str, Tensor]
    ) -> tuple[torch.cuda.CUDAGraph, dict[str, Tensor], tuple[str, ...], Tensor]:
        inputs = {name: value.clone() for name, value in batch.items()}
        moving = [value for module in self.modules for value in module.buffers()]
        kept = [value.clone() for value in moving]
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(self.warm_up):
                super().gradients(inputs)
        torch.cuda.current_stream().wait_stream(aside)
        for value, before in zip(moving, kept, strict=True):
            value.copy_(before)  # warming up has moved the running statistics
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = super().gradients(inputs)
            stacked = torch.stack([loss.detach() for loss in losses.values()])
        return graph, inputs, tuple(losses), stacked


class Average:
    """The teacher: θ′ ← γ_t θ′ + (1 − γ_t) θ after the optimizer's step, over parameters only.

    γ_t = min(1 − 1/(t + 1), γ): at first it is the plain mean of what the student has been.
    """

    def __init__(self, teacher: Iterable[Tensor], student: Iterable[Tensor], decay: float) -> None:
        self.teacher, self.student, self.decay = list(teacher), list(student), decay

    @torch.no_grad()
    def follow(self, step: int) -> None:
        decay = min(1 - 1 / (step + 1), self.decay)
        torch._foreach_lerp_(self.teacher, self.student, 1 - decay)


def sgd(
    parameters: Iterable[Tensor], learning_rate: float, momentum: float, weight_decay: float, nesterov: bool = True
) -> torch.optim.SGD:
    """The paper's optimizer: SGD, for classifiers with Nesterov momentum, weight decay on all parameters."""
    nesterov = nesterov and momentum > 0
    return torch.optim.SGD(
        parameters, lr=learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, foreach=True
    )


def train(
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    batches: Any,
    learning_rate: Callable[[int], float],
    steps: Iterable[int],
    average: Average | None = None,
) -> Iterator[Record]:
    """Take the steps, one by one, as they are asked for."""
    for step in steps:
        batch = batches.step(step)
        rate = learning_rate(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        losses = learner.gradients(batch)
        optimizer.step()
        if average is not None:
            average.follow(step)
        yield Record(step, {name: loss.detach() for name, loss in losses.items()}, rate)


def stops(done: int, steps: int, *everys: int) -> Iterator[int]:
    """The steps after `done` at which something is to be done: every so many of each, and the last."""
    while done < steps:
        done = min([steps, *(every * (done // every + 1) for every in everys)])
        yield done


def curve_of(records: Sequence[Record], shared: Callable[[Tensor], Tensor] = lambda values: values) -> Curve:
    """Bring the records to the host: the only place that waits for the device. `shared` averages over processes."""
    names = records[0].losses
    stacked = torch.stack([torch.stack([record.losses[name] for record in records]) for name in names])
    values = shared(stacked).double().cpu().numpy()
    return Curve(
        np.array([record.step for record in records]),
        dict(zip(names, values, strict=True)),
        np.array([record.learning_rate for record in records]),
    )


def first_not_finite(curve: Curve) -> npt.NDArray[np.int64]:
    """The step at which the loss first was not a finite number, for each seed; 0 where it always was."""
    loss = curve.losses["loss"]
    bad = ~np.isfinite(loss.reshape(len(loss), -1))
    return np.where(bad.any(0), curve.steps[bad.argmax(0)], 0)
