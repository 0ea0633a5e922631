"""Colours of the figures, light and dark. Blue, orange, violet and grey of different lightness: told apart in print and
by people with any colour vision."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1a1d21",
    "soft": "#5a6470",
    "grid": "#e4e8ec",
    "row": "#fff3d6",
    "edge": "#41506180",
    "limit": "#b3261e",
    "save": "#00734f",
    "t0": "#8db8e0",
    "t1": "#c2d6ea",
    "t2": "#a7b3c0",
    "t3": "#d8dee5",
    "made": "#c2500a",
    "used": "#f2ab3c",
    "held": "#f9dfb0",
    "state": "#b6a4dd",
    "scratch": "#8a8f98",
    "weights": "#7fb9a4",
    "curve": "#0b63ad",
    "on-block": "#14202c",
    "on-made": "#ffffff",
    "halo": "#ffffff",
}

DARK: Mapping[str, str] = {
    "paper": "#14171b",
    "ink": "#e8eaed",
    "soft": "#9aa4b0",
    "grid": "#2b3138",
    "row": "#3a3216",
    "edge": "#0a0d1180",
    "limit": "#ff8a80",
    "save": "#4fd1a1",
    "t0": "#4a7fb0",
    "t1": "#2f587f",
    "t2": "#66727f",
    "t3": "#454f5a",
    "made": "#e2691c",
    "used": "#f2b552",
    "held": "#7d6436",
    "state": "#6b579c",
    "scratch": "#808791",
    "weights": "#3f7d69",
    "curve": "#6cb6f5",
    "on-block": "#f2f5f8",
    "on-made": "#14171b",
    "halo": "#14171b",
}

THEMES = ("auto", "light", "dark")
"""`auto` follows the reader's setting, in a browser; elsewhere it is light."""


@cache
def rules() -> str:
    """The style sheet of all figures, its colours as variables."""
    return (files(__package__) / "page" / "figures.css").read_text(encoding="utf-8")


def style(theme: str) -> str:
    """The style sheet with colours in place of variables, for a picture that stands alone."""
    if theme == "auto":
        return f"{_coloured(LIGHT)}@media (prefers-color-scheme: dark) {{\n{_coloured(DARK)}}}\n"
    return _coloured({"light": LIGHT, "dark": DARK}[theme])


def variables(colours: Mapping[str, str]) -> str:
    """Declarations for a page that carries figures."""
    return "".join(f"--{name}: {colour}; " for name, colour in colours.items())


def _coloured(colours: Mapping[str, str]) -> str:
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colours[match[1]], rules())
