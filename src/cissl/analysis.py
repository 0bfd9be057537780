"""The paper's section 3: why Mean Teacher forgives an imbalance that Π does not."""

from typing import Any

import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn
from torch.func import functional_call, vjp, vmap

from cissl.coefficients import coefficient_difference, student_coefficient, teacher_coefficient
from cissl.losses import probabilities
from cissl.views import gaussian_noise

__all__ = ["coefficient_difference", "gradient_difference", "student_coefficient", "teacher_coefficient"]


def gradient_difference(
    student: nn.Module, teacher: nn.Module, x: Float[Tensor, "n d"], noise: float, generator: Generator
) -> dict[str, npt.NDArray[Any]]:
    """∇L_MT − ∇L_Π at each point, and the paper's approximation ∇f ∇fᵀ (θ − θ′).

    L = ½ ‖f_θ(x + ε) − f_target(x + ε′)‖² with the target θ′ (Mean Teacher) or θ (Π), no gradient through the target;
    f are the probabilities of all classes. Their gradients differ by Jᵀ(x + ε) (f_θ(x + ε′) − f_θ′(x + ε′)).
    """
    parameters = {name: p.detach() for name, p in student.named_parameters()}
    behind = {name: p.detach() for name, p in teacher.named_parameters()}
    lag = {name: parameters[name] - behind[name] for name in parameters}
    view = gaussian_noise(noise)
    first, second = view(x, generator), view(x, generator)

    def predict(weights: dict[str, Tensor], point: Tensor) -> Tensor:
        return probabilities(functional_call(student, weights, (point[None],)))[0]

    def of_point(point: Tensor, point1: Tensor, point2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        at_view, pull = vjp(lambda w: predict(w, point1), parameters)[:2]
        pi = pull(at_view - predict(parameters, point2))[0]
        mean_teacher = pull(at_view - predict(behind, point2))[0]
        exact = flat({name: mean_teacher[name] - pi[name] for name in pi})
        at_point, pull_clean = vjp(lambda w: predict(w, point), parameters)[:2]
        # J (θ − θ′): pulling back is Jᵀ, and pulling back through that is J.
        push_clean = vjp(lambda v: pull_clean(v)[0], torch.zeros_like(at_point))[1]
        return at_point.max(), exact, flat(pull_clean(push_clean(lag)[0])[0])

    confidence, exact, predicted = vmap(of_point)(x, first, second)
    norms = exact.norm(dim=1), predicted.norm(dim=1)
    cosine = (exact * predicted).sum(1) / (norms[0] * norms[1]).clamp(min=torch.finfo(x.dtype).tiny)
    named = {"confidence": confidence, "exact_norm": norms[0], "predicted_norm": norms[1], "cosine": cosine}
    return {name: value.numpy() for name, value in named.items()}


def flat(parameters: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in parameters.values()])
