"""Results as a notebook shows them: figures, and a row for each operation."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


class ShownAsTable:
    """A result whose JSON has a row for each op under `ops`, and figures beside it."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        figures = self.to_json()
        rows = figures.pop("ops")
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [_row("th", [name.replace("_", " ") for name in names])]
        lines += [_row("td", [row.get(name) for name in names]) for row in rows]
        shown = {
            name.replace("_", " "): value
            for name, value in figures.items()
            if name != "cost" and not isinstance(value, list)
        }
        words = (f"{name}: {_text(value)}" for name, value in shown.items())
        return f"<p>{escape('; '.join(words))}</p>\n<table>\n{chr(10).join(lines)}\n</table>"


def _row(tag: str, cells: list[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_text(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return " → ".join(_text(one) for one in value.values())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
