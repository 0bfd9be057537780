"""A study's tables as text: for the terminal, as Markdown, as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group as Renderables
from rich.table import Table
from rich.text import Text

from cissl.report import comparing, layout, names
from cissl.report.comparing import Against
from cissl.report.layout import Cell, Comparison, Grid, compare, grids
from cissl.report.results import Group

LABEL_WIDTH, CELL_WIDTH = 11, 17  # of a terminal column with its padding, "* 24.39 ± 15.14" being the longest cell
MISSING = "–"
NOTHING = "No finished run yet."
SIGNS = {"best": "* ", "second": "+ "}  # on a terminal
STYLES = {"best": "bold green", "second": "bold blue"}


# ---- The terminal


def terminal(groups: Sequence[Group], width: int = 80, study: str = "toy", described: str = "") -> Renderables:
    """The table for a terminal of `width` columns; columns that do not fit beside each other go below."""
    if not groups:
        return Renderables(Text(NOTHING))
    comparison = compare(groups, study)
    made = grids(comparison)
    blocks: list[Table | Text] = []
    for alike in _alike(made):
        labels = [names.dataset_name(grid.dataset) for grid in alike]
        labels += [_label(row) for grid in alike for row in grid.rows]
        label_width = max([LABEL_WIDTH, *(len(label) + 2 for label in labels)])
        per_table = max(1, (width - label_width) // CELL_WIDTH)
        for i in range(0, len(alike[0].columns), per_table):
            blocks += [_table(alike, range(i, min(i + per_table, len(alike[0].columns)))), Text()]
    text = f"{layout.caption(groups, study)} {_legend(made, comparison, 'Second line of a cell: the paper.', SIGNS)}"
    return Renderables(Text(layout.title(study, described), style="bold"), *blocks, Text(text.strip(), style="dim"))


def terminal_statistics(rows: Sequence[Against]) -> Renderables:
    if not rows:
        return Renderables()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for i, heading in enumerate(comparing.headings(rows)):
        table.add_column(heading, justify="left" if i < 2 else "right", no_wrap=i > 1)
    before = None
    for line in comparing.shown(rows):
        table.add_row("" if line[0] == before else line[0], *line[1:])
        before = line[0]
    caption = Text(comparing.caption(rows), style="dim")
    return Renderables(Text(), Text(comparing.title(rows), style="bold"), table, caption, Text())


def _alike(made: Sequence[Grid]) -> list[list[Grid]]:
    """Grids with the same columns go under one heading."""
    together: dict[tuple[object, object], list[Grid]] = {}
    for grid in made:
        together.setdefault((grid.heads, grid.columns), []).append(grid)
    return list(together.values())


def _table(alike: Sequence[Grid], places: range) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("", no_wrap=True)
    for place in places:
        table.add_column("\n".join(alike[0].columns[place]), justify="right")
    has_paper = any(cell is not None and cell.paper for grid in alike for row in grid.cells for cell in row)
    for i, grid in enumerate(alike):
        if i:
            table.add_section()
        table.add_row(Text(names.dataset_name(grid.dataset), style="bold"))
        for label, row in zip(grid.rows, grid.cells, strict=True):
            second = "\n[dim]  paper[/dim]" if has_paper else ""
            table.add_row(f"{_label(label)}{second}", *(_terminal(row[place], has_paper) for place in places))
    return table


def _label(row: Sequence[str]) -> str:
    return ", ".join(row) or "all"


def _terminal(cell: Cell | None, has_paper: bool) -> Text:
    if cell is None:
        return Text(MISSING)
    style = STYLES.get(cell.mark, "")
    text = Text(SIGNS.get(cell.mark, ""), style=style)
    text.append(_number(*cell.ours))
    if has_paper:
        text.append(f"\n{_number(*cell.paper) if cell.paper else MISSING}", style="not bold dim default")
    if cell.seeds:
        text.append("\n" + cell.seeds.replace(", ", "\n"), style="not bold yellow")
    return text


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return MISSING
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:5.2f}"


def _legend(made: Sequence[Grid], comparison: Comparison, about_paper: str, signs: dict[str, str]) -> str:
    """What the second number and the marks are, as far as the tables have them."""
    cells = [cell for grid in made for row in grid.cells for cell in row if cell is not None]
    marks = {cell.mark for cell in cells}
    best = "highest" if layout.higher_is_better(comparison) else "lowest"
    said = [about_paper] if any(cell.paper for cell in cells) else []
    if "best" in marks:
        said.append(f"{signs['best'].strip()}: {best} of its {layout.marked_along(comparison)}.")
    if "second" in marks:
        said.append(f"{signs['second'].strip()}: second best.")
    return " ".join(said)


# ---- Markdown


def markdown(groups: Sequence[Group], study: str = "toy") -> str:
    """The same as Markdown, the paper's figure in brackets, the best in bold, the second best in italics."""
    if not groups:
        return NOTHING + "\n"
    comparison = compare(groups, study)
    made = grids(comparison)
    lines: list[str] = []
    for alike in _alike(made):
        headings = [" ".join(column) for column in alike[0].columns]
        heads = ("Data set", *alike[0].heads)
        lines += [f"| {' | '.join((*heads, *headings))} |", f"|{' --- |' * len(heads)}{' ---: |' * len(headings)}"]
        for grid in alike:
            for label, row in zip(grid.rows, grid.cells, strict=True):
                texts = [names.dataset_name(grid.dataset), *label, *map(_markdown, row)]
                lines.append(f"| {' | '.join(texts)} |")
        lines.append("")
    signs = {"best": "Bold", "second": "Italics"}
    return "\n".join(
        [*lines, f"{layout.caption(groups, study)} {_legend(made, comparison, 'In brackets: the paper.', signs)}", ""]
    )


def markdown_statistics(rows: Sequence[Against]) -> str:
    if not rows:
        return ""
    headings = comparing.headings(rows)
    lines = [f"| {' | '.join(headings)} |", f"| --- | --- |{' ---: |' * (len(headings) - 2)}"]
    lines += [f"| {' | '.join(line)} |" for line in comparing.shown(rows)]
    return "\n".join([f"{comparing.title(rows)}:", "", *lines, "", comparing.caption(rows), ""])


def _markdown(cell: Cell | None) -> str:
    if cell is None:
        return MISSING
    text = _single(*cell.ours)
    text = {"best": f"**{text}**", "second": f"*{text}*"}.get(cell.mark, text)
    text += f" ({_single(*cell.paper)})" if cell.paper else ""
    return f"{text}, {cell.seeds}" if cell.seeds else text


def _single(mean: float | None, std: float | None) -> str:
    """Without the padding of a short deviation, which is for columns of equal letters only."""
    return " ".join(_number(mean, std).split())


# ---- LaTeX


ESCAPED = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "Π": r"$\Pi$", "ρ": r"$\rho$", "−": "$-$",
    "–": "--", "<": "$<$", ">": "$>$", "…": r"\ldots{}", "γ": r"$\gamma$", "β": r"$\beta$",
}  # fmt: skip


def latex(groups: Sequence[Group], study: str = "toy", described: str = "") -> str:
    r"""Tables for \usepackage{booktabs}: the best in bold, the second best underlined, the paper's in a second line."""
    if not groups:
        return f"% {NOTHING}\n"
    comparison = compare(groups, study)
    made = grids(comparison)
    signs = {"best": "Bold", "second": "Underlined"}
    caption = f"{layout.caption(groups, study)} {_legend(made, comparison, 'Second line: the paper.', signs)}"
    tables = []
    for i, alike in enumerate(_alike(made)):
        body = [_latex_line(["", *[""] * (len(alike[0].heads) - 1), *line]) for line in _heading_lines(alike[0])]
        for grid in alike:
            body += [r"\midrule", _latex_line([names.dataset_name(grid.dataset)], len(grid.columns) + len(grid.heads))]
            for label, row in zip(grid.rows, grid.cells, strict=True):
                body += _latex_row(label, row)
        spec = "l" * len(alike[0].heads) + "r" * len(alike[0].columns)
        text = f"{layout.title(study, described)}. {caption}" if i == 0 else f"{layout.title(study, described)}."
        tables.append(_latex_table(spec, body, text))
    return "% needs \\usepackage{booktabs}\n" + "\n".join(tables)


def latex_statistics(rows: Sequence[Against]) -> str:
    if not rows:
        return ""
    headings = comparing.headings(rows)
    body = [_latex_line(headings), r"\midrule", *(_latex_line(line) for line in comparing.shown(rows))]
    return _latex_table("ll" + "r" * (len(headings) - 2), body, f"{comparing.title(rows)}. {comparing.caption(rows)}")


def _heading_lines(grid: Grid) -> list[list[str]]:
    return [list(line) for line in zip(*grid.columns, strict=True)]


def _latex_row(label: Sequence[str], row: Sequence[Cell | None]) -> list[str]:
    lines = [" & ".join([*map(escaped, label), *map(_latex_cell, row)]) + r" \\"]
    if any(cell is not None and cell.paper for cell in row):
        papers = [escaped(_single(*cell.paper)) if cell is not None and cell.paper else "--" for cell in row]
        lines.append(" & ".join(["\\quad paper", *[""] * (len(label) - 1), *papers]) + r" \\")
    return lines


def _latex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = escaped(_single(*cell.ours))
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark, text)
    return f"{text} ({escaped(cell.seeds)})" if cell.seeds else text


def _latex_line(texts: Sequence[str], width: int = 0) -> str:
    return " & ".join([*map(escaped, texts), *[""] * (width - len(texts))]) + r" \\"


def _latex_table(spec: str, body: Sequence[str], caption: str) -> str:
    inside = "\n".join([r"\toprule", *body, r"\bottomrule"])
    return (
        "\\begin{table}\n\\centering\n"
        f"\\caption{{{escaped(caption)}}}\n\\begin{{tabular}}{{{spec}}}\n{inside}\n\\end{{tabular}}\n\\end{{table}}\n"
    )


def escaped(text: str) -> str:
    return "".join(ESCAPED.get(letter, letter) for letter in text)
