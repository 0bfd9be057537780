"""What a model says of samples, as an HTML page that opens offline: tables, calibration, thumbnails. No torch."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from cissl.metrics import CALIBRATION_BINS

FloatArray = npt.NDArray[np.float64]

LARGEST_CONFUSION = 40  # classes: a larger table cannot be read
CHARTED = 60  # classes in the chart of what was predicted

STYLE = """
:root { color-scheme: light dark; --ink: #1c1f23; --quiet: #626b75; --line: #d9dee3; --back: #fff; --card: #f5f7f9;
  --mark: 37 99 176; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --quiet: #9aa4ae; --line: #363c43; --back: #15181b;
  --card: #1e2226; --mark: 104 160 230; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 4rem; max-width: 70rem; color: var(--ink);
  background: var(--back); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.5rem 0 .5rem; }
p { margin: .3rem 0 .8rem; max-width: 46rem; } .quiet { color: var(--quiet); }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; padding: 0; list-style: none; }
.facts li { background: var(--card); border-radius: .5rem; padding: .6rem 1rem; min-width: 8rem; }
.facts b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--quiet); } th:first-child, td:first-child { text-align: left; }
td.bar { min-width: 10rem; padding-left: 0; } td.bar i { display: block; height: .8rem; border-radius: 2px;
  background: rgb(var(--mark) / .75); }
@media (max-width: 40rem) { td.bar { min-width: 4rem; } th, td { padding: .3rem .4rem; } }
table.confusion td, table.confusion th { text-align: center; min-width: 2.6rem; }
table.confusion tr > :first-child { text-align: right; }
.thumbs { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1rem; margin: 0;
  padding: 0; list-style: none; }
.thumbs li { font-size: .82rem; line-height: 1.35; overflow-wrap: anywhere; }
.thumbs img { display: block; width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: .4rem;
  background: var(--card); margin-bottom: .35rem; } .wrong { color: var(--bad); }
svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; } svg { max-width: 100%; height: auto; }
"""


@dataclass(frozen=True)
class Shown:
    """One sample on the page, with its picture where it has one."""

    name: str
    said: str
    probability: float
    second: str
    second_probability: float
    label: str | None = None
    pixels: npt.NDArray[np.uint8] | None = None


def predictions_page(title: str, about: str, names: Sequence[str], said: FloatArray, least: Sequence[Shown]) -> str:
    """How often each class was predicted and how certainly, and the samples the model is least certain of."""
    predicted, confidence = said.argmax(1), said.max(1)
    counts = np.bincount(predicted, minlength=len(names))
    facts = {
        "samples": f"{len(said):,}",
        "mean confidence": percent(confidence.mean()),
        "below 50 % sure": f"{int((confidence < 0.5).sum()):,}",
    }
    order = np.argsort(-counts, kind="stable")[:CHARTED]
    rows = [
        [
            _text(names[c]), f"{counts[c]:,}", percent(counts[c] / len(said)), _bar(counts[c] / counts.max()),
            percent(confidence[predicted == c].mean()) if counts[c] else "–",
        ]
        for c in order
    ]  # fmt: skip
    table = _table(["class", "predicted", "share", "", "mean confidence"], rows, bars={3})
    parts = [_section("Predicted classes", "", table), _thumbs("Least certain", least)]
    return _page(title, about, facts, parts)


def evaluation_page(
    title: str,
    about: str,
    names: Sequence[str],
    labeled_counts: Sequence[int],
    measured: Mapping[str, Any],
    reliability: Sequence[tuple[int, float, float]],
    least: Sequence[Shown],
    mistakes: Sequence[Shown],
) -> str:
    """Errors per class beside how many labels it had, the confusion matrix, calibration, and samples to look at."""
    confusion = np.array(measured["confusion"])
    facts = {
        "samples": f"{confusion.sum():,}",
        "error": percent(measured["error"]),
        "balanced error": percent(measured["balanced_error"]),
        "rarest class, error": percent(measured["minor_error"]),
        "macro F1": percent(measured["macro_f1"]),
        "calibration error": percent(measured["calibration_error"]),
    }
    rows = [
        [
            _text(names[c]), f"{labeled_counts[c]:,}", f"{confusion[c].sum():,}", percent(measured["recall"][c]),
            _bar(measured["recall"][c] or 0), percent(measured["precision"][c]), percent(measured["f1"][c]),
            percent(measured["average_precision"][c]),
        ]
        for c in np.argsort(-np.array(labeled_counts), kind="stable")
    ]  # fmt: skip
    head = ["class", "labels", "samples", "recall", "", "precision", "F1", "average precision"]
    parts = [
        _section("Per class", "The classes with most labels in training come first.", _table(head, rows, bars={4})),
        _confusion(names, confusion),
        _section(
            "Calibration",
            "How often the model is right (bars) where it is that sure (line). Bars below the line: too sure.",
            _reliability(reliability),
        ),
        _thumbs("Most confident mistakes", mistakes),
        _thumbs("Least certain", least),
    ]
    return _page(title, about, facts, parts)


def percent(share: float | None) -> str:
    return "–" if share is None or not np.isfinite(share) else f"{100 * share:.1f} %"


def _page(title: str, about: str, facts: Mapping[str, str], parts: Sequence[str]) -> str:
    cards = "".join(f"<li>{_text(name)}<b>{value}</b></li>" for name, value in facts.items())
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_text(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{_text(title)}</h1>\n<p class=quiet>{_text(about)}</p>\n"
        f"<ul class=facts>{cards}</ul>\n{''.join(parts)}</body></html>\n"
    )


def _section(title: str, about: str, content: str) -> str:
    told = f"<p class=quiet>{_text(about)}</p>" if about else ""
    return f"<h2>{_text(title)}</h2>\n{told}<div class=wide>{content}</div>\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], bars: frozenset[int] | set[int] = frozenset()) -> str:
    """Cells are HTML already."""
    first = "".join(f"<th>{_text(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td{' class=bar' * (i in bars)}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>\n"
        for row in rows
    )
    return f"<table><tr>{first}</tr>\n{body}</table>"


def _bar(share: float) -> str:
    return f'<i style="width:{100 * share:.1f}%"></i>'


def _confusion(names: Sequence[str], confusion: npt.NDArray[np.int64]) -> str:
    about = "Rows: what a sample is; columns: what the model says. Colour: the share of the row."
    if len(names) > LARGEST_CONFUSION:
        pairs = np.argwhere((confusion > 0) & ~np.eye(len(names), dtype=bool)).tolist()
        worst = sorted(pairs, key=lambda pair: (-confusion[tuple(pair)], pair))[:LARGEST_CONFUSION]
        rows = [[_text(names[i]), _text(names[j]), str(confusion[i, j])] for i, j in worst]
        return _section("Most frequent mistakes", "", _table(["is", "was taken for", "times"], rows))
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    lines = []
    for name, row in zip(names, confusion, strict=True):
        shares = row / max(1, row.sum())
        cells = "".join(
            f'<td style="background:rgb(var(--mark) / {0.7 * share:.2f})">{count or "·"}</td>'
            for share, count in zip(shares, row, strict=True)
        )
        lines.append(f"<tr><th>{_text(name)}</th>{cells}</tr>\n")
    table = f"<table class=confusion><tr><th></th>{head}</tr>\n{''.join(lines)}</table>"
    return _section("Confusion", about, table)


def _reliability(bins: Sequence[tuple[int, float, float]]) -> str:
    """(samples, mean confidence, accuracy) of each bin as a drawing."""
    side, left, top = 260, 46, 10
    total = max(1, sum(count for count, _, _ in bins))
    width = side / CALIBRATION_BINS
    bars = "".join(
        f'<rect x="{left + i * width + 1:.1f}" y="{top + side * (1 - right):.1f}" width="{width - 2:.1f}" '
        f'height="{max(side * right, 1):.1f}" fill="rgb(var(--mark) / {0.25 + 0.65 * (count / total) ** 0.5:.2f})">'
        f"<title>{count:,} samples, {percent(sure)} sure, {percent(right)} right</title></rect>"
        for i, (count, sure, right) in enumerate(bins)
        if count
    )
    ticks = "".join(
        f'<text x="{left - 6}" y="{top + side * (1 - t) + 4:.0f}" text-anchor="end">{100 * t:.0f} %</text>'
        f'<text x="{left + side * t:.0f}" y="{top + side + 18}" text-anchor="middle">{100 * t:.0f} %</text>'
        for t in (0, 0.5, 1)
    )
    frame = f'<rect x="{left}" y="{top}" width="{side}" height="{side}" fill="none" stroke="var(--line)"/>'
    line = f'<path d="M{left} {top + side} L{left + side} {top}" stroke="var(--quiet)" stroke-dasharray="4 4"/>'
    below = f'<text x="{left + side / 2}" y="{top + side + 38}" text-anchor="middle">confidence</text>'
    return (
        f'<svg viewBox="0 0 {left + side + 24} {top + side + 46}" width="{left + side + 24}" role="img" '
        f'aria-label="accuracy over confidence">{frame}{bars}{line}{ticks}{below}</svg>'
    )


def _thumbs(title: str, shown: Sequence[Shown]) -> str:
    if not shown:
        return ""
    if any(one.pixels is None for one in shown):
        head = ["sample", "says", "", "then", "", *(["is"] if shown[0].label is not None else [])]
        rows = [
            [
                _text(one.name), _text(one.said), percent(one.probability), _text(one.second),
                percent(one.second_probability), *([_text(one.label)] if one.label is not None else []),
            ]
            for one in shown
        ]  # fmt: skip
        return _section(title, "", _table(head, rows))
    items = "".join(
        f'<li><img alt="" loading="lazy" src="{_picture(one.pixels)}">{_said(one)}<br>'
        f"<span class=quiet>then {_text(one.second)} {percent(one.second_probability)}<br>{_text(one.name)}</span>"
        "</li>\n"
        for one in shown
        if one.pixels is not None
    )
    return f"<h2>{_text(title)}</h2>\n<ul class=thumbs>{items}</ul>\n"


def _said(one: Shown) -> str:
    said = f"<b>{_text(one.said)}</b> {percent(one.probability)}"
    if one.label is None or one.label == one.said:
        return said
    return f"<span class=wrong>{said}</span>, is <b>{_text(one.label)}</b>"


def _picture(pixels: npt.NDArray[np.uint8]) -> str:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _text(text: object) -> str:
    """Names come from files: what looks like HTML in them is text, and what is no text is shown as such."""
    return html.escape(str(text).encode("utf-8", "backslashreplace").decode())
