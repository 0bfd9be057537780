"""Samples of any origin as the library takes them: tensors in memory, or read and preprocessed batch by batch.

What is read from is (n, features) or (n, channels, height, width): an array, or what can be indexed as one.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from cissl.preprocessing import Raw

Array = npt.NDArray[Any]
BLOCK = 2000  # samples at a time where all are looked at
IN_MEMORY = 2**30  # bytes of samples that are prepared at once; more is read by batches


class ReadOnDemand:
    """What the kinds of `Raw` have in common that are no arrays."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice | npt.NDArray[np.int64]) -> Array:
        return self.read(np.arange(*which.indices(len(self))) if isinstance(which, slice) else which)

    def read(self, places: npt.NDArray[np.int64]) -> Array:
        raise NotImplementedError


class Joined(ReadOnDemand):
    """Several of them, one after the other."""

    def __init__(self, parts: Sequence[Raw]) -> None:
        self.parts = parts
        self.shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        self.dtype = np.result_type(*(part.dtype for part in parts))

    def read(self, places: npt.NDArray[np.int64]) -> Array:
        out = np.empty((len(places), *self.shape[1:]), self.dtype)
        start = 0
        for part in self.parts:
            mine = np.flatnonzero((places >= start) & (places < start + len(part)))
            if len(mine):
                out[mine] = part[places[mine] - start]
            start += len(part)
        return out


class FromDataset(ReadOnDemand):
    """The samples x of a map-style torch `Dataset`, whose items are x or (x, y)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        first = self.item(0)[0]
        self.shape, self.dtype = (len(dataset), *first.shape), first.dtype

    def item(self, place: int) -> tuple[Array, Any]:
        item = self.dataset[place]
        x, y = (item[0], item[1] if len(item) > 1 else None) if isinstance(item, tuple | list) else (item, None)
        return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x), y.item() if isinstance(y, Tensor) else y

    def pairs(self, places: npt.NDArray[np.int64]) -> tuple[Array, list[Any]]:
        out, labels = np.empty((len(places), *self.shape[1:]), self.dtype), []
        for number, place in enumerate(places):
            x, y = self.item(int(place))
            if x.shape != self.shape[1:]:
                raise ValueError(
                    f"item {place} of the Dataset is of shape {x.shape}, the first one of {self.shape[1:]}: "
                    "let it bring them to one shape"
                )
            out[number] = x
            labels.append(y)
        return out, labels

    def read(self, places: npt.NDArray[np.int64]) -> Array:
        return self.pairs(places)[0]


def is_dataset(given: Any) -> bool:
    if isinstance(given, IterableDataset):
        raise ValueError("samples are drawn at random, which an IterableDataset cannot give: use a map-style Dataset")
    return isinstance(given, Dataset)


def from_dataset(dataset: Any) -> tuple[Raw, list[Any] | None]:
    """Its samples, read at once where they are small, and its labels, None where it has none."""
    if len(dataset) == 0:
        raise ValueError("the Dataset holds 0 samples: give at least one")
    samples = FromDataset(dataset)
    raw: Raw = samples
    if samples.size * samples.dtype.itemsize <= IN_MEMORY:
        raw, labels = samples.pairs(np.arange(len(samples)))
    else:
        labels = [samples.item(place)[1] for place in range(len(samples))]
    return raw, None if all(y is None for y in labels) else labels


def as_raw(given: Any) -> Raw | None:
    """Samples that are not a table in memory, channels first: images, and whatever lies on the disk. Else None."""
    if isinstance(given, Tensor):
        of_torch = given.detach().cpu().numpy()
        return _of_numbers(of_torch[:, None] if of_torch.ndim == 3 else of_torch)
    if isinstance(given, FromDataset):
        return given
    array: Any = np.asarray(given) if isinstance(given, list | tuple) else given
    if not isinstance(array, np.ndarray) or array.ndim < 2 or (array.ndim == 2 and not on_disk(array)):
        return None
    if array.ndim == 2:
        return _of_numbers(array)
    if array.ndim == 3:
        return _of_numbers(array[:, None])
    if array.ndim == 4 and array.shape[3] > 4 >= array.shape[1]:
        raise ValueError(
            f"images are taken as (n, height, width, channels), got {array.shape}, which looks as if the channels came "
            "first: give np.moveaxis(X, 1, -1), or a torch tensor"
        )
    return _of_numbers(np.moveaxis(array, -1, 1) if array.ndim == 4 else array)


def _of_numbers(array: Array) -> Array:
    if array.ndim not in (2, 4):
        raise ValueError(
            f"samples are a table (n, features) or images (n, height, width[, channels]), got shape {array.shape}"
        )
    if array.dtype.kind not in "buif":
        raise ValueError(f"samples are numbers, got an array of {array.dtype}: convert it with X.astype(float)")
    if array.size == 0:
        raise ValueError(f"there are no samples in an array of shape {array.shape}: give at least one")
    return array


def check_finite(raw: Raw) -> None:
    if raw.dtype.kind != "f":
        return
    for start in range(0, len(raw), BLOCK):
        if not np.isfinite(raw[start : start + BLOCK]).all():
            raise ValueError(
                "Input X contains NaN or infinity: leave those samples out, or fill what is missing, "
                "for instance with sklearn.impute.SimpleImputer"
            )


def on_disk(raw: Any) -> bool:
    """Whether reading it again costs less memory than keeping it: memory-mapped arrays, their views, and Datasets."""
    if isinstance(raw, Joined):
        return any(on_disk(part) for part in raw.parts)
    place: Any = raw
    while isinstance(place, np.ndarray) and not isinstance(place, np.memmap):
        place = place.base
    return isinstance(place, np.memmap | FromDataset)


@dataclass(frozen=True)
class Samples:
    """Samples that are read and preprocessed when they are asked for, in place of a tensor that holds all of them."""

    raw: Raw
    preprocess: Callable[[Array], Array]
    device: torch.device
    dtype: torch.dtype = torch.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.raw.shape

    @property
    def ndim(self) -> int:
        return self.raw.ndim

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, which: slice | Tensor) -> Tensor:
        if isinstance(which, slice):
            return self._tensor(self.raw[which])
        places = which.cpu().numpy()
        order = np.argsort(places, kind="stable")  # as they lie on the disk
        found = self.raw[places[order]]
        out = np.empty_like(found)
        out[order] = found
        return self._tensor(out)

    def _tensor(self, found: Array) -> Tensor:
        return torch.from_numpy(self.preprocess(found)).to(self.device, self.dtype)


def prepared(raw: Raw, preprocess: Callable[[Array], Array], device: torch.device) -> Tensor | Samples:
    """A tensor where the samples lie in memory and are few, else samples to be read by batches."""
    samples = Samples(raw, preprocess, device)
    return samples if on_disk(raw) or 4 * raw.size > IN_MEMORY else samples[:]


def fingerprint(raw: Raw, *arrays: Array) -> str:
    """A hash of samples and what belongs to them, read in blocks."""
    digest = hashlib.sha256()
    for part in (raw, *arrays):
        digest.update(f"{part.shape} {part.dtype}".encode())
        for start in range(0, len(part), BLOCK):
            digest.update(np.ascontiguousarray(part[start : start + BLOCK]).tobytes())
    return digest.hexdigest()[:16]
