"""A document of sections with tables and figures, as Markdown and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diagmem import __version__
from diagmem.reports.drawing import Drawing
from diagmem.reports.pages import render


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; `notes` are numbered from 1, and cells refer to them as [1]. Columns from the second on are
    figures unless `is_text`."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """`name` is that of its file. `drawing` is None where a tool that it needs is missing; the caption then says so."""

    name: str
    caption: str
    drawing: Drawing | None


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    text: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def figures(self) -> Iterator[Figure]:
        return (figure for section in self.sections for figure in section.figures)

    @property
    def tables(self) -> Iterator[Table]:
        return (table for section in self.sections for table in section.tables)


FIGURES = "figures"
"""The directory of the figures, beside the document."""


def page(document: Document) -> str:
    """One HTML file, its figures inside."""
    return render("paper", document=document, version=__version__)


def markdown(document: Document) -> str:
    """Figures are referred to as files in `figures/`."""
    parts = [f"# {document.title}", *map(_wrapped, document.text)]
    for section in document.sections:
        parts += [f"## {section.title}", *map(_wrapped, section.text)]
        for table in section.tables:
            parts += [f"### {table.title}", _markdown_table(table)]
            if table.notes:
                parts.append("\n".join(_wrapped(f"{number}. {note}") for number, note in enumerate(table.notes, 1)))
        for figure in section.figures:
            picture = [f"![{figure.drawing.title}]({FIGURES}/{figure.name}.svg)"] if figure.drawing else []
            parts += [*picture, _wrapped(f"*{figure.caption}*")]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    indent = "   " if text[:1].isdigit() else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _markdown_table(table: Table) -> str:
    rule = ["---"] + ["---" if table.is_text else "---:"] * (len(table.headings) - 1)
    return "\n".join(_markdown_row(row) for row in (table.headings, rule, *table.rows))


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
