"""The figures of the toy study. Each function takes plain data and a path without suffix, and writes PNG and SVG, or
what `written_as` asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

# Distinct for colour-blind eyes as well (Okabe and Ito), and none of them a colour of the plane below.
CLASS_COLOURS = ("#0072B2", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#8B5A2B")
CLASS_MARKERS = ("o", "s", "^", "D", "v", "P")
CONFIDENCE_COLOURS = "YlOrRd_r"  # dark red is low: the decision boundary, as in the paper
LINE_COLOURS = ("#0a7cc4", "#e0650a", "#109a72", "#c868a0", "#a0703c", "#8468d0", "#c79a08", "#4fa8d8", "#d04848")
GREY, INK = "#7f8487", "#333333"
PNG_DPI, VECTOR_DPI = 150, 100  # the latter for what is a picture inside an SVG or PDF: dense points, and the plane
FORMATS = ("png", "svg")  # and pdf where it is asked for
UNDATED: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_written_as: ContextVar[tuple[str, ...]] = ContextVar("written_as", default=FORMATS)

STYLE: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that a figure looks the same everywhere
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "cissl",  # the same figure is the same file
}


@dataclass(frozen=True)
class Boundary:
    """One panel of Figure 1: the arrays of a run's boundary.npz, or why there are none."""

    title: str
    arrays: Mapping[str, np.ndarray] | None
    reason: str = ""
    seed: int | None = None


def boundary_figure(rows: Sequence[Sequence[Boundary]], stem: str | Path) -> list[Path]:
    """Figure 1: confidence over the plane, unlabeled points grey, labeled ones by class; a row per data set."""
    height, width = len(rows), max(len(row) for row in rows)
    with matplotlib.rc_context(STYLE):
        figure = _figure(2.45 * width + 0.75, 2.2 * height)
        axes = figure.subplots(height, width, squeeze=False)
        # Between two classes the confidence is at most 0.5; below it three or more meet.
        scale = Normalize(0.5, 1.0)
        for row, panels in zip(axes, rows, strict=True):
            for axis in row[len(panels) :]:
                axis.set_axis_off()
            for axis, panel in zip(row, panels, strict=False):
                _boundary(axis, panel, scale)
            if panels[0].seed is not None:
                row[0].set_ylabel(f"seed {panels[0].seed}")
        bar = figure.colorbar(
            ScalarMappable(scale, CONFIDENCE_COLOURS), ax=axes, extend="min", fraction=0.025, pad=0.01, aspect=30
        )
        bar.set_label("probability of the most confident class")
        bar.outline.set_visible(False)
        return _save(figure, stem)


def coefficient_figure(
    student: Float[np.ndarray, " steps"],
    teacher: Float[np.ndarray, " steps"],
    difference: Mapping[str, Float[np.ndarray, " steps"]],
    stem: str | Path,
) -> list[Path]:
    """The supplement's figure: coefficients of a past gradient in student and teacher, and their difference.

    Arrays go by iteration k = 0, …, t − 1. `difference` has one line per label, the first one being that of the
    two coefficients on the left.
    """
    iterations = np.arange(len(student))
    with matplotlib.rc_context(STYLE):
        figure = _figure(8.4, 3.2)
        left, right = figure.subplots(1, 2)
        left.plot(iterations, student, color=CLASS_COLOURS[0], label="student θ")
        left.plot(iterations, teacher, color="#D55E00", label="teacher θ′")
        left.fill_between(iterations, teacher, student, color="#E8E8E8", linewidth=0)
        left.set(title="Coefficient of each past gradient", ylabel="coefficient of $\\nabla J(θ_k)$")
        styles = (("#D55E00", "-"), (INK, "--"), (GREY, ":"))
        for (label, values), (colour, line) in zip(difference.items(), styles, strict=False):
            right.plot(iterations, values, color=colour, linestyle=line, label=label)
        right.axhline(0, color=INK, linewidth=0.6)
        right.set(title="Student − teacher: never below 0", ylabel="difference of the coefficients")
        for axis in (left, right):
            axis.set_xlabel(f"iteration k of the gradient (t = {len(student)})")
            axis.set_xlim(0, len(student))
            _open(axis)
            axis.legend(loc="best")
        return _save(figure, stem)


def gradient_difference_figure(
    points: Float[np.ndarray, "n 2"],
    confidence: Float[np.ndarray, " n"],
    exact_norm: Float[np.ndarray, " n"],
    predicted_norm: Float[np.ndarray, " n"],
    cosine: Float[np.ndarray, " n"],
    stem: str | Path,
) -> list[Path]:
    """‖∇L_MT − ∇L_Π‖ over the plane and against confidence, with the paper's ∇f ∇fᵀ (θ − θ′) beside it."""
    order = np.argsort(exact_norm)  # the large ones on top
    # Four decades of colour: what is smaller is nothing beside the boundary.
    largest = float(exact_norm.max()) or 1.0
    with matplotlib.rc_context(STYLE):
        figure = _figure(9.4, 3.7)
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        dots = left.scatter(
            *points[order].T,
            c=np.maximum(exact_norm[order], 1e-4 * largest),
            s=8,
            cmap="plasma_r",
            norm=LogNorm(1e-4 * largest, largest),
            linewidths=0,
            rasterized=True,
        )
        left.set(title="Where Mean Teacher and Π model differ", xticks=[], yticks=[])
        figure.colorbar(dots, ax=left, pad=0.02, extend="min").set_label("norm of the gradient difference")
        _against_confidence(right, confidence, exact_norm, predicted_norm, cosine)
        return _save(figure, stem)


def near_and_far(confidence: Float[np.ndarray, " n"]) -> tuple[Bool[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Which points are near the boundary, the least confident tenth, and which far from it, the most confident half."""
    return np.asarray(confidence <= np.quantile(confidence, 0.1)), np.asarray(confidence >= np.median(confidence))


def suppression_figure(
    ratio: Float[np.ndarray, " n"], weights: Mapping[str, Float[np.ndarray, " n"]], stem: str | Path
) -> list[Path]:
    """g(N_c) against N_c / N_max, one line per label, in the order given."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(4.8, 3.4)
        axis = figure.subplots()
        exponential = [label for label in weights if "linear" not in label]
        shades = dict(
            zip(exponential, matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(exponential))), strict=True)
        )
        for label, values in weights.items():
            line = {"color": shades[label]} if label in shades else {"color": "#D55E00", "linestyle": "--"}
            axis.plot(ratio, values, label=label, **line)
        axis.set(xlabel="$N_c / N_{max}$", ylabel="g($N_c$)", xlim=(0, 1), ylim=(0, 1.03))
        axis.set_title("Suppression of a sample predicted as class c")
        _open(axis)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return _save(figure, stem)


def imbalance_figure(counts: Mapping[str, Int[np.ndarray, " k"]], stem: str | Path) -> list[Path]:
    """The paper's Figure 3: samples per class, a panel of bars per title; first the labeled, then the unlabeled."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(2.2 * len(counts), 2.5)
        axes = figure.subplots(1, len(counts), squeeze=False)[0]
        highest = max((max(numbers) for numbers in list(counts.values())[1:]), default=0)
        for i, (axis, (title, numbers)) in enumerate(zip(axes, counts.items(), strict=True)):
            ranks = np.arange(1, len(numbers) + 1)
            axis.bar(ranks, numbers, width=0.75, color=GREY if i == 0 else CLASS_COLOURS[0])
            axis.set(title=title, xlabel="rank of the class", xticks=ranks)
            # The first panel has a scale of its own; the unlabeled ones share theirs, having the same total.
            axis.set_ylim(0, 1.1 * (highest if i > 0 else max(numbers)))
            # The last number stands above its left neighbours, which it is wider than.
            for rank, height, side in ((0, numbers[0], "left"), (-1, max(numbers[-3:]), "right")):
                at = (ranks[rank] + (-0.4 if side == "left" else 0.4), height)
                axis.annotate(f"{numbers[rank]}", at, (0, 2), textcoords="offset points", ha=side, size=8)
            axis.spines[["top", "right"]].set_visible(False)
            if i > 1:
                axis.tick_params(labelleft=False)
        axes[0].set_ylabel("samples")
        return _save(figure, stem)


def objects_figure(
    class_names: Sequence[str], counts: Mapping[str, Int[np.ndarray, " k"]], stem: str | Path
) -> list[Path]:
    """The supplement's class distributions of detection: objects per class, a panel of bars per title, and ρ."""
    with matplotlib.rc_context(STYLE):
        figure = _figure(3.6 * len(counts), 0.9 + 0.17 * len(class_names))
        axes = figure.subplots(1, len(counts), squeeze=False, sharey=True)[0]
        places = np.arange(len(class_names))
        for i, (axis, (title, numbers)) in enumerate(zip(axes, counts.items(), strict=True)):
            axis.barh(places, numbers, height=0.75, color=GREY if i == 0 else CLASS_COLOURS[0])
            ratio = f" (ρ = {numbers.max() / numbers.min():.3g})" if numbers.min() > 0 else ""
            axis.set(title=title + ratio, xlabel="objects", yticks=places, yticklabels=class_names)
            axis.set_xlim(0, 1.15 * max(1, numbers.max()))
            for place, number in zip(places, numbers, strict=True):
                axis.annotate(f"{number:,}", (number, place), (3, 0), textcoords="offset points", va="center", size=7)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].invert_yaxis()
        return _save(figure, stem)


Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # by label: along, and up


def recall_figure(panels: Mapping[str, Lines], what: str, stem: str | Path) -> list[Path]:
    """Recall in % of each class against its labeled samples: a panel per setting, a line per method."""
    return _line_figure(
        panels, "labeled samples of the class", f"{what} in %", stem, {"xscale": "log", "ylim": (-3, 103)}
    )


def curve_figure(panels: Mapping[str, Lines], what: str, stem: str | Path) -> list[Path]:
    """How a number went over the steps: a panel per setting, a line per method."""
    return _line_figure(panels, "step", what, stem, {})


def _line_figure(
    panels: Mapping[str, Lines], along: str, up: str, stem: str | Path, scales: Mapping[str, Any]
) -> list[Path]:
    colours = {label: LINE_COLOURS[i % len(LINE_COLOURS)] for i, label in enumerate(_labels(panels))}
    with matplotlib.rc_context(STYLE):
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = _figure(3.2 * columns, 2.6 * rows + 0.4)
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axis, (title, lines) in zip(axes, panels.items(), strict=False):
            for label, (xs, ys) in lines.items():
                axis.plot(xs, ys, marker="o", ms=3, linewidth=1.2, color=colours[label], label=label)
            axis.set(title=title, xlabel=along, **scales)
            _open(axis)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        for axis in axes[::columns]:
            axis.set_ylabel(up)
        handles = [Line2D([], [], color=colour, marker="o", ms=3, label=label) for label, colour in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)))
        return _save(figure, stem)


def _labels(panels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(label for lines in panels.values() for label in lines))


def _boundary(axis: Axes, panel: Boundary, scale: Normalize) -> None:
    axis.set_title(panel.title)
    axis.set(xticks=[], yticks=[])
    if panel.arrays is None:
        axis.set_facecolor("#f4f4f4")
        axis.text(0.5, 0.5, panel.reason, transform=axis.transAxes, ha="center", va="center", color=INK, wrap=True)
        return
    x, y = panel.arrays["x"], panel.arrays["y"]
    axis.imshow(
        panel.arrays["probability"].astype(np.float32),
        extent=(float(x[0]), float(x[-1]), float(y[0]), float(y[-1])),
        origin="lower",
        aspect="auto",
        cmap=CONFIDENCE_COLOURS,
        norm=scale,
        interpolation="bilinear",
        zorder=0,
    )
    axis.set_rasterization_zorder(2)  # the plane and its thousands of points become one picture inside the SVG
    axis.plot(*panel.arrays["unlabeled_points"].T, ".", color=GREY, ms=1.8, mew=0, alpha=0.6, zorder=1)
    classes = panel.arrays["labeled_classes"].astype(int)
    for c in np.unique(classes):
        axis.plot(
            *panel.arrays["labeled_points"][classes == c].T,
            linestyle="none",
            marker=CLASS_MARKERS[c % len(CLASS_MARKERS)],
            color=CLASS_COLOURS[c % len(CLASS_COLOURS)],
            ms=6,
            mec="white",
            mew=0.9,
            zorder=3,
        )
    axis.set_xlim(x.min(), x.max())
    axis.set_ylim(y.min(), y.max())


def _against_confidence(
    axis: Axes,
    confidence: Float[np.ndarray, " n"],
    exact_norm: Float[np.ndarray, " n"],
    predicted_norm: Float[np.ndarray, " n"],
    cosine: Float[np.ndarray, " n"],
) -> None:
    """Points, the two medians and what they are. Drawn over 1 − confidence: nearly all points crowd just below 1."""
    doubt = np.maximum(1 - confidence.astype(np.float64), 1e-7)  # float32 has nothing between
    shown = exact_norm > 0
    axis.plot(
        doubt[shown],
        exact_norm[shown],
        ".",
        color=CLASS_COLOURS[0],
        ms=3.5,
        mew=0,
        alpha=0.5,
        zorder=1,
        rasterized=True,
    )
    near, far = near_and_far(confidence)
    for label, group, colour in (("least confident tenth", near, "#D55E00"), ("most confident half", far, INK)):
        exact, predicted, alike = (float(np.median(a[group])) for a in (exact_norm, predicted_norm, cosine))
        text = f"{label}: median {exact:.1e}\n∇f ∇fᵀ(θ − θ′) gives {predicted:.1e}, cosine {alike:.3f}"
        axis.plot([doubt[group].min(), doubt[group].max()], [exact] * 2, color=colour, linewidth=2.5, label=text)
    axis.set(title="Near the boundary and far from it", xlabel="confidence", ylabel="norm of the gradient difference")
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = {0.5: "0.5", 0.1: "0.9", 1e-2: "0.99", 1e-3: "0.999", 1e-4: "1−10⁻⁴", 1e-5: "", 1e-6: "1−10⁻⁶", 1e-7: ""}
    ticks = {at: text for at, text in ticks.items() if at >= 0.5 * doubt.min()}
    axis.set_xticks(list(ticks), labels=list(ticks.values()))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.invert_xaxis()
    _open(axis)
    axis.legend(loc="lower left", fontsize=8)


def _open(axis: Axes) -> None:
    axis.grid(True)
    axis.spines[["top", "right"]].set_visible(False)


def _figure(width: float, height: float) -> Figure:
    """A figure that no global state of matplotlib knows of."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def written_as(formats: Sequence[str]) -> Iterator[None]:
    """Within, figures are written in these formats."""
    token = _written_as.set(tuple(formats))
    try:
        yield
    finally:
        _written_as.reset(token)


def _save(figure: Figure, stem: str | Path) -> list[Path]:
    """A file per format, each written beside and renamed: an interrupted report leaves no torn picture."""
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix in _written_as.get():
        path = stem.with_name(f"{stem.name}.{suffix}")
        temporary = stem.with_name(f".{stem.name}.{os.getpid()}.{suffix}")
        dpi = PNG_DPI if suffix == "png" else VECTOR_DPI
        figure.savefig(temporary, dpi=dpi, format=suffix, metadata=UNDATED.get(suffix, {}))
        figure.set_layout_engine("none")  # laid out now; doing it again takes as long as drawing
        os.replace(temporary, path)
        paths.append(path)
    return paths
