"""The README says what is true: its code runs and prints what is shown, and the commands that it names exist."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from cissl.cli import app
from cissl.recipes.toy import METHODS
from cissl.report.paper import lookup

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = r"\d+\.\d+|\d+"
# Each Python block is followed by what it prints.
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n+^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
INSTALL = re.search(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[1]
COMMANDS = re.findall(r"`((?:cissl|make|python) [^`]+)`", README) + INSTALL.splitlines()


def test_the_readme_shows_the_output_of_every_python_block():
    assert len(EXAMPLES) == README.count("```python") >= 2


@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
def test_python_blocks_print_what_is_shown(code, shown):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert re.sub(NUMBER, "#", printed.getvalue()) == re.sub(NUMBER, "#", shown)
    mine, theirs = ([float(number) for number in re.findall(NUMBER, text)] for text in (printed.getvalue(), shown))
    # Other processors round differently, and a thousand steps magnify it: percentages may be 3 points apart.
    assert mine == pytest.approx(theirs, abs=3 if "%" in shown else 1e-4)


def test_suppressed_consistency_has_the_lowest_errors_shown():
    *others, last = [[float(n) for n in re.findall(NUMBER, line)] for line in EXAMPLES[0][1].splitlines()]
    assert all(mine < theirs for other in others for mine, theirs in zip(last, other, strict=True))


def test_the_first_screen():
    lines = README.splitlines()
    assert any("make toy" in line for line in lines[:25])
    assert any("pip install -c constraints.txt ." in line for line in lines[:25])
    assert len(EXAMPLES[0][0].splitlines()) <= 13
    assert README.index("```python") < README.index("![") < README.index("Table 1. Toy sets") < README.index("## Just")


def test_commands_exist():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(COMMANDS) >= 10
    for command in COMMANDS:
        program, *words = shlex.split(command, comments=True)
        if program == "make":
            assert words[0] in targets
        elif program == "python":
            assert (ROOT / words[0]).is_file()
        else:
            check_cissl(get_command(app), words)


def check_cissl(command, words):
    """Every word is a subcommand, an option or a value that the command line takes."""
    while words and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context("cissl", words):
        pass


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) >= 6
    for link in links:
        assert (ROOT / link).is_file(), link


def test_the_figure_is_small():
    assert (ROOT / "docs" / "images" / "figure1.png").stat().st_size < 400_000


def test_the_paper_s_figures_in_table_1_are_the_published_ones():
    table = re.search(r"^Table 1\..*?^Error in %", README, re.DOTALL | re.MULTILINE)[0]
    rows = re.findall(r"^(all|major|minor) .*\n  paper +(.*)$", table, re.MULTILINE)
    assert [classes for classes, _ in rows] == ["all", "major", "minor"] * 2
    for place, (classes, paper) in enumerate(rows):
        dataset, labels = ("two-moons", 12) if place < 3 else ("four-spins", 11)
        cells = re.findall(r"([\d.]+) ± +([\d.]+)", paper)
        published = [lookup("toy", dataset, method, "ce", "same", 5, labels, classes) for method in METHODS]
        assert [(float(mean), float(std)) for mean, std in cells] == published
