"""Scales, ticks and figures for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diagmem.reports.svg import line, text

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
