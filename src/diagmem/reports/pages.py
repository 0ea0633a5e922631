"""Pages that stand alone: template, style sheet, script and data in one file, and nothing from anywhere else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from diagmem.reports.drawing import DARK, HATCH, LIGHT, kb, rules, variables

if TYPE_CHECKING:
    from jinja2 import Environment


def render(name: str, scripts: Sequence[str] = (), **values: Any) -> str:
    """The page `name`: page/NAME.html.j2 with page/NAME.css, and page/SCRIPT.js for each of the scripts.

    Every value is escaped unless the template says `|safe`, which it may only for drawings and for JSON from `as_json`.
    The scripts are allowed by their digest, so nothing that a model's names smuggle in could run.
    """
    script = "\n".join(_text(f"{part}.js") for part in scripts)
    return (
        _environment()
        .get_template(f"{name}.html.j2")
        .render(
            **values,
            style=_style(name),
            script=script,
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{_digest(script)}'",
            hatch=HATCH,
        )
    )


@cache
def _environment() -> Environment:
    # Used by few commands, and slow to import.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(json=as_json, kb=kb, count="{:,}".format, plain=_plain)
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


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _plain(text: str) -> str:
    """Markdown's marks for code and stress taken away."""
    return text.replace("`", "").replace("*", "")
