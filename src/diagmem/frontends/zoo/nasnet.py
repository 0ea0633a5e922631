"""NASNet-A (mobile), in the style of TF-Slim: cells found by search, each fed by the two cells before it."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.frontends.zoo.builder import VALID, Builder, plane, scaled
from diagmem.model.graph import DType, Graph, Tensor

STEM_CHANNELS = 32
CHANNELS = 44
"""Channels of a branch in the first cells; they double at each reduction."""


def nasnet(
    name: str,
    cells: int = 4,
    width: float = 1.0,
    resolution: int = 224,
    dtype: DType = DType.FLOAT32,
    classes: int = 1001,
) -> Graph:
    """`cells`: how many normal cells between reductions."""
    b = Builder(name, dtype)
    stem = b.conv(b.input(1, resolution, resolution, 3), scaled(STEM_CHANNELS, width), 3, 2, VALID)
    first = _reduction(_Cell(b, scaled(CHANNELS // 4, width)), None, stem)
    before, x = first, _reduction(_Cell(b, scaled(CHANNELS // 2, width)), stem, first)
    for stage in range(3):
        cell = _Cell(b, scaled(CHANNELS * 2**stage, width))
        if stage > 0:
            before, x = x, _reduction(cell, before, x)
        for _ in range(cells):
            before, x = x, _normal(cell, before, x)
    x = b.mean(b.relu(x), keep_dims=False)
    return b.graph(b.softmax(b.fully_connected(x, classes)))


@dataclass(frozen=True, slots=True)
class _Cell:
    """What the branches of one cell share."""

    b: Builder
    channels: int

    def squeezed(self, x: Tensor) -> Tensor:
        return self.b.conv(self.b.relu(x), self.channels, 1)

    def separable(self, x: Tensor, kernel: int, stride: int = 1) -> Tensor:
        """Two depthwise separable convolutions; the first may halve the image."""
        x = self.b.relu(x)
        for step in (stride, 1):
            x = self.b.conv(self.b.depthwise(x, kernel, step), self.channels, 1)
        return x

    def fitted(self, before: Tensor | None, x: Tensor) -> Tensor:
        """The output of the cell before the last, brought to the size of x and to this cell's channels."""
        if before is None:
            return x
        if plane(before) != plane(x):
            return self.halved(before)
        return before if before.shape[-1] == self.channels else self.squeezed(before)

    def halved(self, x: Tensor) -> Tensor:
        """Every other pixel, once from (0, 0) and once from (1, 1), each making half of the channels."""
        active = self.b.relu(x)
        even = self.b.conv(self.b.average_pool(active, 1, 2, VALID), self.channels // 2, 1)
        shifted = self.b.crop_first(self.b.pad(active, 0, 1))
        odd = self.b.conv(self.b.average_pool(shifted, 1, 2, VALID), self.channels - self.channels // 2, 1)
        return self.b.scale_and_shift(self.b.concat(even, odd))


def _normal(cell: _Cell, before: Tensor, x: Tensor) -> Tensor:
    b = cell.b
    p = cell.fitted(before, x)
    h = cell.squeezed(x)
    return b.concat(
        p,
        b.add(cell.separable(h, 5), cell.separable(p, 3)),
        b.add(cell.separable(p, 5), cell.separable(p, 3)),
        b.add(b.average_pool(h, 3), p),
        b.add(b.average_pool(p, 3), b.average_pool(p, 3)),
        b.add(cell.separable(h, 3), h),
    )


def _reduction(cell: _Cell, before: Tensor | None, x: Tensor) -> Tensor:
    b = cell.b
    p = cell.fitted(before, x)
    h = cell.squeezed(x)
    first = b.add(cell.separable(h, 5, 2), cell.separable(p, 7, 2))
    second = b.add(b.max_pool(h, 3, 2), cell.separable(p, 7, 2))
    third = b.add(b.average_pool(h, 3, 2), cell.separable(p, 5, 2))
    fourth = b.add(second, b.average_pool(first, 3))
    fifth = b.add(cell.separable(first, 3), b.max_pool(h, 3, 2))
    return b.concat(second, third, fourth, fifth)
