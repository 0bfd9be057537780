"""`cissl predict`, `cissl evaluate` and `cissl export`: what one does with a model folder."""

import csv
import heapq
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cissl.estimator import CISSLClassifier
    from cissl.model_page import Shown
    from cissl.own_data import Block, Samples

SHOWN = 24  # samples of a kind on a page
WIDEST = 12  # classes of a confusion matrix on a terminal
EVERY = 10_000  # samples between lines where there is no terminal

Model = Annotated[Path, typer.Argument(help="The model's folder, as `cissl train --out` wrote it.", show_default=False)]
Source = Annotated[
    Path,
    typer.Argument(
        help="A folder of images, a CSV of paths or of features, a .parquet or .npz file.", show_default=False
    ),
]
Html = Annotated[Path | None, typer.Option("--html", help="Also a page with tables and samples to look at.")]
MaxBroken = Annotated[int, typer.Option(help="Images that may be unreadable: they are listed and left out.", min=0)]
NetworkAgain = Annotated[
    str | None,
    typer.Option(
        "--network", help="Of a model with a network of its own: module:callable again, which imports that code."
    ),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help='How frequent the classes are where it is used: "uniform", or "cat=0.9,dog=0.1"; probabilities follow.',
        show_default="as in training",
    ),
]


def predict(
    model: Model,
    source: Source,
    out: Annotated[Path, typer.Option(help="Where to write path, label and the probability of each class.")] = Path(
        "predictions.csv"
    ),
    html: Html = None,
    prior: Prior = None,
    max_broken: MaxBroken = 10,
    network: NetworkAgain = None,
) -> None:
    """Say the class of each sample, and how probable each class is."""
    classifier, kind = _model(model, network, prior)
    samples = _samples(source, kind, labeled=False, max_broken=max_broken)
    said = Said(classifier)
    for block in _counted(samples):
        said.add(block)
    _check_any(said, source)
    _write(out, lambda: _table_of(said, samples.name_column))
    _tell_left_out(samples)
    counts = {name: int((said.predicted == i).sum()) for i, name in enumerate(said.names)}
    typer.echo(f"{len(said.predicted):,} samples: " + ", ".join(f"{name} {n:,}" for name, n in counts.items()))
    typer.echo(f"Written: {out}")
    if html is not None:
        from cissl.model_page import predictions_page

        about = f"What {model} says of {source}"
        page = predictions_page(f"Predictions: {source.name}", about, said.names, said.probabilities, said.least())
        _write(html, lambda: page)
        typer.echo(f"Written: {html}")


def evaluate(
    model: Model,
    source: Source,
    out: Annotated[Path | None, typer.Option(help="Also every number as JSON.")] = None,
    html: Html = None,
    prior: Prior = None,
    max_broken: MaxBroken = 10,
    network: NetworkAgain = None,
) -> None:
    """Compare what the model says with labels that it has not seen: per class, confusion, calibration.

    Labeled as for training: SOURCE/CLASS/image, a CSV of path,label, a table with the label column, .npz with y.
    """
    import json

    import numpy as np

    from cissl import metrics

    classifier, kind = _model(model, network, prior)
    samples = _samples(source, kind, labeled=True, max_broken=max_broken)
    said, truth = Said(classifier), list[int]()
    known = {name: i for i, name in enumerate(said.names)}
    for block in _counted(samples):
        _check_known(block.labels, known, source)
        truth += [known[str(label)] for label in block.labels]
        said.add(block)
    _check_any(said, source)
    labels = np.array(truth)
    measured = metrics.evaluate(said.probabilities, labels, classifier.labeled_counts_)
    bins = metrics.reliability(said.probabilities.max(1), said.predicted == labels)
    _tell_left_out(samples)
    _print(said.names, classifier.labeled_counts_, measured)
    if out is not None:
        named = {"classes": said.names, "samples": len(labels), **measured, "reliability": bins}
        _write(out, lambda: json.dumps(named, indent=1) + "\n")
        typer.echo(f"Written: {out}")
    if html is not None:
        from cissl.model_page import evaluation_page

        title, about = f"Evaluation: {source.name}", f"{model} on {source}"
        counts = classifier.labeled_counts_.tolist()
        page = evaluation_page(
            title, about, said.names, counts, measured, bins, said.least(), said.mistakes(labels.tolist())
        )
        _write(html, lambda: page)
        typer.echo(f"Written: {html}")


def export(
    model: Model,
    onnx: Annotated[Path, typer.Option(help="Where to write the model with its preprocessing.")],
    network: NetworkAgain = None,
) -> None:
    """Write the model as one ONNX file that runs without cissl and without torch."""
    from cissl.model_folder import load
    from cissl.onnx_export import export as write

    classifier = load(model, network)
    described = write(classifier, onnx)
    typer.echo(f"Written: {onnx}")
    for line in described:
        typer.echo(f"  {line}")


# ---- The model and its samples


def _model(folder: Path, network: str | None, prior: str | None) -> tuple["CISSLClassifier", dict[str, Any]]:
    from cissl import model_folder

    classifier = model_folder.load(folder, network)
    if prior is not None:
        classifier.set_params(prior=_prior(prior, classifier.classes_.tolist()))
        classifier._shift()  # a mistake in it is reported before anything is read
    return classifier, model_folder.read(folder)["reading"]


def _prior(text: str, classes: list[Any]) -> Any:
    if text == "uniform":
        return text
    by_name = {str(name): name for name in classes}
    prior = {}
    for part in text.split(","):
        name, _, share = part.rpartition("=")
        try:
            prior[by_name.get(name.strip(), name.strip())] = float(share)
        except ValueError:  # also where there is no "="
            raise ValueError(f'--prior takes "uniform" or shares such as "cat=0.9,dog=0.1", got {text!r}') from None
    return prior


def _samples(source: Path, kind: dict[str, Any], labeled: bool, max_broken: int) -> "Samples":
    from cissl.own_data import Samples

    if not source.exists():
        raise ValueError(f"there is no {source}: give the samples to predict, in the form of those of training")
    return Samples(source, kind, labeled, max_broken)


def _counted(samples: "Samples") -> Iterator["Block"]:
    """The blocks, with a line or a bar of how far it is where that takes long."""
    total = None if samples.listing is None else len(samples.listing)
    with _reading(total) as tell:
        done = 0
        for block in samples:
            yield block
            done += len(block.names)
            tell(done)


@contextmanager
def _reading(total: int | None) -> Iterator[Callable[[int], object]]:
    if total is None or not sys.stderr.isatty():
        last = 0

        def line(done: int) -> None:
            nonlocal last
            if total is not None and done // EVERY > last // EVERY:
                typer.echo(f"{done:,} of {total:,} images", err=True)
            last = done

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("images"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


class Said:
    """What the model says of all samples; of the least certain it keeps the samples too, to show them."""

    def __init__(self, classifier: "CISSLClassifier") -> None:
        self.classifier = classifier
        self.names = [str(name) for name in classifier.classes_.tolist()]
        self.samples: list[str] = []
        self._parts: list[Any] = []
        self._labels: list[str | None] = []
        self._kept: dict[str, list[tuple[float, int, Any]]] = {"least": [], "mistakes": []}

    def add(self, block: "Block") -> None:
        import warnings

        with warnings.catch_warnings():  # columns were found by their names already
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            said = self.classifier.predict_proba(block.x)
        start = len(self.samples)
        self.samples += block.names
        self._labels += block.labels
        self._parts.append(said)
        for i, row in enumerate(said):
            sure = float(row.max())
            self._keep("least", -sure, start + i, block.x[i])
            label = block.labels[i]
            if label is not None and self.names[int(row.argmax())] != label:
                self._keep("mistakes", sure, start + i, block.x[i])

    def _keep(self, kind: str, value: float, place: int, x: Any) -> None:
        """The highest values."""
        kept = self._kept[kind]
        if len(kept) < SHOWN:
            heapq.heappush(kept, (value, -place, x.copy()))
        elif (value, -place) > kept[0][:2]:
            heapq.heapreplace(kept, (value, -place, x.copy()))

    @property
    def probabilities(self) -> Any:
        import numpy as np

        return np.concatenate(self._parts) if self._parts else np.zeros((0, len(self.names)))

    @property
    def predicted(self) -> Any:
        return self.probabilities.argmax(1)

    def least(self) -> list["Shown"]:
        return self._shown("least", [None] * len(self.samples))

    def mistakes(self, labels: Sequence[int]) -> list["Shown"]:
        return self._shown("mistakes", [self.names[label] for label in labels])

    def _shown(self, kind: str, labels: Sequence[str | None]) -> list["Shown"]:
        from cissl.model_page import Shown

        shown, probabilities = [], self.probabilities
        for _, place, x in sorted(self._kept[kind], key=lambda kept: (-kept[0], -kept[1])):
            row = probabilities[-place]
            first, second = (int(c) for c in (-row).argsort(kind="stable")[:2])
            label = labels[-place] if kind == "mistakes" else self._labels[-place]
            pixels = x if x.ndim == 3 and x.dtype == "uint8" and x.shape[-1] in (1, 3) else None
            shown.append(
                Shown(
                    self.samples[-place], self.names[first], float(row[first]), self.names[second],
                    float(row[second]), label, pixels,
                )
            )  # fmt: skip
        return shown


def _check_known(labels: Sequence[str | None], known: dict[str, int], source: Path) -> None:
    from cissl.names import unknown

    for label in labels:
        if label not in known:
            raise unknown(f"class in {source}, the model has none named", label, known)


def _check_any(said: Said, source: Path) -> None:
    if not said.samples:
        raise ValueError(f"there is no sample in {source} that can be used: see what was left out, or give another")


def _tell_left_out(samples: "Samples") -> None:
    for remark in samples.remarks:
        typer.echo(f"note: {remark}", err=True)
    for name, reason in samples.broken.items():
        typer.echo(f"note: cannot be read, left out: {name}: {reason}", err=True)


# ---- What is written and printed


def _table_of(said: Said, name_column: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name_column, "label", *(f"probability_{name}" for name in said.names)])
    for name, row in zip(said.samples, said.probabilities, strict=True):
        writer.writerow([name, said.names[int(row.argmax())], *(f"{share:.6f}" for share in row)])
    return text.getvalue()


def _write(path: Path, made: Callable[[], str]) -> None:
    from cissl import records

    if path.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file to write")
    content = made().encode("utf-8", "surrogateescape" if os.name == "posix" else "replace")
    with records.readable_errors(path.parent):
        records.write_whole(path, lambda file: file.write(content))


def _print(names: Sequence[str], labeled_counts: Any, measured: dict[str, Any]) -> None:
    from cissl.model_page import percent

    confusion = measured["confusion"]
    width = max(map(len, ("class", *names)))
    typer.echo(f"{'class'.ljust(width)}{'labels':>9}{'samples':>9}{'recall':>10}{'precision':>11}{'F1':>9}")
    for c in sorted(range(len(names)), key=lambda c: (-labeled_counts[c], c)):
        recall, precision, f1 = (percent(measured[key][c]) for key in ("recall", "precision", "f1"))
        numbers = f"{labeled_counts[c]:>9,}{sum(confusion[c]):>9,}{recall:>10}{precision:>11}{f1:>9}"
        typer.echo(names[c].ljust(width) + numbers)
    told = [("error", "error"), ("balanced error", "balanced_error"), ("rarest class, error", "minor_error")]
    for text, key in [*told, ("macro F1", "macro_f1"), ("calibration error", "calibration_error")]:
        typer.echo(f"{text:<20}{percent(measured[key]):>8}")
    if len(names) <= WIDEST:
        typer.echo("\nConfusion: rows are what a sample is, columns what the model says")
        cell = max(6, *(len(name) + 2 for name in names)) if max(map(len, names)) <= 12 else 6
        typer.echo(" " * width + "".join(f"{name[: cell - 2]:>{cell}}" for name in names))
        for name, row in zip(names, confusion, strict=True):
            typer.echo(name.ljust(width) + "".join(f"{count:>{cell}}" for count in row))
