"""A grid: every combination of the values that fields of a run may take."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cissl.methods import method, named
from cissl.names import unknown
from cissl.run import Run

DEFAULT_METHOD = Run.model_fields["method"].default


def grid(seeds: int | Sequence[int] = 5, methods: Sequence[str] | None = None, **fields: Any) -> list[Run]:
    """A run for every combination; a list is the values that a field takes, `options` may hold lists too.

    `seeds` is how many, or which. An option goes to those methods that have it; one that none has is a mistake. What
    comes out twice is there once: what learns from no unlabeled data is one run for all kinds of it.
    """
    chosen = named(methods if methods is not None else _values(fields.pop("method", DEFAULT_METHOD)))
    fields.pop("method", None)
    options = dict(fields.pop("options", {}))
    check_options(options, chosen)
    runs = [
        Run(**setting, method=name, options=choice, seed=seed)
        for setting in _product(fields)
        for name in chosen
        for choice in _product({option: values for option, values in options.items() if option in method(name).options})
        for seed in _seeds(seeds)
    ]
    return list(dict.fromkeys(runs))


def check_options(options: Mapping[str, Any], methods: Sequence[str]) -> None:
    known = {option: None for name in methods for option in method(name).options}
    for option in options:
        if option not in known:
            raise unknown(f"option of {', '.join(methods)}:", option, known)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    chosen = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen:
        raise ValueError(f"a study needs at least 1 seed, got {seeds}")
    return chosen


def _values(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def _product(fields: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    names, values = list(fields), [_values(value) for value in fields.values()]
    return (dict(zip(names, row, strict=True)) for row in itertools.product(*values))
