"""Many seeds of one run at once: the same objective, vmapped over stacked parameters and stacked batches.

A small network leaves a processor idle between its tiny operations; doing them for all seeds together costs little
more than for one. For networks without running statistics (no BatchNorm), in float32 or float64.
"""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from cissl.methods import Batch, Method, Output
from cissl.objective import Losses, Reweight, check_reweight, objective

Parameters = dict[str, Tensor]


class FunctionalNetwork:
    """A network with its parameters given, as the objective's student or teacher."""

    def __init__(self, network: nn.Module, parameters: Parameters, *, features: bool = False) -> None:
        self.network, self.parameters, self.features = network, parameters, features

    def __call__(self, x: Tensor) -> Output:
        if self.features:
            return Output(*functional_call(self.network, self.parameters, (x,), {"features": True}))
        return Output(self.quietly(x))

    def quietly(self, x: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.network, self.parameters, (x,))
        return logits


class PlainLinear(nn.Linear):
    """x Wᵀ + b as (W xᵀ + b)ᵀ: faster for many small networks, since the long dimension, the samples', comes last.
    In two operations, as vmap takes the fused one apart into more of them, and with the bias added in place."""

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            return super().forward(x)
        product = self.weight.mm(x.t())
        return (product if self.bias is None else product.add_(self.bias.unsqueeze(1))).t()


def for_vmap(network: nn.Module) -> nn.Module:
    """A copy of the network, the same function, that vmaps faster. Only its structure is used."""
    network = copy.deepcopy(network)
    for module in network.modules():
        if type(module) is nn.Linear:
            module.__class__ = PlainLinear
    return network


class ManySeeds:
    """The students of many seeds as one, and their teachers; a learner for `training.train`.

    `compiled=True` runs the losses and their gradient through torch.compile: seconds to compile, then faster; worth it
    for many steps. `compile_seconds` tells what the first step took.
    """

    def __init__(
        self, method: Method, reweight: Reweight, networks: Sequence[nn.Module], *, compiled: bool = False
    ) -> None:
        check_reweight(method, reweight)
        if any(True for network in networks for _ in network.buffers()):
            raise ValueError(
                "many seeds at once needs a network without running statistics: use one without BatchNorm, "
                "such as an mlp, or train the seeds one after the other"
            )
        self.method, self.reweight, self.network = method, reweight, for_vmap(networks[0])
        self.student: Parameters = stack_module_state(list(networks))[0]
        # Teachers start as their students do.
        has_teacher = method.teacher_decay is not None
        self.teacher: Parameters = {n: p.detach().clone() for n, p in self.student.items()} if has_teacher else {}
        self.compile_seconds: float | None = None
        self._compiled: Callable[..., Any] | None = None
        if compiled:
            each = vmap(grad_and_value(self._total, has_aux=True), randomness="error")
            self._compiled = torch.compile(each)

    def losses(self, student: Parameters, teacher: Parameters, batch: Batch) -> Losses:
        """The objective of one seed."""
        return objective(
            self.method,
            self.reweight,
            FunctionalNetwork(self.network, student, features=self.method.sntg is not None),
            FunctionalNetwork(self.network, teacher) if teacher else None,
            batch,
        )

    def _total(self, student: Parameters, teacher: Parameters, batch: Batch) -> tuple[Tensor, Losses]:
        losses = self.losses(student, teacher, batch)
        return losses["loss"], losses

    def gradients(self, batch: Batch) -> Losses:
        if self._compiled is not None:
            return self._compiled_gradients(batch)
        # The teachers carry no gradient: their parameters ask for none.
        losses: Losses = vmap(self.losses, randomness="error")(self.student, self.teacher, batch)
        for parameter in self.student.values():
            parameter.grad = None
        torch.autograd.backward(
            losses["loss"].sum()
        )  # seeds share nothing, so each parameter gets its own seed's gradient
        return losses

    def _compiled_gradients(self, batch: Batch) -> Losses:
        assert self._compiled is not None
        start = time.perf_counter()
        student = {name: parameter.detach() for name, parameter in self.student.items()}
        gradients, (_, losses) = self._compiled(student, self.teacher, batch)
        for name, parameter in self.student.items():
            parameter.grad = gradients[name]
        if self.compile_seconds is None:
            self.compile_seconds = time.perf_counter() - start
        out: Losses = losses
        return out

    def write_back(self, networks: Sequence[nn.Module], parameters: Parameters) -> None:
        """Put each seed's parameters into a network of its own."""
        with torch.no_grad():
            for seed, network in enumerate(networks):
                for name, parameter in network.named_parameters():
                    parameter.copy_(parameters[name][seed])
