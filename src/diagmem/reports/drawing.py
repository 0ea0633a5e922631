"""A finished picture: as SVG that stands alone, as SVG inside a page, as PNG."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from diagmem.model.errors import DiagmemError
from diagmem.reports.style import style
from diagmem.reports.svg import line, plain, rect, tag

HATCH = tag(
    "defs",
    tag(
        "pattern",
        line(0, 0, 0, 6, "hatching"),
        id="hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
        class_="figure",
    ),
)
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

    def png(self, theme: str = "light", scale: float = 2.0) -> bytes:
        """Pixels, `scale` for each one of the drawing."""
        try:
            import resvg_py
        except ImportError:
            raise DiagmemError("PNG needs resvg_py: pip install 'diagmem[plot]' (SVG needs nothing)") from None
        return bytes(resvg_py.svg_to_bytes(svg_string=self.svg("light" if theme == "auto" else theme), zoom=scale))

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
