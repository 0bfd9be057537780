"""Names: of what is there, with errors that offer the nearest, and of what is a user's own, `module:attribute`."""

import importlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any


def unknown(kind: str, name: object, valid: Iterable[str]) -> ValueError:
    """`unknown("method", "mean-techer", METHODS)` says: did you mean 'mean-teacher'?"""
    choices = list(valid)
    lower = {choice.lower(): choice for choice in choices}
    nearest = get_close_matches(str(name).lower(), lower, n=1, cutoff=0.4)
    hint = f": did you mean {lower[nearest[0]]!r}?" if nearest else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Choose from: {', '.join(choices) or 'none'}")


def is_own(name: str) -> bool:
    """Whether a name says where something of the user's own is, as `module:attribute`."""
    return ":" in name


def imported(kind: str, name: str) -> Callable[..., Any]:
    """The class or function of a user's own that `module:attribute` names."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's file does while it is read
        raise ValueError(
            f"{kind} {name!r}: importing {module_name!r} failed ({type(error).__name__}: {error}); "
            "if it lies in this folder, set PYTHONPATH=."
        ) from error
    made = getattr(module, attribute, None)
    if not callable(made):
        problem = f"is a {type(made).__name__}" if hasattr(module, attribute) else "is not in it"
        raise ValueError(f"{kind} {name!r}: expected a class or function in {module_name!r}, {attribute!r} {problem}")
    return made  # type: ignore[no-any-return]
