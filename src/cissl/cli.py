"""The command line. Nothing heavy is imported before a command needs it: `cissl --help` answers at once."""

import io
import re
import sys
import warnings
from typing import Annotated

import typer

import cissl
from cissl import cli_data, cli_detect, cli_model, cli_report, cli_run, cli_train

app = typer.Typer(
    help="Class-imbalanced semi-supervised learning: the paper's studies, and training on data of your own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_detect.app, name="detect")


def main() -> None:
    """A user's mistake is one sentence and exit status 2, never a traceback; a warning is one sentence too."""
    for stream in (sys.stdout, sys.stderr):  # a file's name may be no text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = lambda message, category, *_: f"warning: {message}\n"
    try:
        app(prog_name="cissl")
    except (ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"cissl {cissl.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Class-imbalanced semi-supervised learning."""


@app.command("list")
def list_() -> None:
    """What there is to choose from: studies, methods, networks and data sets."""
    from cissl import datasets, methods, networks, protocol, recipes

    typer.echo("Studies (cissl run STUDY), or a .toml or .py file of your own")
    for name, study in recipes.STUDIES.items():
        typer.echo(f"  {name:<18}{cli_run.what(study)}")
    typer.echo("\nMethods (a base and its modifiers, such as vat+em+sntg, or your own as module:Class)")
    for name, base in methods.BASES.items():
        typer.echo(f"  {name:<18}{_first_sentence(base.__doc__)}")
    for name, modifier in methods.MODIFIERS.items():
        typer.echo(f"  +{name:<17}{_first_sentence(modifier.__doc__)}")
    typer.echo(f"  the paper's       {', '.join(methods.PAPER)}")
    typer.echo("\nRe-weighting of the labeled loss")
    typer.echo("  ce none, in inverse frequency, focal, cb class-balanced")
    typer.echo(f"\nUnlabeled data\n  {', '.join(protocol.UNLABELED_TYPES)}")
    typer.echo(f"\nNetworks\n  {', '.join(networks.NAMES)}, or your own as module:callable")
    typer.echo(f"\nData sets (cissl data show NAME)\n  {', '.join(datasets.DATASETS)}, or your own as module:callable")


def _first_sentence(text: str | None) -> str:
    """Of a docstring, without the place in the literature and the name of a modifier, which is printed before it."""
    text = re.sub(r" \([^()]*\d{4}\)", "", " ".join((text or "").split()))
    return re.sub(r"^\+\w+(: |, )", "", text.split(". ")[0].rstrip("."))


app.command()(cli_run.run)
app.command("report")(cli_report.report)
app.command()(cli_run.status)
app.command()(cli_train.train)
app.command()(cli_model.predict)
app.command()(cli_model.evaluate)
app.command()(cli_model.export)


if __name__ == "__main__":
    main()
