"""Pages of documentation, block by block: running what they show, as a reader would, and comparing what it prints."""

import contextlib
import io
import os
import re
import shlex
import sys
import warnings
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from typer.main import get_command

from cissl import cli, study_files

ROOT = Path(__file__).parents[1]
NUMBER = r"\d+\.\d+|\d+"
FENCE = re.compile(r"^( *)```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
MAKE = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
# Programs that a page may name and that are not ours.
OTHERS = {"pip", "cd", "export", "torchrun", "sbatch", "ray"}


class Block(NamedTuple):
    language: str
    title: str  # of a file that the reader writes
    code: str
    shown: str | None  # what it prints: the text block right after it


def blocks(text):
    found = [(match, Block(match[2], match[3] or "", match[4], None)) for match in FENCE.finditer(text)]
    for place, (match, block) in enumerate(found):
        if block.language == "text":
            continue
        after = found[place + 1] if place + 1 < len(found) else None
        shown = after and after[1].language == "text" and not text[match.end() : after[0].start()].strip()
        yield block._replace(shown=after[1].code if shown else None)


class Reader:
    """Somebody who does what a page says, from top to bottom, in a folder of their own."""

    def __init__(self):
        self.names = {"__name__": "page"}

    def does(self, block):
        """What doing it printed, None where there is nothing to compare."""
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
            if block.language == "toml" or "\ndef study(" in block.code:
                assert study_files.load(block.title)[0](), f"{block.title} has no runs"
        if block.language == "python":
            return self.python(block)
        if block.language == "sh":
            return self.shell(block)
        assert block.language in ("toml", "json", "csv", "slurm", "html"), f"nobody knows how to read {block.language}"
        return None

    def follows(self, page):
        for block in blocks(page):
            printed = self.does(block)
            if block.shown is not None:
                assert_same(printed, block.shown)

    def python(self, block):
        code = compile(block.code, block.title or "page.py", "exec")
        if block.title:
            return None  # what follows imports it
        if block.shown is None:  # it only has to run: a few steps are enough
            code = compile(re.sub(r"\bsteps=[\d_]+", "steps=20", block.code), "page.py", "exec")
        with printed() as out:
            exec(code, self.names)
        return out.getvalue()

    def shell(self, block):
        out = ""
        for command in commands(block.code):
            check_command(command)
            if block.shown is not None:
                out += run_command(command)
        return out


def commands(code):
    """The lines of a shell's block, continued ones as one, comments left out."""
    joined = code.replace("\\\n", " ").splitlines()
    return [line.strip() for line in joined if line.strip() and not line.strip().startswith("#")]


def check_command(line):
    """Every word is a program, a subcommand, an option or a value that the command line takes."""
    words = shlex.split(line, comments=True)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, *words = words
    if program == "make":
        assert {word for word in words if "=" not in word} <= set(MAKE), line
    elif program == "python":
        assert (ROOT / words[0]).is_file(), line
    elif program == "cissl":
        check_cissl(get_command(cli.app), words)
    else:
        assert program in OTHERS, line


def check_cissl(command, words):
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    with contextlib.suppress(SystemExit), command.make_context("cissl", words):  # --help and --version end at once
        pass


def check_mention(text):
    """As much of a command as a sentence names: `cissl train --steps`, `cissl report STUDY`."""
    command, words = get_command(cli.app), shlex.split(text)[1:]
    while words and hasattr(command, "commands"):
        if words[0] in ("--help", "--version"):
            return
        assert words[0] in command.commands, text
        command, words = command.commands[words[0]], words[1:]
    options = {name for option in command.params for name in option.opts} | {"--help"}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= options, text


def run_command(line):
    """What `cissl …` prints, told from the page's folder; a mistake ends with status 2."""
    words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    assert words[0] == "cissl", f"only cissl's own commands are run, not {line}"
    environment = {**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        printed() as out,
        mock.patch.object(sys, "argv", words),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(warnings, "formatwarning"),  # main sets its own
        mock.patch.object(warnings, "showwarning", show_warning),  # pytest collects them
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        status = ended()
    assert status in (None, 0) or (status == 2 and "error: " in out.getvalue()), (line, out.getvalue())
    return out.getvalue()


def show_warning(message, category, filename, line, file=None, text=None):
    sys.stderr.write(warnings.formatwarning(message, category, filename, line, text))


def ended():
    try:
        return cli.main()
    except SystemExit as end:
        return end.code


@contextlib.contextmanager
def printed():
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


def assert_same(printed, shown):
    """The same words, however the lines break; numbers as another processor may have them; … stands for anything."""
    found = re.fullmatch(
        r"\s*" + r"\s*.*?\s*".join(_pattern(part) for part in shown.split("…")) + r"\s*", printed, re.DOTALL
    )
    assert found, f"printed:\n{printed}\nshown:\n{shown}"
    mine, theirs = ([float(number) for number in numbers] for numbers in (found.groups(), re.findall(NUMBER, shown)))
    # A thousand steps magnify how a processor rounds: percentages may be 3 points apart.
    assert mine == pytest.approx(theirs, abs=3 if "%" in shown else 1e-4, rel=1e-3)


def _pattern(text):
    words = [
        "".join(f"({NUMBER})" if place % 2 else re.escape(part) for place, part in enumerate(pieces))
        for pieces in (re.split(f"({NUMBER})", word) for word in text.split())
    ]
    return r"\s+".join(words) if words else ""
