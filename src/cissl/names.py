"""Errors for names that do not exist: they say which ones do, the nearest first."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(kind: str, name: object, valid: Iterable[str]) -> ValueError:
    """`unknown("method", "mean-techer", METHODS)` says: did you mean 'mean-teacher'?"""
    choices = list(valid)
    lower = {choice.lower(): choice for choice in choices}
    nearest = get_close_matches(str(name).lower(), lower, n=1, cutoff=0.4)
    hint = f": did you mean {lower[nearest[0]]!r}?" if nearest else "."
    return ValueError(f"unknown {kind} {name!r}{hint} Choose from: {', '.join(choices) or 'none'}")
