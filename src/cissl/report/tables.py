"""Table 1 of the paper: the error of all classes, of the major and of the minor one, per toy set and method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group as Renderables
from rich.table import Table
from rich.text import Text

from cissl.report import names
from cissl.report.results import CLASSES, Group, variants

TITLES = {"toy": "Table 1. Toy sets", "fashion": "Fashion-MNIST: few, very imbalanced labels"}
MEASURED = {"toy": "student after the last iteration"}
PAPER_STEPS = {"toy": 5000}
AT_BEST = "student at its best validation"
LABEL_WIDTH, CELL_WIDTH = 11, 17  # of a terminal column with its padding, "* 24.39 ± 15.14" being the longest cell
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """One cell as text: ours, the paper's, and what is to be said about the seeds ("" when all finished)."""

    ours: str
    paper: str
    seeds: str
    best: bool


Column = tuple[str, str]  # method, variant
Rows = dict[tuple[str, str], dict[Column, Cell]]  # (dataset, classes) -> cells


def error_table(groups: Sequence[Group], width: int = 80, study: str = "toy") -> Renderables:
    """The table for a terminal of `width` columns; methods that do not fit beside each other go below."""
    columns, rows = _layout(groups, study)
    label_width = max([LABEL_WIDTH, *(len(names.dataset_name(group.dataset)) + 2 for group in groups)])
    per_table = max(1, (width - label_width) // CELL_WIDTH)
    tables = [_table(columns[i : i + per_table], rows) for i in range(0, len(columns), per_table)]
    if not tables:
        return Renderables(Text("No finished run yet."))
    blocks = [block for table in tables for block in (table, Text())]
    caption = f"{caption_text(groups, study)} Second line of a cell: the paper. *: lowest of its row."
    return Renderables(Text(TITLES.get(study, study), style="bold"), *blocks, Text(caption, style="dim"))


def error_markdown(groups: Sequence[Group], study: str = "toy") -> str:
    """The same table as Markdown, the paper's figure in brackets, the lowest of a row in bold."""
    columns, rows = _layout(groups, study)
    if not columns:
        return "No finished run yet.\n"
    lines = [
        f"| Data set | Classes | {' | '.join(_heading(column) for column in columns)} |",
        f"| --- | --- |{' ---: |' * len(columns)}",
    ]
    for (dataset, classes), cells in rows.items():
        texts = [_markdown(cells.get(column)) for column in columns]
        lines.append(f"| {names.dataset_name(dataset)} | {classes} | {' | '.join(texts)} |")
    caption = f"{caption_text(groups, study)} In brackets: the paper. Bold: lowest of its row."
    return "\n".join([*lines, "", caption, ""])


def caption_text(groups: Sequence[Group], study: str = "toy") -> str:
    """What the numbers are. The count of seeds is named when it is the same everywhere."""
    planned = count_seeds(groups)
    seeds = "the seeds that finished"
    if all(group.count("done") == planned for group in groups):
        seeds = f"{planned} seed{'s' if planned > 1 else ''}"
    steps = {int(group.run["steps"]) for group in groups if "steps" in group.run} - {PAPER_STEPS.get(study)}
    caption = f"Error in %, mean ± std (ddof 1) over {seeds}, {MEASURED.get(study, AT_BEST)}."
    if steps and study in PAPER_STEPS:
        caption += f" Trained for {', '.join(map(str, sorted(steps)))} steps, the paper for {PAPER_STEPS[study]}."
    return caption


def count_seeds(groups: Sequence[Group]) -> int:
    """How many seeds the study has: all that any of its methods was given."""
    return len({result.seed for group in groups for result in group.results})


def seeds_text(group: Group, planned: int) -> str:
    """Such as "4 of 5 seeds, 1 diverged"; "" when every seed that the study has finished."""
    done = group.count("done")
    if done == planned:
        return ""
    counts = {status: group.count(status) for status in ("diverged", "unfinished")}
    counts["missing"] = planned - len(group.results)
    return ", ".join([f"{done} of {planned} seeds", *(f"{n} {status}" for status, n in counts.items() if n)])


def _layout(groups: Sequence[Group], study: str) -> tuple[list[Column], Rows]:
    """Groups of every data set and method as columns and rows, in their order."""
    settings = variants(groups, ("dataset", "method"))
    columns = sorted(
        {(group.method, variant) for group, variant in zip(groups, settings, strict=True)},
        key=lambda column: (names.method_order(column[0]), column[1]),
    )
    rows: Rows = {}
    for dataset in dict.fromkeys(group.dataset for group in groups):
        mine = {(g.method, v): g for g, v in zip(groups, settings, strict=True) if g.dataset == dataset}
        for classes, metric in CLASSES.items():
            rows[dataset, classes] = _row(mine, classes, metric, count_seeds(groups), study)
    return columns, rows


def _row(groups: dict[Column, Group], classes: str, metric: str, planned: int, study: str) -> dict[Column, Cell]:
    summaries = {column: group.percent(metric) for column, group in groups.items()}
    # Compared as shown: two that read the same are both the lowest.
    means = {column: round(s.mean, 2) for column, s in summaries.items() if s.mean is not None}
    lowest = min(means.values(), default=None) if len(means) > 1 else None
    cells = {}
    for column, group in groups.items():
        paper = group.paper(study, classes)
        cells[column] = Cell(
            ours=_number(*summaries[column]),
            paper=_number(*paper) if paper else MISSING,
            seeds=seeds_text(group, planned),
            best=lowest is not None and means.get(column) == lowest,
        )
    return cells


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return MISSING
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:5.2f}"


def _heading(column: Column) -> str:
    method, variant = column
    return f"{names.method_name(method)} ({variant})" if variant else names.method_name(method)


def _table(columns: Sequence[Column], rows: Rows) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(_heading(column), justify="right")
    previous = None
    for (dataset, classes), cells in rows.items():
        if dataset != previous:
            if previous is not None:
                table.add_section()
            table.add_row(Text(names.dataset_name(dataset), style="bold"))
            previous = dataset
        table.add_row(f"{classes}\n[dim]  paper[/dim]", *(_terminal(cells.get(column)) for column in columns))
    return table


def _terminal(cell: Cell | None) -> Text:
    if cell is None:
        return Text(MISSING)
    text = Text("* " if cell.best else "", style="bold green" if cell.best else "")
    text.append(cell.ours)
    text.append(f"\n{cell.paper}", style="not bold dim default")
    if cell.seeds:
        text.append("\n" + cell.seeds.replace(", ", "\n"), style="not bold yellow")
    return text


def _markdown(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    # The terminal's padding of a short deviation is for columns of equal letters only.
    ours, paper = (" ".join(text.split()) for text in (cell.ours, cell.paper))
    text = f"**{ours}**" if cell.best else ours
    text += f" ({paper})" if paper != MISSING else ""
    return f"{text}, {cell.seeds}" if cell.seeds else text
