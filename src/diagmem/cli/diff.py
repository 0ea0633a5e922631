"""`diagmem diff`: what a change does to RAM, flash and work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from diagmem.cli._commands import command_of
from diagmem.cli._options import check_none_given
from diagmem.cli._show import ANSWER_IS_NO, Column, Table, number, show
from diagmem.cli._work import working

if TYPE_CHECKING:
    from diagmem.planning.options import Options
    from diagmem.reports.difference import Difference, Growth


@command_of("diff")
def command(
    before: str,
    after: str,
    core: str | None,
    is_markdown: bool,
    max_growth: str | None,
    json_path: str | None,
    options: Options,
) -> None:
    from diagmem import pipeline
    from diagmem.reports.difference import Growth, markdown

    if before.endswith(".json") and after.endswith(".json"):
        check_none_given("plans already contain their options")
    most = None if max_growth is None else Growth.parsed(max_growth)
    with working("planning both"):
        found = pipeline.diff(before, after, on=core, options=options)
    grown = found.grown(most) if most else []
    judged = {"max_growth": most.text, "grown": grown} if most else {}
    lines = markdown(found).splitlines() if is_markdown else _tables(found)
    status = ANSWER_IS_NO if grown else 0
    show(json_path, lambda: {**found.to_json(), **judged}, (*lines, *_verdict(grown, most)), status=status)


def _verdict(grown: Sequence[str], most: Growth | None) -> Iterator[str]:
    from diagmem.reports.difference import FIGURES

    if most is not None:
        yield ""
        names = ", ".join(FIGURES[figure][1] for figure in grown)
        yield f"grown by more than {most.text}: {names}" if grown else f"nothing has grown by more than {most.text}"


def _tables(found: Difference) -> Iterator[str | Table]:
    from diagmem.reports.difference import FIGURES, OP_FIGURES, change_text, index_text

    headings = (Column(""), number("before"), number("after"), number("change"))
    sums = [
        (FIGURES[figure][1], *("" if v is None else f"{v:,}" for v in (old, new)), change_text(old, new))
        for figure, old, new in found.figures()
    ]
    yield Table(headings, sums)
    if not found.changed:
        return
    yield ""
    shown, rows = found.op_figures, []
    for pair in found.changed:
        cells = [index_text(pair), pair.known.kind]
        for old, new in pair.values(shown):
            value = old if new is None else new
            cells += ["" if value is None else f"{value:,}", change_text(old, new)]
        rows.append(cells)
    figures = [number(text, rank) for rank, figure in enumerate(shown) for text in (OP_FIGURES[figure], "change")]
    yield Table((Column(f"{len(found.changed)} of {len(found.ops)} ops"), Column("kind", 1), *figures), rows)
