"""SSD300 on VGG16, and a light network of the same interface for CPUs.

A detector is called as `network(images)` with RGB images from 0 to 255, `network.size` pixels a side, and gives class
logits (background first) and offsets of each of `network.priors`. Every initial weight is drawn from the generator
given, so that a network is a function of its seed.
"""

import os
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float, Int, Num
from torch import Generator, Tensor, nn

from cissl.detection.priors import SSD300, Map, mirror_index, priors
from cissl.names import unknown
from cissl.networks import norm

MEAN = (123.0, 117.0, 104.0)  # of VGG16's training images: red, green, blue


def convolution(
    wide: int,
    narrow: int,
    size: int,
    generator: Generator | None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    bias: bool = True,
) -> nn.Conv2d:
    """A convolution, Xavier-uniform with zero bias, that leaves the global random state alone."""
    layer = nn.Conv2d(wide, narrow, size, stride, padding, dilation, bias=bias, device="meta").to_empty(device="cpu")
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class L2Norm(nn.Module):
    """Every position's features scaled to norm 1, then each channel by a weight that is learnt."""

    def __init__(self, channels: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), scale))

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        return self.weight[:, None, None] * nn.functional.normalize(x, dim=1, eps=1e-10)


class Body(nn.Module):
    """Makes feature maps of images, the finest first."""

    widths: tuple[int, ...]  # the channels of each map
    pixel_scale: float  # what pixels, less their mean, are divided by

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> list[Tensor]:
        """The maps."""
        raise NotImplementedError


class VGG16(Body):
    """VGG16 up to a dilated fc6 and fc7, then eight convolutions that shrink: six maps.

    `layers` is numbered as the published weights are.
    """

    widths = (512, 1024, 512, 256, 256, 256)
    pixel_scale = 1.0

    def __init__(self, generator: Generator | None) -> None:
        super().__init__()
        stages = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
        layers: list[nn.Module] = []
        last = 3
        for number, stage in enumerate(stages):
            if number:
                layers.append(nn.MaxPool2d(2, ceil_mode=True))  # of odd sizes, only 75: 38 cells as in the paper
            for width in stage:
                layers += [convolution(last, width, 3, generator, padding=1), nn.ReLU()]
                last = width
        layers.append(nn.MaxPool2d(3, stride=1, padding=1))
        layers += [convolution(512, 1024, 3, generator, padding=6, dilation=6), nn.ReLU()]  # fc6
        layers += [convolution(1024, 1024, 1, generator), nn.ReLU()]  # fc7
        self.layers = nn.Sequential(*layers)
        self.norm = L2Norm(512, 20.0)
        shrinking = ((1024, 256, 512, 2), (512, 128, 256, 2), (256, 128, 256, 1), (256, 128, 256, 1))
        self.extras = nn.ModuleList(
            nn.Sequential(
                convolution(wide, between, 1, generator),
                nn.ReLU(),
                convolution(between, narrow, 3, generator, stride, padding=stride - 1),
                nn.ReLU(),
            )
            for wide, between, narrow, stride in shrinking
        )

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> list[Tensor]:
        conv4_3 = self.layers[:23](x)
        maps = [self.norm(conv4_3), self.layers[23:](conv4_3)]
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        return maps


def _block(
    wide: int, narrow: int, size: int, generator: Generator | None, stride: int = 1, padding: int = 1
) -> nn.Module:
    """Convolution, BatchNorm, ReLU."""
    layer = convolution(wide, narrow, size, generator, stride, padding, bias=False)
    return nn.Sequential(layer, norm(narrow), nn.ReLU())


class SmallBody(Body):
    """Strided convolutions with BatchNorm: maps of 1/8, 1/16 and 1/32 of the image, and one of two cells fewer.

    Where the size is halved, kernels of 4 x 4 lie symmetric in the image; those of 3 x 3 would lie half a cell aside,
    and an image and its mirror would not be seen alike.
    """

    widths = (64, 96, 96, 64)
    pixel_scale = 64.0

    def __init__(self, generator: Generator | None) -> None:
        super().__init__()

        def halve(wide: int, narrow: int) -> nn.Module:
            return _block(wide, narrow, 4, generator, stride=2)

        def keep(width: int) -> nn.Module:
            return _block(width, width, 3, generator)

        self.stages = nn.ModuleList(
            (
                nn.Sequential(halve(3, 16), halve(16, 32), keep(32), halve(32, 64), keep(64), keep(64)),
                nn.Sequential(halve(64, 96), keep(96)),
                nn.Sequential(nn.MaxPool2d(2), keep(96)),
                _block(96, 64, 3, generator, padding=0),
            )
        )

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> list[Tensor]:
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps


class SSD(nn.Module):
    """A body that makes feature maps, and on each of them a head for the classes and one for the offsets."""

    size: int  # of an image's side, in pixels
    classes: int  # of objects, without background
    priors: Float[Tensor, "p 4"]  # centres
    mirror: Int[Tensor, " p"]  # each prior's partner in the mirrored image
    mean: Tensor

    def __init__(
        self, body: Body, maps: Sequence[Map], size: int, classes: int, head: int, generator: Generator | None
    ) -> None:
        super().__init__()
        if classes < 1:
            raise ValueError(f"a detector needs at least 1 class of objects, got {classes}")
        self.size, self.classes = size, classes
        self.body = body
        shapes = [len(map_.shapes) for map_ in maps]
        self.class_heads, self.offset_heads = (
            nn.ModuleList(
                convolution(width, n * each, head, generator, padding=head // 2)
                for width, n in zip(body.widths, shapes, strict=True)
            )
            for each in (classes + 1, 4)
        )
        # What is known from the description is no part of a checkpoint.
        self.register_buffer("priors", priors(maps), persistent=False)
        self.register_buffer("mirror", mirror_index(maps), persistent=False)
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)

    def forward(self, images: Num[Tensor, "n 3 h w"]) -> tuple[Float[Tensor, "n p k"], Float[Tensor, "n p 4"]]:
        """Class logits, background first, and offsets of every prior."""
        if images.shape[1:] != (3, self.size, self.size):
            raise ValueError(
                f"this detector takes images of shape (3, {self.size}, {self.size}), got {tuple(images.shape[1:])}"
            )
        maps = self.body((images - self.mean) / self.body.pixel_scale)
        return _flat(self.class_heads, maps, self.classes + 1), _flat(self.offset_heads, maps, 4)


def _flat(heads: nn.ModuleList, maps: list[Tensor], each: int) -> Float[Tensor, "n p each"]:
    """A head on each map, in the order of the priors: map, row, column, shape."""
    outputs = (head(map_).permute(0, 2, 3, 1) for head, map_ in zip(heads, maps, strict=True))
    return torch.cat([output.reshape(len(output), -1, each) for output in outputs], 1)


def ssd300(classes: int = 20, generator: Generator | None = None) -> SSD:
    """SSD300 on VGG16 (Liu et al. 2016); 26.3 million parameters for VOC's 20 classes."""
    return SSD(VGG16(generator), SSD300, 300, classes, head=3, generator=generator)


def small_maps(size: int) -> tuple[Map, ...]:
    """The small detector's maps for images of that size."""
    cells = (size // 8, size // 16, size // 32, size // 32 - 2)
    sizes = (0.1, 0.25, 0.45, 0.7, 0.95)
    ratios = ((2,), (2, 3), (2, 3), (2,))
    return tuple(
        Map(n, 1 / n, own, following, of_map)
        for n, (own, following), of_map in zip(cells, pairwise(sizes), ratios, strict=True)
    )


def small(classes: int, generator: Generator | None = None, size: int = 96) -> SSD:
    """A light detector for CPUs: fewer than half a million parameters; `size` is any multiple of 32 from 96."""
    if size < 96 or size % 32:
        raise ValueError(f"the small detector's image size has to be 96, 128, 160, 192, …; got {size}")
    return SSD(SmallBody(generator), small_maps(size), size, classes, head=1, generator=generator)


BACKBONES: dict[str, Callable[[int, Generator | None], SSD]] = {"vgg16": ssd300, "small": small}


def build(backbone: str, classes: int, generator: Generator | None = None) -> SSD:
    """The detector with that backbone."""
    if backbone not in BACKBONES:
        raise unknown("backbone", backbone, BACKBONES)
    return BACKBONES[backbone](classes, generator)


# ---- Published weights of VGG16

KINDS = ("weight", "bias")
CONVOLUTIONS = [f"{n}.{kind}" for n in (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28) for kind in KINDS]
DENSE = tuple(f"{n}.{kind}" for n in (31, 33) for kind in KINDS)  # fc6 and fc7
DEVIATION = (0.229, 0.224, 0.225)  # of the pixels from 0 to 1 that torchvision's classifiers are trained with


def load_backbone(network: SSD, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Put VGG16's published weights into an SSD300, and return the names of the layers that they were for.

    Either the reduced-fc file of SSD's PyTorch port ("0.weight", …, "33.bias") or torchvision's layout
    ("features.0.weight", …), as .pth or .safetensors. Of torchvision's fully connected layers every fourth output (and
    of fc6 every third row and column) become fc6 and fc7, as SSD's paper does; its file for SSD, `vgg16_features`, has
    NaN there, and both layers keep what they have. Where they are numbers it is the file of torchvision's classifier,
    which takes standardised images: the first layer is scaled so that it takes ours.
    """
    body = network.body
    if not isinstance(body, VGG16):
        raise ValueError("weights of VGG16 fit the backbone vgg16 only: leave them out, or use that backbone")
    weights = _as_published(_read(Path(path)), Path(path))
    layers = dict(body.layers.named_parameters())
    for name, weight in weights.items():
        if weight.shape != layers[name].shape:
            raise ValueError(
                f"{path}: {name} is of shape {tuple(weight.shape)}, VGG16's is {tuple(layers[name].shape)}: "
                "this is not a file of VGG16's weights"
            )
        if not bool(weight.isfinite().all()):
            raise ValueError(f"{path}: {name} has a NaN or an infinity in it, the file is damaged: get it again")
    with torch.no_grad():
        for name, weight in weights.items():
            layers[name].copy_(weight)
    return tuple(dict.fromkeys(name.split(".")[0] for name in weights))


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file; nothing in it is run."""
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # whatever a file of another kind makes of its readers
        reason = str(error).split("\n")[0] if not isinstance(error, pickle.UnpicklingError) else "not only tensors"
        raise ValueError(f"{path} is no file of weights ({reason}): expected .pth or .safetensors of VGG16") from None
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise ValueError(f"{path}: expected a table of named tensors, as a state_dict is")
    return content


def _as_published(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The same weights under the names and in the shapes of `VGG16.layers`."""
    if set(tensors) == {*CONVOLUTIONS, *DENSE}:
        return tensors
    if any(f"features.{name}" not in tensors for name in CONVOLUTIONS):
        raise ValueError(
            f"{path}: expected VGG16's weights, in the reduced-fc layout (0.weight … 33.bias) or torchvision's "
            f"(features.0.weight … features.28.bias), got {len(tensors)} tensors: {', '.join(list(tensors)[:3])} …"
        )
    weights = {name: tensors[f"features.{name}"] for name in CONVOLUTIONS}
    dense = [tensors[name] for name in (f"classifier.{n}.{kind}" for n in (0, 3) for kind in KINDS) if name in tensors]
    if not dense:
        return weights
    if [tuple(layer.shape) for layer in dense] != [(4096, 25088), (4096,), (4096, 4096), (4096,)]:
        raise ValueError(
            f"{path}: classifier.0 and classifier.3 are not VGG16's fully connected layers, 25088-4096-4096"
        )
    fc6 = dense[0].view(4096, 512, 7, 7)[::4, :, ::3, ::3]
    fc7 = dense[2][::4, ::4, None, None]
    thinned = dict(zip(DENSE, (fc6, dense[1][::4], fc7, dense[3][::4]), strict=True))
    if not all(bool(layer.isfinite().all()) for layer in thinned.values()):
        return weights
    # These weights were trained on images of deviation 1, here they see pixels up to 255.
    first = weights["0.weight"] / (255 * torch.tensor(DEVIATION)[:, None, None])
    return weights | thinned | {"0.weight": first}
