"""CSD: a detector should say the same of an image and of its mirror image (Jeong et al. 2019); SCL on top of it."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cissl.losses import probabilities

SMALLEST_PROBABILITY = 1e-7  # added to each before a logarithm is taken


def mirrored_back(
    class_logits: Float[Tensor, "n p k"], offsets: Float[Tensor, "n p 4"], mirror_index: Int[Tensor, " p"]
) -> tuple[Float[Tensor, "n p k"], Float[Tensor, "n p 4"]]:
    """What the network said of the mirrored images, put back in place: each prior's partner, x to the other side."""
    other_side = torch.tensor([-1, 1, 1, 1], dtype=offsets.dtype, device=offsets.device)
    return class_logits[:, mirror_index], offsets[:, mirror_index] * other_side


def consistency(
    class_logits: Float[Tensor, "n p k"],
    offsets: Float[Tensor, "n p 4"],
    mirrored_logits: Float[Tensor, "n p k"],
    mirrored_offsets: Float[Tensor, "n p 4"],
    suppression: Float[Tensor, " objects"] | None = None,
) -> dict[str, Float[Tensor, ""]]:
    """The named terms "classification" and "localisation" between images and their mirror images, put back in place.

    Classification is ½ [KL(p ‖ p̂) + KL(p̂ ‖ p)], each with its target detached; localisation is the mean of the squared
    differences of the four offsets (Δx + Δx̂ before x was put back), nothing detached. A prior counts where the best
    object class beats background in the image that is not mirrored; each term is the mean over these priors, 0 if there
    is none. With `suppression`, g(N_c) of each object class as `losses.suppression_weights(counts, form="linear")`
    gives it, a prior's classification is multiplied by that of its best object class.
    """
    best, guess = class_logits.detach()[..., 1:].max(2)
    kept = (best > class_logits.detach()[..., 0]).to(offsets.dtype)
    weight = kept if suppression is None else kept * suppression.to(kept.dtype)[guess]
    kept_priors = kept.sum().clamp(min=1)
    return {
        "classification": (weight * _divergence(class_logits, mirrored_logits)).sum() / kept_priors,
        "localisation": (kept * (offsets - mirrored_offsets).square().mean(2)).sum() / kept_priors,
    }


def _divergence(a: Float[Tensor, "n p k"], b: Float[Tensor, "n p k"]) -> Float[Tensor, "n p"]:
    """½ [KL(p ‖ p̂) + KL(p̂ ‖ p)] of each prior; only the second distribution of a KL gets a gradient."""
    p, q = (probabilities(logits.flatten(0, 1)) + SMALLEST_PROBABILITY for logits in (a, b))
    log_p, log_q = p.log(), q.log()
    forward = p.detach() * (log_p.detach() - log_q)
    backward = q.detach() * (log_q.detach() - log_p)
    return (forward + backward).sum(1).view(a.shape[:2]) / 2


def csd_weight(step: int, steps: int) -> float:
    """The consistency's weight at a step of a training of so many: 0 at 0, up to 1 in 32 of 120, down in the last 20.

    exp(−5 (1 − t/32k)²) to 32k, 1 to 100k, exp(−12.5 (1 − (120k − t)/20k)²) after, for the paper's 120k steps.
    """
    t = 120 * step / steps
    if t <= 0:
        return 0.0
    if t < 32:
        return math.exp(-5 * (1 - t / 32) ** 2)
    if t <= 100:
        return 1.0
    return math.exp(-12.5 * (1 - (120 - t) / 20) ** 2)
