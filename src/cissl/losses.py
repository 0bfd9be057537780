"""Every loss of the paper: one formula per function, one number per sample, nothing else.

Summing, dividing by the batch and ramping up happen in one place, `cissl.objective`.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Counts = Sequence[int] | Sequence[float] | np.ndarray | Tensor
SuppressionForm = Literal["exponential", "linear"]
SMALLEST_SQUARED_DISTANCE = 1e-12  # the square root's gradient is infinite at 0 (identical features)


def probabilities(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Softmax, with the classes in front meanwhile: torch takes ten times longer over a short last dimension."""
    return logits.mT.softmax(-2).mT


def log_probabilities(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Log-softmax, likewise."""
    return logits.mT.log_softmax(-2).mT


# Divergences of (what the student says, what the target wants). A target never carries a gradient.


def squared_error(logits: Float[Tensor, "n k"], target: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Squared difference of the softmax probabilities and the target, mean over the classes."""
    return (probabilities(logits) - target.detach()).square().mean(1)


def kl_divergence(logits: Float[Tensor, "n k"], target: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """KL(target ‖ softmax(logits)); a class of target probability 0 adds 0."""
    target = target.detach()
    return (torch.xlogy(target, target) - target * log_probabilities(logits)).sum(1)


def soft_cross_entropy(logits: Float[Tensor, "n k"], target: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Cross-entropy to a target distribution: KL(target ‖ softmax(logits)) + the target's own entropy."""
    return -(target.detach() * log_probabilities(logits)).sum(1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"squared-error": squared_error, "kl": kl_divergence}


# Losses of one distribution, or of a label.


def cross_entropy(logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """−log p(label)."""
    return -log_probabilities(logits).gather(1, labels[:, None])[:, 0]


def focal(logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"], gamma: float = 2.0) -> Float[Tensor, " n"]:
    """(1 − p)^γ · −log p for the label's probability p (Lin et al. 2017, whose default γ is 2)."""
    if gamma < 0:
        raise ValueError(f"focal loss needs gamma >= 0, got {gamma}: larger values put less weight on easy samples")
    loss = cross_entropy(logits, labels)
    doubt = -torch.expm1(-loss)  # 1 − p, exact where p is near 1
    if gamma < 1:  # the slope of x^γ is infinite at 0
        doubt = doubt.clamp(min=torch.finfo(doubt.dtype).tiny ** 0.5)
    return doubt**gamma * loss


def entropy(logits: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """Entropy of softmax(logits); the gradient flows through both factors of p · log p."""
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(1)


def smooth_neighbors(
    features: Float[Tensor, "n ..."], classes: Int[Tensor, " n"], margin: float = 1.0
) -> Float[Tensor, " pairs"]:
    """SNTG's loss of neighbours (Luo et al. 2018), one number per pair (i, i + n/2).

    The distance d is the root of the mean squared difference over the feature dimensions. Pairs of one class are pulled
    together by d², others pushed apart by max(0, margin − d)². The caller permutes; an odd n drops the last.
    """
    half = len(classes) // 2
    features = features.flatten(1)  # (n, c, 1, 1) would broadcast further down
    squared = (features[:half] - features[half : 2 * half]).square().mean(1)
    distance = squared.clamp(min=SMALLEST_SQUARED_DISTANCE).sqrt()
    same = classes[:half] == classes[half : 2 * half]
    return torch.where(same, squared, (margin - distance).clamp(min=0).square())


# Weights per class, from counts of labeled training samples.


def _counts(class_counts: Counts) -> Float[Tensor, " k"]:
    """In double precision, on the CPU: not every device has it."""
    if not isinstance(class_counts, Tensor):  # copied: numpy's may be read-only, reversed or unsigned
        class_counts = torch.from_numpy(np.array(class_counts, np.float64))
    counts = class_counts.detach().cpu().double()
    if counts.ndim != 1 or len(counts) == 0:
        raise ValueError(
            f"class_counts should hold one count per class, got shape {tuple(counts.shape)}: "
            "pass e.g. numpy.bincount(labels, minlength=n_classes)"
        )
    if not bool((torch.isfinite(counts) & (counts >= 0)).all()):
        raise ValueError(f"class_counts should be finite and not negative, got {counts.tolist()}")
    if not bool((counts > 0).any()):
        raise ValueError("class_counts are all 0: count the labeled training samples of each class")
    return counts


def _as_weights(weights: Tensor, class_counts: Counts) -> Float[Tensor, " k"]:
    """On the counts' own device and in their floating type; where they have none, in torch's default one."""
    if not isinstance(class_counts, Tensor):
        return weights.to(torch.get_default_dtype())
    floating = class_counts.is_floating_point()
    return weights.to(class_counts.device, class_counts.dtype if floating else torch.get_default_dtype())


def suppression_weights(
    class_counts: Counts, beta: float = 0.5, form: SuppressionForm = "exponential"
) -> Float[Tensor, " k"]:
    """g(N_c) of the paper's Suppressed Consistency Loss: 1 for the most frequent class, least for the rarest.

    "exponential" is β^(1 − N_c/N_max), for strong imbalance; "linear" is N_c/N_max and knows no β.
    """
    if form not in get_args(SuppressionForm):
        raise ValueError(f"form should be one of {', '.join(get_args(SuppressionForm))}; got {form!r}")
    if not 0 < beta <= 1:
        raise ValueError(f"beta should be in (0, 1], got {beta}: 1 suppresses nothing, 0.5 is the paper's")
    counts = _counts(class_counts)
    frequency = counts / counts.max()
    return _as_weights(frequency if form == "linear" else beta ** (1 - frequency), class_counts)


def _mean_one(weights: Tensor, counts: Tensor, name: str) -> Tensor:
    if not bool((counts > 0).all()):
        empty = [c for c, n in enumerate(counts.tolist()) if n == 0]
        raise ValueError(f"{name} divides by each class's count, and class {empty[0]} has no labeled sample")
    return weights / weights.mean()


def inverse_weights(class_counts: Counts) -> Float[Tensor, " k"]:
    """IN: weights ∝ 1/N_c, of mean 1 over the classes."""
    counts = _counts(class_counts)
    return _as_weights(_mean_one(1 / counts, counts, "inverse_weights"), class_counts)


def class_balanced_weights(class_counts: Counts, beta: float = 0.9999) -> Float[Tensor, " k"]:
    """CB: weights ∝ (1 − β) / (1 − β^N_c), an inverse effective number (Cui et al. 2019), mean 1 over the classes."""
    if not 0 < beta < 1:
        raise ValueError(f"beta should be in (0, 1), got {beta}: 0 would weigh nothing, 0.9999 is Cui et al.'s")
    counts = _counts(class_counts)
    effective_number = (1 - beta**counts) / (1 - beta)
    return _as_weights(_mean_one(1 / effective_number, counts, "class_balanced_weights"), class_counts)


class SuppressedConsistencyLoss(nn.Module):
    """The paper's loss for a training loop of one's own: call it with (student_logits, teacher_logits).

    Each sample's consistency is multiplied by g(N_c), c being the class that the *student* predicts (the lowest index
    on a tie). The result is the mean over the samples passed; the teacher never receives a gradient.
    """

    weights: Tensor

    def __init__(
        self,
        class_counts: Counts,
        beta: float = 0.5,
        form: SuppressionForm = "exponential",
        divergence: Literal["squared-error", "kl"] = "squared-error",
    ) -> None:
        super().__init__()
        if divergence not in DIVERGENCES:
            raise ValueError(f"divergence should be one of {', '.join(DIVERGENCES)}; got {divergence!r}")
        self.divergence = divergence
        self.register_buffer("weights", suppression_weights(class_counts, beta, form))

    def forward(self, student_logits: Float[Tensor, "n k"], teacher_logits: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
        if student_logits.ndim != 2 or student_logits.shape != teacher_logits.shape:
            raise ValueError(
                "expected student and teacher logits of one shape (samples, classes), "
                f"got {tuple(student_logits.shape)} and {tuple(teacher_logits.shape)}"
            )
        if student_logits.shape[1] != len(self.weights):
            raise ValueError(
                f"the logits are of {student_logits.shape[1]} classes, class_counts of {len(self.weights)}: "
                "pass one count per class"
            )
        consistency = DIVERGENCES[self.divergence](student_logits, probabilities(teacher_logits))
        suppression = self.weights.to(consistency.dtype)[student_logits.argmax(1)]
        return (suppression * consistency).sum() / max(len(consistency), 1)  # no sample, no loss

    def extra_repr(self) -> str:
        return f"divergence={self.divergence!r}, weights={[round(w, 4) for w in self.weights.tolist()]}"
