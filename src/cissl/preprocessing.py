"""What happens to samples once, before training: global contrast normalisation and ZCA, as the paper's images had it.

Fitted on all official training samples, labels unseen, and applied to both sets. Everything goes in blocks, so that
CIFAR-10 needs little more memory than its own 600 MB of float32.
"""

import hashlib
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from cissl.names import unknown

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]

NORM = 55.0  # the length of every image after GCN, and the length under which
TINY = 1e-10  # an image counts as empty and is left alone
RIDGE = 0.1  # is added to the covariance's diagonal: ZCA keeps the directions that hardly vary small
FURTHEST = 10.0  # deviations from the mean of a feature
BLOCK = 2000  # samples at a time


def gcn(x: Array) -> FloatArray:
    """Global contrast normalisation: each image minus its mean over pixels and channels, at length 55."""
    flat = x.reshape(len(x), -1).astype(np.float32)
    flat -= flat.mean(1, dtype=np.float64, keepdims=True).astype(np.float32)
    length = np.sqrt(np.square(flat).sum(1, dtype=np.float64, keepdims=True))
    flat *= np.where(length < TINY, 1.0, NORM / np.maximum(length, TINY)).astype(np.float32)
    return flat.reshape(x.shape)


@runtime_checkable
class Raw(Protocol):
    """As much of an array as is needed to read samples from it, by a slice or by indices."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def dtype(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, which: Any) -> Any: ...


@dataclass(frozen=True)
class Preprocessing:
    """A fitted preprocessing: call it with samples, get float32 samples of the same shape."""

    name: str
    mean: Array
    factor: Array  # the centred samples times this: elementwise, or for gcn+zca as a matrix

    def __call__(self, x: Raw) -> FloatArray:
        """The samples as a network gets them."""
        out = np.empty(x.shape, np.float32)
        for block in _blocks(x):
            if self.name == "gcn+zca":
                flat = gcn(x[block]).reshape(-1, len(self.factor))
                np.matmul(flat - self.mean, self.factor, out=out[block].reshape(flat.shape))
            elif self.name == "features":
                centred = np.subtract(x[block], self.mean, dtype=np.float64)
                np.clip(centred * self.factor, -FURTHEST, FURTHEST, out=out[block])
            else:
                np.subtract(x[block], self.mean, out=out[block])
                out[block] *= self.factor
        return out


def none(x: Raw) -> Preprocessing:
    """Images of whole numbers 0 … 255 are brought to 0 … 1; numbers with a fraction stay as they are."""
    factor = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Preprocessing("none", np.zeros(1, np.float32), np.array([factor], np.float32))


def standardize(x: Raw) -> Preprocessing:
    """Mean 0 and deviation 1 of every channel of images, of every feature of vectors; what is constant becomes 0."""
    axes = (0, *range(2, x.ndim))
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    total, squares = np.zeros(shape), np.zeros(shape)
    count = x.size // np.prod(shape)
    for block in _blocks(x):
        total += x[block].sum(axes, dtype=np.float64, keepdims=True)
    mean = total / count
    for block in _blocks(x):
        squares += np.square(x[block] - mean).sum(axes, keepdims=True)
    deviation = np.sqrt(squares / count)
    factor = np.where(deviation < TINY, 0.0, 1 / np.maximum(deviation, TINY))
    return Preprocessing("standardize", mean.astype(np.float32), factor.astype(np.float32))


def gcn_zca(x: Raw) -> Preprocessing:
    """GCN, then the symmetric whitening V (Λ + 0.1)^−½ Vᵀ of the covariance V Λ Vᵀ of all training images."""
    if x.ndim != 4:
        raise ValueError(f"gcn+zca is for images (n, c, h, w), got samples of shape {x.shape[1:]}: use standardize")
    size = int(np.prod(x.shape[1:]))
    total, products = np.zeros(size), np.zeros((size, size))
    for block in _blocks(x):
        flat = gcn(x[block]).reshape(-1, size)
        total += flat.sum(0, dtype=np.float64)
        products += flat.T @ flat  # a block in float32, their sum in float64
    mean = total / len(x)
    products /= len(x)
    products -= np.outer(mean, mean)
    products[np.diag_indices(size)] += RIDGE
    values, vectors = np.linalg.eigh(products)
    matrix = ((vectors / np.sqrt(values)) @ vectors.T).astype(np.float32)
    return Preprocessing("gcn+zca", mean.astype(np.float32), matrix)


def features(x: Raw) -> Preprocessing:
    """Mean 0 and deviation 1 of every column of a table, in float64: a column may be far from 0 and hardly vary.

    What is constant becomes 0, and what is further than `FURTHEST` deviations from the mean counts as that far: an
    outlier, of training or later, cannot drown the other columns.
    """
    total, squares = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for block in _blocks(x):
            total += x[block].sum(0, dtype=np.float64)
        mean = total / len(x)
        for block in _blocks(x):
            squares += np.square(x[block] - mean).sum(0)
        deviation = np.sqrt(squares / len(x))
    if not np.isfinite(deviation).all():
        column = int(np.flatnonzero(~np.isfinite(deviation))[0])
        raise ValueError(f"feature {column} holds numbers too large to square: divide it, or take its logarithm")
    constant = deviation <= TINY * np.abs(mean)  # no more than rounding
    return Preprocessing("features", mean, np.where(constant, 0.0, 1 / np.where(constant, 1.0, deviation)))


FITS: dict[str, Callable[[Raw], Preprocessing]] = {
    "none": none,
    "standardize": standardize,
    "features": features,
    "gcn+zca": gcn_zca,
}


def fit(name: str, train: Raw, cache_dir: str | os.PathLike[str] | None = None) -> Preprocessing:
    """The preprocessing of that name for these training samples; ZCA is kept in `cache_dir` under their hash."""
    if name not in FITS:
        raise unknown("preprocessing", name, FITS)
    if train.ndim < 2 or not train.size:
        raise ValueError(f"preprocessing needs training samples (n, …), got an array of shape {train.shape}")
    if name != "gcn+zca" or cache_dir is None:
        return FITS[name](train)
    path = Path(cache_dir) / f"zca-{_fingerprint(train)}.npz"
    fitted = _read(path, int(np.prod(train.shape[1:])))
    if fitted is None:
        fitted = gcn_zca(train)
        _write(path, fitted)
    return fitted


def prepare(
    name: str, train: Array, test: Array, cache_dir: str | os.PathLike[str] | None = None
) -> tuple[FloatArray, FloatArray]:
    """Both sets, preprocessed alike by what was learnt from the training set."""
    fitted = fit(name, train, cache_dir)
    return fitted(train), fitted(test)


def _blocks(x: Raw) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, len(x), BLOCK))


def _fingerprint(train: Raw) -> str:
    """A hash of all that the fitted matrix depends on."""
    digest = hashlib.sha256(f"{NORM} {TINY} {RIDGE} {train.dtype} {train.shape}".encode())
    digest.update(np.ascontiguousarray(train[:]).data)
    return digest.hexdigest()[:32]


def _read(path: Path, size: int) -> Preprocessing | None:
    """What was kept, or None where there is nothing or nothing whole (the format has a checksum of its own)."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            mean, matrix = kept["mean"], kept["matrix"]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    return Preprocessing("gcn+zca", mean, matrix) if matrix.shape == (size, size) else None


def _write(path: Path, fitted: Preprocessing) -> None:
    """Keep it for the next run: written beside its place and moved there, so that it is never half there."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as stream:
            temporary = Path(stream.name)
            np.savez(stream, mean=fitted.mean, matrix=fitted.factor)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        warnings.warn(f"ZCA cannot be kept for the next run ({error}): every run will fit it anew", stacklevel=3)
        if temporary is not None:
            temporary.unlink(missing_ok=True)
