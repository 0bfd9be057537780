"""Studies that users write: a TOML file with a grid over the fields of a run, or a Python file with a function."""

import importlib.util
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cissl.names import unknown
from cissl.recipes.grids import grid
from cissl.run import Description, Run

Study = Callable[..., Sequence[Description]]
OURS = ("title", "seeds", "grids")  # the keys of a file that are no fields of a run
FUNCTION = "study"


def is_file(name: str) -> bool:
    return re.search(r"\.(toml|py)(:\w+)?$", name) is not None


def name_of(given: str) -> str:
    """my-study.toml is the study my-study; of my_study.py:other it is my_study-other."""
    path, function = _parts(given)
    return Path(path).stem + (f"-{function}" if function else "")


def load(given: str) -> tuple[Study, str]:
    """What makes the study's runs, and its title."""
    name, function = _parts(given)
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give the path of a study's .toml or .py file")
    if path.suffix == ".toml":
        return from_toml(path)
    return from_python(path, function or FUNCTION, asked=bool(function))


def _parts(given: str) -> tuple[str, str]:
    """The path, and the function named behind it."""
    named = re.fullmatch(r"(.+\.py):(\w+)", given)
    return (named[1], named[2]) if named else (given, "")


# ---- TOML


def from_toml(path: Path) -> tuple[Study, str]:
    """Fields of a run at the top, a list being the values it takes; tables of [[grids]] change some of them."""
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no valid TOML: {error}") from error
    grids = content.get("grids", [{}])
    if not isinstance(grids, list) or not all(isinstance(table, dict) for table in grids) or not grids:
        raise ValueError(f"{_place(path, text, 'grids')}: write each grid as a table of its own, under [[grids]]")
    for table in (content, *grids):
        for key in table:
            if key not in Run.model_fields and (table is not content or key not in OURS):
                valid = [*Run.model_fields, *(OURS if table is content else ())]
                raise ValueError(f"{_place(path, text, key)}: {unknown('key', key, valid)}")
    common = {key: value for key, value in content.items() if key not in OURS}
    how_many = content.get("seeds", 5)
    if type(how_many) is not int or how_many < 1:
        raise ValueError(f"{_place(path, text, 'seeds')}: seeds is how many, from 0; to say which, write seed = [3, 4]")

    def study(methods: Sequence[str] | None = None, seeds: int | None = None, **fields: Any) -> list[Run]:
        runs: list[Run] = []
        for table in grids:
            row = {**common, **table, **fields}
            which = row.pop("seed", range(how_many))
            which = [which] if isinstance(which, int) else list(which)
            try:
                runs += grid(seeds or which, methods, **row)
            except ValueError as error:
                raise ValueError(f"{_blamed(path, text, row, str(error))}: {error}") from None
        return list(dict.fromkeys(runs))

    return study, str(content.get("title", path.stem))


def _place(path: Path, text: str, key: str) -> str:
    """The file and the line where a key stands."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*(=|\.|\])", line):
            return f"{path}, line {number}"
    return str(path)


def _blamed(path: Path, text: str, row: dict[str, Any], complaint: str) -> str:
    """The line of the key that a complaint about the run is about: the one it names, or whose value it repeats."""
    options = row.get("options")
    keys = [*row, *(options if isinstance(options, dict) else ())]
    values = {**row, **(options if isinstance(options, dict) else {})}
    for key in keys:
        if re.search(rf"\b{re.escape(key)}\b", complaint):
            return _place(path, text, key)
    for key in keys:
        listed = values[key] if isinstance(values[key], list) else [values[key]]
        if any(repr(value) in complaint for value in listed):
            return _place(path, text, key)
    return str(path)


# ---- Python


def from_python(path: Path, function: str, asked: bool) -> tuple[Study, str]:
    """The function of that name in the file; it returns runs, and takes what it likes of methods, seeds and fields."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))  # for what it imports, and for networks of its own
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        line = f", line {where.tb_lineno}" if where is not None else ""
        raise ValueError(f"{path}{line}: {type(error).__name__}: {error}") from error
    found = {name: value for name, value in vars(module).items() if inspect.isfunction(value)}
    mine = [name for name, value in found.items() if value.__module__ == path.stem and not name.startswith("_")]
    if function not in mine:
        if asked or len(mine) != 1:
            raise ValueError(f"{path}: {unknown('function', function, mine)}; name one as {path}:FUNCTION")
        function = mine[0]
    made = found[function]
    takes = inspect.signature(made).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())

    def study(**asked_for: Any) -> Sequence[Description]:
        given = {name: value for name, value in asked_for.items() if value is not None}
        for name in given:
            if name not in takes and not anything:
                raise ValueError(
                    f"{path}: {function}({', '.join(takes)}) takes no {name}: add it there, or leave it out"
                )
        runs = made(**given)
        if not isinstance(runs, list | tuple) or not runs or not all(isinstance(run, Description) for run in runs):
            raise ValueError(f"{path}: {function} should return a list of cissl.Run, at least one, got {runs!r:.100}")
        return list(dict.fromkeys(runs))

    return study, (inspect.getdoc(made) or path.stem).splitlines()[0]
