"""Pages that stand alone: template, style sheet, script and data in one file, and nothing from anywhere else. And
documents of sections with tables and figures, as such a page and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from diagmem import __version__
from diagmem.model.errors import one_line
from diagmem.reports.drawing import DARK, HATCH, LIGHT, Drawing, kb, rules, variables

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, scripts: Sequence[str] = (), **values: Any) -> str:
    """The page `name`: page/NAME.html.j2 with page/NAME.css, and page/SCRIPT.js for each of the scripts.

    Every value is escaped unless the template says `|safe`, which it may only for drawings and for JSON from `as_json`.
    The scripts are allowed by their digest, so nothing that a model's names smuggle in could run.
    """
    script = "\n".join(_text(f"{part}.js") for part in scripts)
    digest = f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
    return filled(
        f"{name}.html",
        **values,
        version=__version__,
        style=_style(name),
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{digest}'",
        hatch=HATCH,
    )


def filled(name: str, **values: Any) -> str:
    """page/NAME.j2 with these values; they are escaped in HTML."""
    return _environment().get_template(f"{name}.j2").render(**values)


def _is_page(name: str | None) -> bool:
    return name is None or name.endswith(".html.j2")


@cache
def _environment() -> Environment:
    # Used by few commands, and slow to import.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=_is_page,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(json=as_json, kb=kb, plain=_plain, wrapped=_wrapped, row=_markdown_row, escaped=_escaped)
    environment.filters["count"] = lambda value: "" if value is None else f"{value:,}"
    return environment


def as_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _style(name: str) -> str:
    light, dark = variables(LIGHT), variables(DARK)
    return "\n".join(
        (
            f":root {{ color-scheme: light dark; {light}}}",
            f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme=light]) {{ {dark}}} }}",
            f":root[data-theme=dark] {{ color-scheme: dark; {dark}}}",
            ":root[data-theme=light] { color-scheme: light; }",
            f"@media print {{ :root:root:root {{ color-scheme: light; {light}}} }}",
            rules(),
            _text("page.css"),
            _text(f"{name}.css"),
        )
    )


def _text(name: str) -> str:
    """A file of page/; empty if there is none."""
    path = files(__package__) / "page" / name
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _plain(text: str) -> str:
    """Markdown's marks for code and stress taken away."""
    return text.replace("`", "").replace("*", "")


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


FIGURES = "figures"
"""The directory of the figures, beside the document."""


def page(document: Document) -> str:
    """One HTML file, its figures inside."""
    return render("paper", document=document)


def markdown(document: Document) -> str:
    """Figures are referred to as files in `figures/`."""
    return filled("paper.md", document=document, folder=FIGURES).rstrip() + "\n"


def _wrapped(text: str) -> str:
    indent = "   " if text[:1].isdigit() else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _escaped(text: str) -> str:
    """Text that Markdown takes for nothing but text."""
    return escape("".join(f"\\{c}" if c in "\\`*_{}[]#+!|~" else c for c in one_line(text)))
