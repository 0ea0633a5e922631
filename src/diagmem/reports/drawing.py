"""Drawings: SVG elements, the style sheet, axes with ticks, and the finished picture as SVG or PNG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from importlib.util import find_spec

from diagmem.model.errors import DiagmemError, install_command
from diagmem.model.tables import table

PIXELS = 2.0
"""In a PNG, for each one of the drawing."""

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


def legend(
    x: float, y: float, entries: Iterable[tuple[str, str]], gap: float = 18, right: float = math.inf
) -> Iterator[str]:
    """What colours mean, by their class, side by side; wrapped at `right`."""
    left = x
    for class_, words in entries:
        width = 24 + text_width(words, 11)
        if x + width > right:
            x, y = left, y + 18
        yield rect(x, y - 10, 18, 12, class_)
        yield text(x + 24, y, words, "small soft")
        x += width + gap


def text_width(content: str, size_px: float = 12) -> float:
    """About how wide the text will be: fonts differ, so leave room."""
    return 0.56 * size_px * len(content)


def clipped(content: str, width: float, size_px: float = 12) -> str:
    """As much of the text as fits into the width; nothing if that would be too little to recognise."""
    room = int(width / (0.56 * size_px))
    if len(content) <= room:
        return content
    return content[: room - 1] + "…" if room >= 5 else ""


LIGHT, DARK = ({name: pair[theme] for name, pair in table(__package__, "colours").items()} for theme in (0, 1))
"""Colours by name."""


@cache
def rules() -> str:
    """The style sheet of all figures, its colours as variables."""
    return (files(__package__) / "page" / "figures.css").read_text(encoding="utf-8")


def style(theme: str) -> str:
    """The style sheet with colours in place of variables, for a picture that stands alone. `auto` follows the reader's
    setting, in a browser; elsewhere it is light."""
    if theme == "auto":
        return f"{_coloured(LIGHT)}@media (prefers-color-scheme: dark) {{\n{_coloured(DARK)}}}\n"
    return _coloured({"light": LIGHT, "dark": DARK}[theme])


def variables(colours: Mapping[str, str]) -> str:
    """Declarations for a page that carries figures."""
    return "".join(f"--{name}: {colour}; " for name, colour in colours.items())


def _coloured(colours: Mapping[str, str]) -> str:
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colours[match[1]], rules())


KB = 1024


def kb(size_bytes: float) -> str:
    """`64.0 KB`, `12 B`; KB is 1024 bytes, as in the paper."""
    return f"{size_bytes:g} B" if abs(size_bytes) < KB else f"{size_bytes / KB:.1f} KB"


def short_kb(size_bytes: float) -> str:
    """The same without `.0` where that is exact."""
    return f"{size_bytes // KB:g} KB" if size_bytes >= KB and size_bytes % KB == 0 else kb(size_bytes)


def byte_ticks(limit: int, most: int) -> list[float]:
    """0, and even steps of whole KB, or of bytes where there are few; at most so many."""
    return ticks(limit, most, unit=KB if limit >= 2 * KB else 1)


def ticks(limit: float, most: int, unit: float = 1) -> list[float]:
    """0, and even round steps up to the limit, at most so many."""
    if limit <= 0:
        return [0]
    rough = max(1.0, limit / unit / max(1, most))
    base = 10.0 ** math.floor(math.log10(rough))
    step = unit * next(base * m for m in (1, 2, 4, 5, 8, 10) if base * m >= rough)
    return [n * step for n in range(int(limit // step) + 1)]


@dataclass(frozen=True, slots=True)
class Axes:
    """A chart from (0, 0) at the lower left to (x_limit, y_limit), on a sheet with y downwards."""

    left: float
    top: float
    width: float
    height: float
    x_limit: float
    y_limit: float

    def x(self, value: float) -> float:
        return self.left + self.width * value / max(1e-9, self.x_limit)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - value / max(1e-9, self.y_limit))

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.left + self.width

    def at(self, point: tuple[float, float]) -> tuple[float, float]:
        return self.x(point[0]), self.y(point[1])

    def frame(
        self,
        x_label: str,
        y_label: str,
        x_words: Callable[[float], str] = "{:g}".format,
        y_words: Callable[[float], str] = "{:g}".format,
        y_unit: float = 1,
        x_unit: float = 1,
    ) -> Iterator[str]:
        """Grid, ticks and labels."""
        for tick in ticks(self.y_limit, int(self.height // 40), y_unit):
            yield line(self.left, self.y(tick), self.right, self.y(tick), "grid")
            yield text(self.left - 6, self.y(tick) + 4, y_words(tick), "small soft end")
        for tick in ticks(self.x_limit, int(self.width // 64), x_unit):
            yield line(self.x(tick), self.bottom, self.x(tick), self.bottom + 4, "axis")
            yield text(self.x(tick), self.bottom + 17, x_words(tick), "small soft mid")
        yield line(self.left, self.bottom, self.right, self.bottom, "axis")
        yield line(self.left, self.top, self.left, self.bottom, "axis")
        yield text((self.left + self.right) / 2, self.bottom + 34, x_label, "small mid")
        x, y = self.left - 52, (self.top + self.bottom) / 2
        yield text(x, y, y_label, "small mid", transform=f"rotate(-90 {x:g} {y:g})")


HATCH = (files(__package__) / "page" / "hatch.svg").read_text(encoding="utf-8").strip()
"""What marks shared addresses; a page that carries drawings needs it once."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """`body`: SVG elements on a sheet of width x height pixels. `title` says in words what they show."""

    width: float
    height: float
    body: str
    title: str

    def svg(self, theme: str = "auto") -> str:
        """A file of its own; `theme` is auto, light or dark."""
        background = rect(0, 0, self.width, self.height, "paper")
        css = tag("style", style(theme))
        attributes = {"xmlns": "http://www.w3.org/2000/svg", "width": self.width, "height": self.height}
        return self._element(css + HATCH + background, **attributes) + "\n"

    def inline(self) -> str:
        """An element for a page that has the style sheet and the hatching."""
        return self._element("", width=self.width, height=self.height)

    def png(self, theme: str = "light") -> bytes:
        try:
            import resvg_py
        except ImportError:
            raise DiagmemError(f"PNG needs resvg_py: {install_command('plot')} (SVG needs nothing)") from None
        return bytes(resvg_py.svg_to_bytes(svg_string=self.svg("light" if theme == "auto" else theme), zoom=PIXELS))

    def files(self, name: str, with_png: bool = True) -> dict[str, bytes]:
        """NAME.svg, and NAME.png and NAME-dark.png where the extra that makes pixels is installed."""
        found = {f"{name}.svg": self.svg().encode()}
        if with_png and find_spec("resvg_py"):
            found |= {f"{name}.png": self.png("light"), f"{name}-dark.png": self.png("dark")}
        return found

    def _element(self, before: str, **attributes: object) -> str:
        return tag(
            "svg",
            tag("title", plain(self.title)),
            before,
            self.body,
            **attributes,
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            class_="figure",
            role="img",
        )
