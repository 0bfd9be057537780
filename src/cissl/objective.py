"""One training step: a pure function of parameters and batch, giving the losses by name.

J = L_sup + w(t) · L_con + modifiers, each a sum over its own samples divided by the size of the whole batch.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from cissl import losses
from cissl.methods import Batch, Consistency, Method, Network, Output
from cissl.names import unknown

Reweight = Literal["ce", "in", "focal", "cb"]
FOCAL_GAMMA = 1.0  # as the released code; losses.focal itself defaults to the 2 of the focal loss's own paper
Losses = dict[str, Tensor]


def objective(method: Method, reweight: Reweight, student: Network, teacher: Network | None, batch: Batch) -> Losses:
    """The losses of one step by name; "loss" is the one to descend."""
    base = method.base
    first = student(base.inputs(batch))
    size, n = len(first.logits), len(batch["labels"])
    logits, said = torch.split(first.logits, [n, size - n])

    parts: Losses = {"supervised": supervised_loss(method, reweight, logits, batch).sum() / size}
    if isinstance(base, Consistency):
        compared, wanted, kept = base.compare(said, student, teacher, batch)
        consistency = base.divergence(compared, wanted)
        if method.scl is not None:
            consistency = consistency * batch["suppression"].gather(0, predicted(said))
        if kept is not None:
            consistency = consistency * kept
        parts["consistency"] = base.consistency_weight / size * batch["ramp"] * consistency.sum()
        if method.sntg is not None:
            weight = method.sntg.sntg_weight * base.consistency_weight
            parts["sntg"] = weight * batch["ramp"] * neighbors_loss(method, method.sntg.margin, first, batch).mean()
    if method.em is not None:
        parts["entropy"] = method.em.entropy_weight * losses.entropy(said).sum() / size
    return {"loss": functools.reduce(torch.add, parts.values()), **parts}


def supervised_loss(
    method: Method, reweight: Reweight, logits: Float[Tensor, "l k"], batch: Batch
) -> Float[Tensor, " l"]:
    labels = batch["labels"]
    if method.base.mixes_labels:
        share, partner = batch["share"][0], labels[batch["partner"][: len(labels)]]
        return share * losses.cross_entropy(logits, labels) + (1 - share) * losses.cross_entropy(logits, partner)
    if reweight == "focal":
        return losses.focal(logits, labels, FOCAL_GAMMA)
    loss = losses.cross_entropy(logits, labels)
    return loss if reweight == "ce" else batch["class_weights"].gather(0, labels) * loss


def neighbors_loss(method: Method, margin: float, first: Output, batch: Batch) -> Float[Tensor, " pairs"]:
    """SNTG on the features of all rows, paired at random; an unlabeled sample's class is its predicted one."""
    assert first.features is not None
    labels, pairs = batch["labels"], batch["pairs"]
    if method.base.mixes_labels:  # a mixed sample is of the class that has the larger share of it
        labels = torch.where(batch["share"][0] >= 0.5, labels, labels[batch["partner"][: len(labels)]])
    classes = torch.cat([labels, predicted(first.logits[len(labels) :])])
    return losses.smooth_neighbors(first.features[pairs], classes[pairs], margin)


def predicted(logits: Float[Tensor, "n k"]) -> Int[Tensor, " n"]:
    """The most probable class, the lowest one on a tie. As argmax, which is slow where the classes lie far apart."""
    return logits.detach().max(1).indices


class ModuleNetwork:
    """A torch module as the objective's student or teacher. What it says is of the input's precision, so that under
    autocast the losses are not computed in that of the network."""

    def __init__(self, module: nn.Module, *, features: bool = False) -> None:
        self.module, self.features = module, features

    def __call__(self, x: Tensor) -> Output:
        if self.features:
            logits, features = self.module(x, features=True)
            return Output(logits.to(x.dtype), features.to(x.dtype))
        return Output(self.module(x).to(x.dtype))

    def quietly(self, x: Tensor) -> Tensor:
        with still_statistics(self.module):
            logits: Tensor = self.module(x)
        return logits.to(x.dtype)


STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@contextmanager
def still_statistics(module: nn.Module) -> Iterator[None]:
    """Within it, layers in training mode normalise by the batch and have no running statistics that could move."""
    moving = [m for m in module.modules() if m.training and getattr(m, "running_mean", None) is not None]
    kept = [{name: getattr(m, name) for name in STATISTICS if hasattr(m, name)} for m in moving]
    try:
        for m, statistics in zip(moving, kept, strict=True):
            for name in statistics:
                setattr(m, name, None)
        yield
    finally:
        for m, statistics in zip(moving, kept, strict=True):
            for name, value in statistics.items():
                setattr(m, name, value)


class Step(nn.Module):
    """`forward(batch)` is the objective. This is what Fabric wraps, once; the teacher is not registered in it, so that
    neither the optimizer nor DDP ever sees it."""

    def __init__(self, method: Method, reweight: Reweight, student: nn.Module, teacher: nn.Module | None) -> None:
        super().__init__()
        check_reweight(method, reweight)
        if method.teacher_decay is not None and teacher is None:
            raise ValueError(f"{method.name!r} learns from a teacher: give one, such as a copy of the student")
        self.student = student
        self.method, self.reweight = method, reweight
        self.networks = (
            ModuleNetwork(student, features=method.sntg is not None),
            TeacherNetwork(teacher) if teacher is not None else None,
        )

    def forward(self, batch: Batch) -> Losses:
        student, teacher = self.networks
        return objective(self.method, self.reweight, student, teacher, batch)


class TeacherNetwork(ModuleNetwork):
    """A pass of the teacher: its own statistics move, and no gradient is kept."""

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Output:
        return super().__call__(x)


def check_reweight(method: Method, reweight: Reweight) -> None:
    if reweight not in get_args(Reweight):
        raise unknown("re-weighting", reweight, get_args(Reweight))
    if method.base.mixes_labels and reweight != "ce":
        raise ValueError(
            f"re-weighting {reweight!r} weighs a sample by its class, and {method.name!r} trains on mixtures of "
            "classes: use reweight='ce' with it"
        )
