"""Views: random changes of whole batches, on the batch's device, where every sample has its own draw.

A view is a pure function of (batch, generator): the same generator seed gives the same view.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

View = Callable[[Tensor, Generator], Tensor]


def gaussian_noise(std: float) -> View:
    """Add normal noise to every number: 0.15 for the toy sets and for CIFAR-10 after GCN and ZCA."""
    if not std >= 0:
        raise ValueError(f"the noise's standard deviation has to be >= 0, got {std}")

    def view(x: Float[Tensor, "n ..."], generator: Generator) -> Float[Tensor, "n ..."]:
        return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype).mul_(std).add_(x)

    return view
