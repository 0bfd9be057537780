"""Small tasks for the tests of training: data, networks, batches and steps of every method."""

import copy

import torch
from torch import nn

from cissl import networks, schedules
from cissl.batches import Batches
from cissl.losses import class_balanced_weights, inverse_weights, suppression_weights
from cissl.methods import BASES, PAPER, Consistency, method
from cissl.objective import Step
from cissl.views import gaussian_noise

CONSISTENT = tuple(name for name, base in BASES.items() if issubclass(base, Consistency))
MODIFIED = tuple(f"{base}{more}" for base in CONSISTENT for more in ("", "+scl", "+em", "+sntg", "+em+sntg+scl"))
ALL = tuple(dict.fromkeys((*PAPER, "supervised+em", *MODIFIED)))

COUNTS = (9, 5, 3)  # of labeled samples
RAMP = 40


class Small(nn.Module):
    """Flatten, linear, BatchNorm if asked for, leaky ReLU, linear: a network of images that numpy can follow."""

    def __init__(self, inputs, n_classes, generator, batch_norm=False, width=6):
        super().__init__()
        self.first = networks.linear(inputs, width, generator)
        self.norm = nn.BatchNorm1d(width) if batch_norm else None
        self.classifier = networks.linear(width, n_classes, generator)

    def forward(self, x, features=False):
        x = self.first(x.flatten(1))
        x = networks.act(x if self.norm is None else self.norm(x))
        return (self.classifier(x), x) if features else self.classifier(x)


def network(name, shape, dtype=torch.float64, seed=1, n_classes=3, certainty=None):
    """A fresh network that predicts several classes, some samples with certainty and some not: no bias is left at 0,
    the last layer is enlarged by `certainty` and its outputs are centred."""
    generator = torch.Generator().manual_seed(seed)
    if name in ("small", "small-norm"):
        made = Small(torch.Size(shape).numel(), n_classes, generator, batch_norm=name == "small-norm")
    else:
        made = networks.build(name, shape, n_classes, generator)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        made.classifier.weight.mul_(certainty or (16 if name == "toy-mlp" else 4))
        typical = copy.deepcopy(made)(torch.randn(50, *shape, generator=generator))
        made.classifier.bias.sub_(typical.mean(0))
    return made.to(dtype)


def batches(made, shape=(2,), dtype=torch.float64, seed=1, reweight="ce", sizes=(5, 8), counts=COUNTS, **changes):
    """Batches of random data; the labeled samples come first in it."""
    generator = torch.Generator().manual_seed(1000)
    x = torch.randn(60, *shape, generator=generator, dtype=torch.float64).to(dtype)
    ranked = [c for c, n in enumerate(counts) for _ in range(n)]
    labels = torch.tensor(ranked + [i % len(counts) for i in range(len(x) - len(ranked))])
    constants, of_each_class = {}, torch.tensor(counts, dtype=dtype)
    if made.scl is not None:
        constants["suppression"] = suppression_weights(of_each_class, made.scl.beta, made.scl.form)
    if reweight in ("in", "cb"):
        constants["class_weights"] = (inverse_weights if reweight == "in" else class_balanced_weights)(of_each_class)
    settings = {
        "x": x,
        "labels": labels,
        "labeled": torch.arange(len(ranked)).numpy(),
        "unlabeled": torch.arange(len(ranked), len(x)).numpy(),
        "labeled_batch": sizes[0],
        "unlabeled_batch": sizes[1] if made.needs_unlabeled else 0,
        "seed": seed,
        "view": gaussian_noise(0.3),
        "second_view": made.base.needs_second_view,
        "draws": made.draws,
        "ramp": lambda step: schedules.ramp(step, RAMP),
        "constants": constants,
    }
    return Batches(**{**settings, **changes})


def teacher_of(made, student, seed=77):
    """A teacher that has gone its own way, None where the method has none."""
    if made.teacher_decay is None:
        return None
    generator = torch.Generator().manual_seed(seed)
    teacher = copy.deepcopy(student).requires_grad_(False)
    for parameter in teacher.parameters():
        parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return teacher


def step_of(name, student, reweight="ce", **options):
    """(step module, teacher) of the method."""
    made = method(name, **options)
    teacher = teacher_of(made, student)
    return Step(made, reweight, student, teacher), teacher


def gradients(losses, module):
    """The gradient of the loss for every parameter by name; zeros where there is none."""
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(losses["loss"], list(parameters.values()), allow_unused=True, retain_graph=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(parameters.items(), found, strict=True)}
