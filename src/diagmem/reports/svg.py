"""SVG as text. Whatever comes from a model is escaped here, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element. `class_` stands for class, `data_step` for data-step; attributes that are None are left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{plain(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>" if children else f"<{name}{given}/>"


def plain(text: str) -> str:
    """Text that means nothing but itself, inside an element or a quoted attribute."""
    return escape(_NOT_XML.sub("\ufffd", text), quote=True)


def text(x: float, y: float, content: str, class_: str | None = None, **attributes: object) -> str:
    return tag("text", plain(content), x=x, y=y, class_=class_, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return tag("path", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str | None = None, **attributes: object) -> str:
    return tag("rect", x=x, y=y, width=max(0.0, width), height=max(0.0, height), class_=class_, **attributes)


def path(points: Iterable[tuple[float, float]], close: bool = False) -> str:
    """The `d` of a path through the points."""
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f"M{steps}{'Z' if close else ''}"


def number(value: float) -> str:
    """At most two decimals: a hundredth of a pixel is enough."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


def _value(value: object) -> str:
    return number(value) if isinstance(value, (int, float)) else str(value)


def text_width(content: str, size_px: float = 12) -> float:
    """About how wide the text will be: fonts differ, so leave room."""
    return 0.56 * size_px * len(content)


def clipped(content: str, width: float, size_px: float = 12) -> str:
    """As much of the text as fits into the width; nothing if that would be too little to recognise."""
    room = int(width / (0.56 * size_px))
    if len(content) <= room:
        return content
    return content[: room - 1] + "…" if room >= 5 else ""
