"""Data of one's own, whatever it lies in, as samples to learn from, and what usually goes wrong with it. No torch."""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cissl import image_files, tables
from cissl.image_arrays import HASH_SIZE, MAX_BROKEN, Tell, decode, key, same_content, too_many
from cissl.image_files import Broken, Listing, Look, Reading
from cissl.tables import Labels

Array = npt.NDArray[Any]
Color = Literal["auto", "rgb", "grey"]

FEW_LABELS = 3  # of a class: fewer say next to nothing of what it looks like
FEW_TO_CHOOSE_BY = 50  # validation samples: a difference of 5 points in error is within their noise
COMPARED = 2000  # samples of each part that are compared in scale
SHIFTED, STRETCHED = 3.0, 5.0  # deviations, and their ratio: from here on two parts are hardly of the same kind
OF_ANOTHER_SIZE = 2.0  # times


@dataclass(frozen=True)
class Found:
    """Samples to learn from: `x` with a label or None each, and where they were given apart, samples without one."""

    kind: Mapping[str, Any]  # how to read more of the same: it goes into the model
    x: Array
    labels: Labels
    unlabeled: Array | None
    key: str  # of the content: the same data has the same
    remarks: list[str] = field(default_factory=list)

    @property
    def class_counts(self) -> dict[str, int]:
        """Labeled samples of each class, in the order of the names."""
        counts = Counter(label for label in self.labels if label is not None)
        return dict(sorted(counts.items()))

    @property
    def without_label(self) -> int:
        return sum(label is None for label in self.labels) + (0 if self.unlabeled is None else len(self.unlabeled))


# ---- Images


def from_images(
    images: Path,
    unlabeled: Path | None,
    cache: Path,
    size: int | None = None,
    color: Color = "auto",
    resize: image_files.Resize = "letterbox",
    max_broken: int = MAX_BROKEN,
    tell: Tell | None = None,
) -> Found:
    """A folder of classes or a CSV of paths and labels, and a folder or CSV of more images."""
    listing = image_files.find(images)
    more = None if unlabeled is None else image_files.find(unlabeled, labeled=False)
    seen, seen_more = image_files.look(listing), None if more is None else image_files.look(more)
    if seen is None:
        raise ValueError(f"none of the images in {images} can be opened, {listing.names[0]} for one: are they images?")
    channels: Literal[1, 3] = 3 if color == "rgb" or (color == "auto" and seen.colours) else 1
    reading = Reading(size or seen.size, channels, resize)
    first = decode(listing, reading, cache, max_broken, tell)
    labels = [listing.labels[row] for row in first.rows]
    remarks = [*listing.remarks, *_skipped(first.broken), *_contradictions(listing, first.rows, first.hashes)]
    keys, second = [key(listing, reading), *map(str, labels)], None
    if more is not None:
        second = decode(more, reading, cache, max(0, max_broken - len(first.broken)), tell)
        keys.append(key(more, reading))
        remarks += [*more.remarks, *_skipped(second.broken), *_of_other_size(seen, seen_more)]
        mine, theirs = same_content(first.hashes, second.hashes)
        names = [(listing.names[first.rows[i]], more.names[second.rows[j]]) for i, j in zip(mine, theirs, strict=True)]
        remarks += _among_unlabeled(names)
    return Found(
        {"kind": "images", **dataclasses.asdict(reading)},
        first.images,
        labels,
        None if second is None else second.images,
        _key(keys),
        remarks + _other_scale(first.images, None if second is None else second.images),
    )


def _skipped(broken: Mapping[str, str]) -> list[str]:
    return [f"cannot be read, left out: {name}: {reason}" for name, reason in broken.items()]


def _contradictions(listing: Listing, rows: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> list[str]:
    """The same image with two labels teaches that both are half right."""
    first: dict[int, int] = {}
    pairs, repeated = [], 0
    for row, content in zip(rows.tolist(), hashes.tolist(), strict=True):
        before = first.setdefault(content, row)
        repeated += before != row
        if listing.labels[before] != listing.labels[row] and None not in (listing.labels[before], listing.labels[row]):
            pairs.append(f"{listing.names[before]} and {listing.names[row]}")
    remarks = [f"the same image has two labels: {_some(pairs)}"] if pairs else []
    if repeated:
        remarks.append(f"{repeated} of the images are copies of others: those held out to validate are not all new")
    return remarks


def _of_other_size(labeled: Look, unlabeled: Look | None) -> list[str]:
    if unlabeled is None:
        return []
    sizes = [max(look.height, look.width) for look in (labeled, unlabeled)]
    if max(sizes) <= OF_ANOTHER_SIZE * min(sizes):
        return []
    shown = [f"{look.width:.0f} x {look.height:.0f}" for look in (labeled, unlabeled)]
    return [f"labeled images are {shown[0]} pixels, unlabeled ones {shown[1]}: are they of the same kind?"]


def _among_unlabeled(pairs: Sequence[tuple[str, str]]) -> list[str]:
    if not pairs:
        return []
    mine, theirs = pairs[0]
    return [
        f"{len(pairs)} labeled samples are also among the unlabeled ones ({mine} is {theirs}): training is the same, "
        "but do not evaluate on them"
    ]


# ---- Tables and arrays


def from_table(source: Path, label: str, unlabeled: Path | None = None, ignored: Sequence[str] = ()) -> Found:
    """A CSV or Parquet file with a label column, and one of the same columns without."""
    table = tables.read_table(source, label, ignored=ignored)
    remarks, more = list(table.remarks), None
    if unlabeled is not None:
        others = tables.read_table(unlabeled, label, table.features, ignored, label_required=False)
        remarks += others.remarks
        if (labels := sum(text is not None for text in others.labels)) > 0:
            remarks.append(f"{labels} rows of {unlabeled} have a label, which is not looked at")
        more = others.x
    constant = [
        name for name, low, high in zip(table.features, table.x.min(0), table.x.max(0), strict=True) if low == high
    ]
    if constant:
        remarks.append(f"the same number in every row, so it says nothing: {_some(constant)}")
    return _in_memory(
        {"kind": "table", "features": list(table.features), "label": label},
        table.x, table.labels, more, remarks, table.features,
    )  # fmt: skip


def from_arrays(source: Path) -> Found:
    """A .npz file with X, y and perhaps X_unlabeled."""
    arrays = tables.read_arrays(source)
    if arrays.labels is None:
        raise ValueError(f"{source} has no array y: add the labels, −1 or an empty text for a sample without one")
    return _in_memory({"kind": "arrays"}, arrays.x, arrays.labels, arrays.unlabeled, [])


def _in_memory(
    kind: Mapping[str, Any],
    x: Array,
    labels: Labels,
    unlabeled: Array | None,
    remarks: list[str],
    features: Sequence[str] | None = None,
) -> Found:
    hashes = _hashes(x)
    has_label = np.array([label is not None for label in labels])
    others = [f"row {row + 1}" for row in np.flatnonzero(~has_label)]
    content = hashes[~has_label]
    if unlabeled is not None:
        content = np.concatenate([content, _hashes(unlabeled)])
        others += [f"unlabeled row {row + 1}" for row in range(len(unlabeled))]
    mine, theirs = same_content(hashes[has_label], content)
    rows = np.flatnonzero(has_label)[mine]
    remarks = remarks + _among_unlabeled([(f"row {i + 1}", others[j]) for i, j in zip(rows, theirs, strict=True)])
    remarks += _same_rows(hashes, labels) + _other_scale(x, unlabeled, features)
    parts = [x] if unlabeled is None else [x, unlabeled]
    described = [
        f"{part.shape} {part.dtype} {hashlib.sha256(np.ascontiguousarray(part).data).hexdigest()}" for part in parts
    ]
    return Found(kind, x, labels, unlabeled, _key([*described, *map(str, labels)]), remarks)


def _hashes(x: Array) -> npt.NDArray[np.uint64]:
    """Of each sample's content."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    digests = b"".join(hashlib.blake2b(row.data, digest_size=HASH_SIZE).digest() for row in flat)
    return np.frombuffer(digests, np.uint64)


def _same_rows(hashes: npt.NDArray[np.uint64], labels: Labels) -> list[str]:
    first: dict[int, int] = {}
    pairs = []
    for row, (content, label) in enumerate(zip(hashes.tolist(), labels, strict=True)):
        if label is not None and labels[before := first.setdefault(content, row)] != label:
            pairs.append(f"rows {before + 1} and {row + 1}")
    return [f"the same sample has two labels: {_some(pairs)}"] if pairs else []


# ---- What usually goes wrong


def warnings_of(found: Found) -> list[str]:
    """What to know before it is trained, beside the remarks of reading."""
    few = [f"{name} ({count})" for name, count in found.class_counts.items() if count < FEW_LABELS]
    warnings = []
    if few:
        warnings.append(f"fewer than {FEW_LABELS} labels of {_some(few)}: label more of them, before anything else")
    if not found.without_label:
        warnings.append(
            "no sample is unlabeled: the labeled ones serve as unlabeled ones too; give more with --unlabeled"
        )
    return warnings


def few_to_choose_by(validation: int) -> list[str]:
    """Of the samples that are held out."""
    if not 0 < validation < FEW_TO_CHOOSE_BY:
        return []
    return [f"{validation} samples are few to choose the best step by: take its validation error as a rough one"]


def _other_scale(x: Array, unlabeled: Array | None, features: Sequence[str] | None = None) -> list[str]:
    """Whether the unlabeled samples are numbers of another kind: 0 … 1 beside 0 … 255, metres beside inches."""
    if unlabeled is None or not len(unlabeled):
        return []
    (mean, deviation), (other_mean, other_deviation) = _scale(x), _scale(unlabeled)
    wide, narrow = np.maximum(deviation, other_deviation), np.minimum(deviation, other_deviation)
    shifted = np.abs(mean - other_mean) > SHIFTED * wide
    stretched = (narrow > 0) & (wide > STRETCHED * narrow)
    off = np.flatnonzero(shifted | stretched)
    if not len(off):
        return []
    i = int(off[0])
    numbers = f"{mean[i]:.3g} ± {deviation[i]:.3g} labeled, {other_mean[i]:.3g} ± {other_deviation[i]:.3g} unlabeled"
    where = "" if x.ndim > 2 else f" in {_some([features[i] if features else f'column {i + 1}' for i in off.tolist()])}"
    return [f"unlabeled samples are on another scale{where} ({numbers}): are they of the same kind and units?"]


def _scale(x: Array) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation of each feature, or of all pixels."""
    places = np.unique(np.linspace(0, len(x) - 1, min(COMPARED, len(x))).astype(np.int64))
    sample = np.asarray(x[places], np.float64)
    flat = sample if x.ndim == 2 else sample.reshape(-1, 1)
    with np.errstate(invalid="ignore", over="ignore"):  # reported where it is looked for
        return flat.mean(0), flat.std(0)


def _key(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _some(names: Sequence[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


# ---- Samples for a model that is there


@dataclass(frozen=True)
class Block:
    """Some samples in the form that the model was trained on, and what they are called."""

    names: list[str]
    x: Array
    labels: Labels


class Samples:
    """A folder, CSV, Parquet or .npz file, read block by block as the model's training data was."""

    def __init__(self, source: Path, kind: Mapping[str, Any], labeled: bool, max_broken: int = MAX_BROKEN) -> None:
        self.source, self.kind, self.labeled, self.max_broken = source, kind, labeled, max_broken
        self.remarks: list[str] = []
        self.broken: dict[str, str] = {}
        self.listing = image_files.find(source, labeled) if kind["kind"] == "images" else None
        if self.listing is not None:
            self.remarks += self.listing.remarks

    @property
    def name_column(self) -> str:
        return "row" if self.listing is None else "path"

    def __iter__(self) -> Iterator[Block]:
        blocks = self._images() if self.listing is not None else self._rows()
        for block in blocks:
            chosen = [i for i, label in enumerate(block.labels) if label is not None] if self.labeled else None
            yield (
                block
                if chosen is None
                else Block(
                    [block.names[i] for i in chosen],
                    block.x[np.array(chosen, np.int64)],
                    [block.labels[i] for i in chosen],
                )
            )

    def _images(self) -> Iterator[Block]:
        assert self.listing is not None
        reading = Reading(self.kind["size"], self.kind["channels"], self.kind["resize"])
        place = 0
        for block in image_files.read_all(self.listing, reading):
            here = slice(place, place + len(block))
            names, labels = self.listing.names[here], self.listing.labels[here]
            self.broken |= {name: str(why) for name, why in zip(names, block, strict=True) if isinstance(why, Broken)}
            if len(self.broken) > self.max_broken:
                raise too_many(self.broken, self.max_broken)
            good = [i for i, pixels in enumerate(block) if not isinstance(pixels, Broken)]
            place += len(block)
            if good:
                x = np.stack([block[i] for i in good])
                yield Block([names[i] for i in good], x, [labels[i] for i in good])

    def _rows(self) -> Iterator[Block]:
        if self.source.suffix.lower() == ".npz":
            arrays = tables.read_arrays(self.source)
            x, labels = arrays.x, arrays.labels or [None] * len(arrays.x)
            if self.labeled and arrays.labels is None:
                raise ValueError(f"{self.source} has no array y: evaluating needs the labels")
        elif self.kind["kind"] == "table":
            table = tables.read_table(self.source, self.kind["label"], self.kind["features"], (), self.labeled)
            x, labels = table.x, table.labels
            self.remarks += table.remarks
        else:
            raise ValueError(f"this model was trained on arrays: give a .npz file with X, not {self.source}")
        yield Block([str(row) for row in range(1, len(x) + 1)], x, labels)
