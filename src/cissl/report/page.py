"""report.html: one file with the tables, the statistics, the charts' data, and what ran. It opens without a network."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from typing import Any

import cissl
from cissl.report import charts, comparing, layout, names
from cissl.report.comparing import Against
from cissl.report.layout import Cell, Comparison, Grid, compare, grids
from cissl.report.results import Group, Study

# How far ours is from the paper's mean, in its standard deviations; the last is everything beyond.
BINS = ((1.0, "near", "within 1 standard deviation of the paper"), (2.0, "off", "within 2"), (3.0, "far", "within 3"))
FOLDED_FROM = 30  # rows of a table that few will read to the end
BEYOND = ("wide", "further off")
MORE = {  # metrics that have a table of their own, folded
    "balanced_error": "Balanced error: the mean over classes",
    "minor_error": "Error of the rarest class",
    "tail_error": "Error of the rarest third of the classes",
    "minor_ap": "Average precision of the rare classes",
}


def page(study: Study, groups: Sequence[Group], skipped: Sequence[str] = (), baseline: str | None = None) -> str:
    """The whole file as text."""
    comparison = compare(groups, study.name)
    rows = comparing.against(comparison, comparing.baseline_of(comparison, baseline))
    parts = {
        "title": escape(layout.title(study.name, study.title)),
        "lead": f"<code>{escape(study.command)}</code>" if study.command else "",
        "standing": _standing(study, groups),
        "tables": _tables(comparison, groups) if groups else '<p class="nothing">No finished run yet.</p>',
        "statistics": _statistics(rows),
        "ran": _ran(groups, skipped),
        "version": escape(cissl.__version__),
        "css": _resource("page.css"),
        "js": _resource("page.js"),
        # No "</script>" inside: a "<" in JSON may be written as an escape.
        "data": json.dumps(charts.data(comparison), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return resources.files("cissl.report").joinpath("page", name).read_text(encoding="utf-8")


def _standing(study: Study, groups: Sequence[Group]) -> str:
    statuses = Counter(result.status for group in groups for result in group.results)
    total = max(len(study.runs), statuses.total())
    seeds = layout.count_seeds(groups)
    facts = [("", f"{statuses['done']} of {total} runs done"), ("", f"{seeds} seed{'s' if seeds != 1 else ''}")]
    facts += [("bad", f"{statuses[status]} {status}") for status in ("diverged", "failed") if statuses[status]]
    if waiting := total - statuses["done"] - statuses["diverged"] - statuses["failed"]:
        facts.append(("bad", f"{waiting} not done yet"))
    items = "".join(
        f'<li class="{kind}">{escape(text)}</li>' if kind else f"<li>{escape(text)}</li>" for kind, text in facts
    )
    return f'<ul class="facts">{items}</ul>'


# ---- Tables


def _tables(comparison: Comparison, groups: Sequence[Group]) -> str:
    made = grids(comparison)
    legend = _legend(made, comparison, groups)
    html = [f"<figure>{''.join(_table(grid) for grid in made)}<figcaption>{legend}</figcaption></figure>"]
    shown = {metric for group in groups for metric in (group.classes.values() if not comparison.fields else ["error"])}
    more = [(metric, text, "student") for metric, text in MORE.items() if metric not in shown]
    more.append((groups[0].classes["all"], f"{layout.metric_name(groups)} of the teacher", "teacher"))
    for metric, text, network in more:
        others = grids(comparison, metric, network)
        if any(
            cell is not None and cell.ours.mean is not None for grid in others for row in grid.cells for cell in row
        ):
            tables = "".join(_table(grid) for grid in others)
            html.append(f"<details><summary>{escape(text)}</summary>{tables}</details>")
    return "\n".join(html)


def _table(grid: Grid) -> str:
    edges = _edges(grid)
    body = []
    for label, row in zip(grid.rows, grid.cells, strict=True):
        heads = "".join(f'<th scope="row">{escape(text)}</th>' for text in label) or '<th scope="row">all</th>'
        cells = "".join(_cell(cell, edge) for cell, edge in zip(row, edges, strict=True))
        body.append(f"<tr>{heads}{cells}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(names.dataset_name(grid.dataset))}</caption>'
        f"<thead>{_head(grid, edges)}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _edges(grid: Grid) -> list[bool]:
    """Where a new kind of unlabeled data begins."""
    tops = [column[0] for column in grid.columns]
    nested = len(grid.columns[0]) > 1 if grid.columns else False
    return [nested and (i == 0 or tops[i] != tops[i - 1]) for i in range(len(tops))]


def _head(grid: Grid, edges: Sequence[bool]) -> str:
    depth = len(grid.columns[0]) if grid.columns else 1
    corner = "".join(f'<th class="left" rowspan="{depth}" scope="col">{escape(head)}</th>' for head in grid.heads)
    lines = []
    for level in range(depth):
        cells = []
        if level < depth - 1:
            for text, places in groupby(grid.columns, key=lambda column: column[: level + 1]):
                cells.append(f'<th class="edge" scope="colgroup" colspan="{len(list(places))}">{escape(text[-1])}</th>')
        else:
            for column, edge in zip(grid.columns, edges, strict=True):
                cells.append(f'<th scope="col"{_edge(edge)}>{escape(column[level])}</th>')
        lines.append(f"<tr>{corner if level == 0 else ''}{''.join(cells)}</tr>")
    return "".join(lines)


def _edge(edge: bool) -> str:
    return ' class="edge"' if edge else ""


def _cell(cell: Cell | None, edge: bool) -> str:
    if cell is None:
        return f"<td{_edge(edge)}>–</td>"
    number = escape(_number(*cell.ours))
    html = f'<span class="{cell.mark}">{number}</span>' if cell.mark else number
    if cell.paper is not None:
        html += f'<span class="paper">{escape(_number(*cell.paper))} {_chip(cell)}</span>'
    if cell.seeds:
        html += f'<span class="seeds">{escape(cell.seeds)}</span>'
    return f"<td{_edge(edge)}>{html}</td>"


def _chip(cell: Cell) -> str:
    """The difference to the paper, coloured by how many of its standard deviations it is."""
    if cell.difference is None:
        return ""
    off = cell.deviations_off
    told = "the paper gives no deviation" if off is None else f"{abs(off):.1f} standard deviations of the paper"
    return f'<span class="chip {bin_of(off)}" title="{told}">{comparing.signed(cell.difference)}</span>'


def bin_of(off: float | None) -> str:
    if off is None:
        return ""
    return next((name for limit, name, _ in BINS if abs(off) <= limit), BEYOND[0])


def _number(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "–"
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"


def _legend(made: Sequence[Grid], comparison: Comparison, groups: Sequence[Group]) -> str:
    cells = [cell for grid in made for row in grid.cells for cell in row if cell is not None]
    parts = [f"<p>{escape(layout.caption(groups, comparison.study))}</p>"]
    marks = [
        (mark, text) for mark, text in (("best", "best"), ("second", "second best")) if mark in {c.mark for c in cells}
    ]
    items = [
        f'<span><span class="{mark}">{text}</span> of its {layout.marked_along(comparison)}</span>'
        for mark, text in marks
    ]
    if any(cell.paper for cell in cells):
        parts.append("<p>Second line: the paper, and the difference of ours to it.</p>")
        chips = [(name, text) for _, name, text in BINS] + [BEYOND, ("", "no deviation in the paper")]
        items += [f'<span><span class="chip {name}">±</span> {text}</span>' for name, text in chips]
    return "".join(parts) + (f'<p class="legend">{"".join(items)}</p>' if items else "")


# ---- Statistics, and what ran


def _statistics(rows: Sequence[Against]) -> str:
    if not rows:
        return ""
    heads = "".join(
        f'<th scope="col"{" class=left" if i < 2 else ""}>{escape(text)}</th>'
        for i, text in enumerate(comparing.headings(rows))
    )
    body, before = [], None
    for row, line in zip(rows, comparing.shown(rows), strict=True):
        sure = row.paired.p_t is not None and row.paired.p_t < 0.05
        numbers = [f"<strong>{escape(line[2])}</strong>" if sure else escape(line[2]), *map(escape, line[3:])]
        cells = "".join(f"<td>{text}</td>" for text in numbers)
        setting = escape("" if line[0] == before else line[0])
        body.append(f'<tr><th scope="row">{setting}</th><td class="left">{escape(line[1])}</td>{cells}</tr>')
        before = line[0]
    table = f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
    if len(rows) > FOLDED_FROM:
        table = f"<details><summary>All {len(rows)} comparisons</summary>{table}</details>"
    return (
        f'<section id="statistics"><h2>{escape(comparing.title(rows))}</h2><figure>{table}'
        f"<figcaption>{escape(comparing.caption(rows))} Bold: p &lt; 0.05.</figcaption></figure></section>"
    )


def _ran(groups: Sequence[Group], skipped: Sequence[str]) -> str:
    results = [result for group in groups for result in group.results]
    records = [result.record for result in results if result.record]
    machines = Counter((str(r.get("hardware", "unknown")), _versions(r.get("versions"))) for r in records)
    parts = [_plain_table(("Hardware", "Versions", "Runs"), ((*what, str(n)) for what, n in machines.items()), text=2)]
    spent = []
    for method in sorted({group.method for group in groups}, key=names.method_order):
        of_method = [result for group in groups if group.method == method for result in group.results]
        seconds = [float(result.record["seconds"]) for result in of_method if "seconds" in result.record]
        if seconds:
            middle = f"{statistics.median(seconds):.1f}"
            spent.append((names.method_name(method), str(len(seconds)), middle, f"{sum(seconds):.0f}"))
    if spent:
        parts.append(_plain_table(("Method", "Runs", "Seconds, median", "Seconds, all"), spent, text=0))
    ended = [(r.status, _what(r.run), _reason(r)) for r in results if r.status in ("diverged", "failed")]
    if ended:
        parts.append(f"<h3>Runs without a result</h3>{_plain_table(('', 'Run', 'Reason'), ended, text=3)}")
    if skipped:
        items = "".join(f"<li>{escape(line)}</li>" for line in skipped)
        parts.append(f"<h3>Folders that could not be read</h3><ul>{items}</ul>")
    every = [
        (r.folder.name, _what(r.run), r.status, str(r.run.get("steps", "")), str(r.record.get("seconds", "")))
        for r in results
    ]
    if every:
        table = _plain_table(("Folder", "Run", "Status", "Steps", "Seconds"), every, text=2)
        parts.append(f"<details><summary>All {len(every)} runs</summary>{table}</details>")
    return "\n".join(part for part in parts if part)


def _plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]], text: int) -> str:
    """The first `text` columns are words, and may wrap."""
    lines = [
        "".join(
            f'<td class="{"text" if i < text else "left" if i == 0 else ""}">{escape(cell)}</td>'
            for i, cell in enumerate(row)
        )
        for row in rows
    ]
    if not lines:
        return ""
    head = "".join(
        f'<th scope="col" class="{"left" if i < max(text, 1) else ""}">{escape(h)}</th>' for i, h in enumerate(heads)
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _versions(versions: Any) -> str:
    return (
        ", ".join(f"{name} {version}" for name, version in versions.items())
        if isinstance(versions, dict)
        else "unknown"
    )


def _what(run: dict[str, Any]) -> str:
    parts = [names.dataset_name(str(run["dataset"])), names.method_name(str(run["method"]))]
    parts += [names.value_name(field, run[field]) for field in names.FIELDS if field in run]
    return ", ".join([*parts, f"seed {run['seed']}"])


def _reason(result: Any) -> str:
    return f"at step {result.diverged_at}" if result.status == "diverged" else str(result.reason).partition("\n")[0]
