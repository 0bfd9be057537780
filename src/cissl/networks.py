"""Networks by name. All are called as `network(x)` -> logits, or `network(x, features=True)` -> (logits, features).

Every initial weight is drawn from the generator given, so that a network is a function of its seed.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cissl.names import imported, is_own, unknown

SLOPE = 0.1  # of every leaky ReLU: the paper's networks, toy and WRN-28-2
Stage = Sequence[tuple[int, int, int]]
Output = Float[Tensor, "n k"] | tuple[Float[Tensor, "n k"], Float[Tensor, "n d"]]


def act(x: Tensor) -> Tensor:
    """Leaky ReLU with the paper's slope."""
    return nn.functional.leaky_relu(x, SLOPE)


def linear(wide: int, narrow: int, generator: Generator | None) -> nn.Linear:
    """A linear layer, Xavier-normal with zero bias, that leaves the global random state alone."""
    layer = nn.Linear(wide, narrow, device="meta").to_empty(device="cpu")  # draws nothing
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def convolution(
    wide: int, narrow: int, size: int, generator: Generator | None, stride: int = 1, padding: int | None = None
) -> nn.Conv2d:
    """A convolution, by default padded to keep the size; no bias (BatchNorm follows), Kaiming-normal by fan-out."""
    padding = size // 2 if padding is None else padding
    layer = nn.Conv2d(wide, narrow, size, stride=stride, padding=padding, bias=False, device="meta").to_empty(
        device="cpu"
    )
    nn.init.kaiming_normal_(layer.weight, a=SLOPE, mode="fan_out", nonlinearity="leaky_relu", generator=generator)
    return layer


def norm(width: int) -> nn.BatchNorm2d:
    """BatchNorm with PyTorch's constants, which are the ones the paper's numbers were made with."""
    return nn.BatchNorm2d(width, momentum=0.1, eps=1e-5)


class Network(nn.Module):
    """A body that makes flat features (n, d), and one linear classifier on them."""

    classifier: nn.Linear

    def body(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """The features that the classifier reads."""
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "n ..."], features: bool = False) -> Output:
        """Logits, and with `features=True` also what the classifier read."""
        flat = self.body(x)
        logits = self.classifier(flat)
        return (logits, flat) if features else logits


class ToyMLP(Network):
    """The paper's toy network: 2 -> 30 -> 30 -> 30 -> 30 -> classes, where one 30 x 30 layer is applied three times."""

    def __init__(self, inputs: int, n_classes: int, generator: Generator | None) -> None:
        super().__init__()
        self.first = linear(inputs, 30, generator)
        self.hidden = linear(30, 30, generator)
        self.classifier = linear(30, n_classes, generator)

    def body(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        x = act(self.first(x))
        for _ in range(3):
            x = act(self.hidden(x))
        return x


class MLP(Network):
    """Two hidden layers of 256 for feature vectors (images are flattened); no BatchNorm, so it can be vmapped."""

    def __init__(self, inputs: int, n_classes: int, generator: Generator | None, width: int = 256) -> None:
        super().__init__()
        self.first = linear(inputs, width, generator)
        self.second = linear(width, width, generator)
        self.classifier = linear(width, n_classes, generator)

    def body(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return act(self.second(act(self.first(x.flatten(1)))))


class ResidualBlock(nn.Module):
    """Pre-activation block. Where the width changes, the shortcut starts from the normalised, activated input too."""

    def __init__(self, wide: int, narrow: int, stride: int, generator: Generator | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm(wide), norm(narrow)
        self.conv1 = convolution(wide, narrow, 3, generator, stride)
        self.conv2 = convolution(narrow, narrow, 3, generator)
        changes = wide != narrow or stride != 1
        self.shortcut = convolution(wide, narrow, 1, generator, stride) if changes else None

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c2 h2 w2"]:
        start = act(self.norm1(x))
        residual: Tensor = self.conv2(act(self.norm2(self.conv1(start))))
        carried: Tensor = x if self.shortcut is None else self.shortcut(start)
        return carried + residual


class WideResNet(Network):
    """The paper's image network: WRN-28-2 has 1,467,610 parameters for 32 x 32 x 3 and 10 classes."""

    def __init__(self, channels: int, n_classes: int, generator: Generator | None, depth: int, width: int) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise ValueError(
                f"wide-resnet-{depth}-{width}: the depth has to be 10, 16, 22, 28, 34, … and the width >= 1"
            )
        blocks: list[nn.Module] = []
        last = 16
        for group, stride in zip((16, 32, 64), (1, 2, 2), strict=True):
            for number in range((depth - 4) // 6):
                blocks.append(ResidualBlock(last, group * width, stride if number == 0 else 1, generator))
                last = group * width
        self.first = convolution(channels, 16, 3, generator)
        self.blocks = nn.Sequential(*blocks)
        self.norm = norm(last)
        self.classifier = linear(last, n_classes, generator)

    def body(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        return act(self.norm(self.blocks(self.first(x)))).mean((2, 3))


class ConvNet(Network):
    """Convolution, BatchNorm, leaky ReLU in three stages of growing width, halving the image between them."""

    def __init__(self, channels: int, n_classes: int, generator: Generator | None, stages: Sequence[Stage]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        last = channels
        for number, stage in enumerate(stages):
            if number:
                layers.append(nn.MaxPool2d(2))
            for width, size, padding in stage:
                layers += [convolution(last, width, size, generator, padding=padding), norm(width), nn.LeakyReLU(SLOPE)]
                last = width
        self.layers = nn.Sequential(*layers)
        self.classifier = linear(last, n_classes, generator)

    def body(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d"]:
        maps: Tensor = self.layers(x)
        return maps.mean((2, 3))


# Stages of (width, filter size, padding). The first is the 13-layer network of the semi-supervised literature without
# its dropout: all randomness of a step is drawn before it, and none inside the network. The second is for CPUs.
CNN13 = [[(128, 3, 1)] * 3, [(256, 3, 1)] * 3, [(512, 3, 0), (256, 1, 0), (128, 1, 0)]]
SMALL = [[(32, 3, 1)], [(64, 3, 1)], [(128, 3, 1)]]


class UserNetwork(nn.Module):
    """A user's own module, with what the rest of the library relies on checked at every call."""

    def __init__(self, module: nn.Module, name: str, n_classes: int) -> None:
        super().__init__()
        self.module, self.name, self.n_classes = module, name, n_classes
        takes = inspect.signature(module.forward).parameters
        self.has_features = "features" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values())

    def forward(self, x: Float[Tensor, "n ..."], features: bool = False) -> Output:
        """What the user's module says, if it has the shape that was asked for."""
        if not features:
            logits: Tensor = self.module(x)
            self._check_logits(logits, len(x))
            return logits
        if not self.has_features:
            raise ValueError(
                f"{self.name} gives no features, which sntg needs: let its forward(x, features=False) return "
                "(logits, features) when features=True, or leave +sntg out of the method"
            )
        pair: tuple[Tensor, Tensor] = self.module(x, features=True)
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Tensor) and pair[1].ndim == 2):
            raise ValueError(
                f"{self.name}: expected (logits, features) with features of shape (n, d) when features=True "
                f"(sntg needs them), got {_describe(pair)}"
            )
        self._check_logits(pair[0], len(x))
        return pair

    def _check_logits(self, logits: Any, n: int) -> None:
        if not isinstance(logits, Tensor) or tuple(logits.shape) != (n, self.n_classes):
            raise ValueError(
                f"{self.name}: expected logits of shape ({n}, {self.n_classes}) for {n} samples and {self.n_classes} "
                f"classes, got {_describe(logits)}: end the network in a linear layer of {self.n_classes} outputs"
            )


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_describe(part) for part in value) + ")"
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def made_by(
    make: Callable[..., Any], name: str, input_shape: tuple[int, ...], n_classes: int, generator: Generator | None
) -> UserNetwork:
    """Call a user's own `make` with (input_shape, n_classes); its random draws are seeded from the generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        try:
            module = make(input_shape, n_classes)
        except Exception as error:
            raise ValueError(
                f"{name} is called as {name.rpartition(':')[2]}({input_shape}, {n_classes}) and failed: {error}"
            ) from error
        return checked(module, name, input_shape, n_classes)


def checked(module: Any, name: str, input_shape: tuple[int, ...], n_classes: int) -> UserNetwork:
    """A user's own module, tried out."""
    if not isinstance(module, nn.Module):
        raise ValueError(f"{name}: expected it to return a torch.nn.Module, got {_describe(module)}")
    network = UserNetwork(module, name, n_classes)
    _probe(network, input_shape)
    return network


def _probe(network: UserNetwork, input_shape: tuple[int, ...]) -> None:
    """Try two samples once, so that a wrong output is reported before training and not in the middle of it."""
    network.eval()
    with torch.no_grad():
        try:
            network(torch.zeros(2, *input_shape))
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"{network.name} fails on a batch of shape {(2, *input_shape)}: {error}") from error
    network.train()


NAMES = ("toy-mlp", "mlp", "wide-resnet-28-2", "cnn13", "convnet")


def build(name: str, input_shape: tuple[int, ...], n_classes: int, generator: Generator | None = None) -> nn.Module:
    """The network of that name, with weights drawn from `generator` (None: torch's global one).

    `wide-resnet-DEPTH-WIDTH` takes any depth 6 n + 4 and width; `module:callable` calls your own
    `callable(input_shape, n_classes)`, which returns an `nn.Module` from (n, *input_shape) to logits (n, n_classes).
    """
    if n_classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got n_classes={n_classes}")
    if is_own(name):
        return made_by(imported("network", name), name, input_shape, n_classes, generator)
    if name == "toy-mlp":
        _need_vector(name, input_shape)
        return ToyMLP(input_shape[0], n_classes, generator)
    if name == "mlp":
        return MLP(math.prod(input_shape), n_classes, generator)
    if match := re.fullmatch(r"wide-resnet-(\d+)-(\d+)", name):
        channels = _need_image(name, input_shape, 4)
        return WideResNet(channels, n_classes, generator, depth=int(match[1]), width=int(match[2]))
    if name == "cnn13":
        return ConvNet(_need_image(name, input_shape, 12), n_classes, generator, CNN13)
    if name == "convnet":
        return ConvNet(_need_image(name, input_shape, 4), n_classes, generator, SMALL)
    raise unknown("network", name, (*NAMES, "module:callable"))


def _need_vector(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise ValueError(
            f"{name} is for feature vectors of shape (d,), got samples of shape {shape}: use mlp or convnet"
        )


def _need_image(name: str, shape: tuple[int, ...], smallest: int) -> int:
    """The number of channels, once the shape is known to be one that the network can take."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"{name} is for images of shape (channels, height, width), at least {smallest} x {smallest}, "
            f"got samples of shape {shape}" + (": use mlp" if len(shape) == 1 else "")
        )
    return shape[0]


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In evaluation mode for a while."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)
