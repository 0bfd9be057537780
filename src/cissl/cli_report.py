"""`cissl report`: what there is to see of a study, in every form."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from cissl.cli_run import Out, StudyName, find

PICTURES = ("png", "svg", "pdf")


def report(
    study: StudyName,
    out: Out = None,
    format: Annotated[
        Literal["html", "csv", "markdown", "latex"] | None,
        typer.Option(help="Only this, printed; html is written to report.html.", show_default="all that there is"),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write --format to this file.", metavar="FILE")] = None,
    figures: Annotated[
        str, typer.Option(help="Formats of the figures, separated by commas: png, svg, pdf.", metavar="FORMATS")
    ] = "png,svg",
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The method that the others are compared with, seed by seed.",
            show_default="mean-teacher, else supervised",
            metavar="METHOD",
        ),
    ] = None,
) -> None:
    """The report of a study, as far as it is done: report.html, tables, statistics and figures.

    Beside the tables on the terminal it writes report.html, one file to open in a browser, results.csv, statistics.csv
    and the figures into the study's folder.
    """
    folder, pictures = find(study, out), _formats(figures)
    if format is None:
        if to is not None:
            raise ValueError("--to is the file for one --format: give --format html, csv, markdown or latex with it")
        show(folder, None, baseline, pictures)
        return
    from cissl.records import readable_errors
    from cissl.report import text, write_text

    made, skipped = text(folder, format, baseline=baseline)
    for line in skipped:
        typer.echo(line, err=True)
    if to is None and format != "html":
        typer.echo(made, nl=not made.endswith("\n"))
        return
    path = to or folder / "report.html"
    with readable_errors(path.parent):
        typer.echo(f"Written: {write_text(made, path)}", err=True)


def show(
    folder: Path, only: list[str] | None, baseline: str | None = None, pictures: Sequence[str] = PICTURES[:2]
) -> None:
    """Print and write what there is to see of a study."""
    from rich.console import Console

    from cissl.records import readable_errors
    from cissl.report import write_report

    with readable_errors(folder):
        written = write_report(folder, Console(), only, baseline=baseline, pictures=pictures)
    typer.echo("Written:")
    for path in written:
        typer.echo(f"  {path}")


def _formats(text: str) -> list[str]:
    from cissl.names import unknown

    formats = [part.strip().lower() for part in text.split(",")]
    for name in formats:
        if name not in PICTURES:
            raise unknown("format of figures", name, PICTURES)
    return list(dict.fromkeys(formats))
