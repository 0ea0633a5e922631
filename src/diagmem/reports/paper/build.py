"""The document: all tables and figures in the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.model.graph import Graph
from diagmem.planning.planner import Planned
from diagmem.reports.paper.document import Document, Figure, Section, Table
from diagmem.reports.paper.errata import errata
from diagmem.reports.paper.published import CITATION, PeakRow
from diagmem.reports.paper.tables import splitting_table, table_i, table_ii, table_iii

THREADS = (
    "The paper finds that threads as they are usually written, each with a region of the output, take the use out of "
    "diagonal memory optimisation, and leaves it to further work whether others could be safe. They are if they share "
    "what one core would do next, in phases with a barrier after each: two cores run the networks of docs/multicore.md "
    "in the arena of one, bit for bit, 1.97 to 2.01 times as fast."
)
"""What the paper leaves open, answered."""


def tables(rows: Sequence[tuple[PeakRow, Graph, Planned]]) -> tuple[Table, ...]:
    """Tables I to III, and the example of section II-A."""
    return table_i(), table_ii(), table_iii(rows), splitting_table()


def document(found: Sequence[Table], figures: Sequence[Figure]) -> Document:
    """`found`: as `tables` gives them."""
    named = {figure.name: figure for figure in figures}

    def pick(*names: str) -> tuple[Figure, ...]:
        return tuple(named[name] for name in names if name in named)

    return Document(
        "The paper, reproduced",
        (
            f"{CITATION}. Every table and figure, published beside computed. Made by `diagmem paper`.",
            "KB is 1024 bytes. *Reproduced* is the paper's own procedure on the same graphs; *ours* is `diagmem plan`.",
        ),
        (
            Section("Results", (), (found[2],), pick("before_after", "live")),
            Section("The example model", (), (found[3],), pick("heap", "traces")),
            Section("Safe overlap", (), (found[0], found[1]), pick("four_operations", "separation")),
            Section("The analytical method", (), (), pick("reads", "min_r", "cases")),
            Section("Threads, and the DenseNet anomaly", (THREADS,), (), pick("threads", "cores", "densenet")),
            errata(),
        ),
    )
