"""Bytes of the arena, and when they are touched: what the validator compares, pair by pair, in runs.

Elements fall into pieces of neighbours, and a kernel's steps change evenly over cells of elements, so that millions of
bytes are compared in few numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import Tensor
from diagmem.model.views import IntArray, distinct, pieces
from diagmem.ops.accesses import Runs

FAR = 1 << 60
"""Kernel step of what is never written (+) or never read (-)."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Where a tensor's bytes lie: elements [j * piece_elems, (j + 1) * piece_elems) from the address `at[j]` on."""

    at: IntArray
    piece_elems: int
    elem_bytes: int

    @classmethod
    def block(cls, start: int, elems: int, elem_bytes: int) -> Layout:
        """Elements in one piece."""
        return cls(np.array([start] if elems else [], dtype=np.int64), elems, elem_bytes)

    @classmethod
    def of(cls, tensor: Tensor, address: int) -> Layout:
        """A tensor whose first element is at `address`."""
        size = tensor.dtype.size_bytes
        if tensor.is_in_one_piece:
            return cls.block(address, tensor.elems, size)
        found = pieces(tensor.shape, tensor.strides)
        return cls(address + found.starts * size, found.length, size)

    @cached_property
    def order(self) -> IntArray:
        """The pieces by ascending address."""
        return np.argsort(self.at)

    @cached_property
    def starts(self) -> IntArray:
        """Ascending."""
        return self.at[self.order]

    @property
    def piece_bytes(self) -> int:
        return self.piece_elems * self.elem_bytes

    @property
    def elems(self) -> int:
        return len(self.at) * self.piece_elems

    @cached_property
    def low(self) -> int:
        return int(self.at.min()) if self.elems else 0

    @cached_property
    def high(self) -> int:
        return int(self.at.max()) + self.piece_bytes if self.elems else 0

    def find(self, addresses: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The element at each address, and whether there is one."""
        if len(self.at) == 1:
            elements = (addresses - self.at[0]) // self.elem_bytes
            is_inside = (elements >= 0) & (elements < self.elems)
            return np.where(is_inside, elements, 0), is_inside
        piece = np.maximum(np.searchsorted(self.starts, addresses, side="right") - 1, 0)
        within = (addresses - self.starts[piece]) // self.elem_bytes
        is_inside = (within >= 0) & (within < self.piece_elems)
        return np.where(is_inside, self.order[piece] * self.piece_elems + within, 0), is_inside

    def edges(self, cell: int, low: int, high: int) -> IntArray:
        """The addresses in [low, high) where a piece starts or ends, or a cell of so many elements begins."""
        if len(self.at) == 1:
            start, pitch = int(self.at[0]), cell * self.elem_bytes
            first = start + max(0, -(-(low - start) // pitch)) * pitch
            return np.append(np.arange(first, min(high, self.high), pitch, dtype=np.int64), self.high)
        begins = np.arange(0, self.elems, cell, dtype=np.int64)
        cells = self.at[begins // self.piece_elems] + begins % self.piece_elems * self.elem_bytes
        return np.concatenate([self.at, self.at + self.piece_bytes, cells])


@dataclass(frozen=True, slots=True, eq=False)
class Touches:
    """For each element e of a tensor the kernel step of a touch: base[e // cell] + slope * (e % cell)."""

    cell: int
    slope: int
    base: IntArray

    @classmethod
    def whole(cls, elems: int, step: int) -> Touches:
        """All elements at one step."""
        return cls(max(1, elems), 0, np.array([step], dtype=np.int64))

    @classmethod
    def of(cls, runs: Sequence[Runs], elems: int, latest: bool) -> Touches:
        """The last touch of each element, or the first."""
        parts = [_runs_to_touches(r, elems, latest) for r in runs]
        if len(parts) == 1:
            return parts[0]
        pick = np.maximum if latest else np.minimum
        every = np.arange(elems, dtype=np.int64)
        return cls(1, 0, pick.reduce([part.at(every) for part in parts]))

    def at(self, elems: IntArray) -> IntArray:
        return self.base[elems // self.cell] + self.slope * (elems % self.cell)

    def picked(self, groups: IntArray, group_elems: int) -> Touches:
        """Those of some elements only: of group j, elements [j * group_elems, (j + 1) * group_elems)."""
        cell = math.gcd(self.cell, group_elems)
        cells = groups[:, None] * (group_elems // cell) + np.arange(group_elems // cell, dtype=np.int64)
        return Touches(cell, self.slope, self.at(cells.reshape(-1) * cell))


def _runs_to_touches(runs: Runs, elems: int, latest: bool) -> Touches:
    pick: np.ufunc = np.maximum if latest else np.minimum
    never = -FAR if latest else FAR
    if not len(runs.start):
        return Touches.whole(elems, never)
    if (runs.pitch == 1).all() and (runs.stride == runs.stride[0]).all():
        # Runs that move alike are compared cell by cell: for a convolution a cell is a pixel.
        cell = math.gcd(elems, int(np.gcd.reduce(runs.start)), int(np.gcd.reduce(runs.length)))
        slope = int(runs.stride[0])
        cells = Runs(runs.start // cell, runs.length // cell, runs.pitch, runs.step, runs.stride * cell, runs.hold)
    else:
        cell, slope, cells = 1, 0, runs
    index, first, last = cells.touches()
    base = np.full(elems // cell, never, dtype=np.int64)
    pick.at(base, index, last if latest else first)
    return Touches(cell, slope, base)


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """Bytes, and the kernel step that touches each."""

    layout: Layout
    touches: Touches

    def at(self, addresses: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The step at each address, and whether it is one of these bytes."""
        elements, is_inside = self.layout.find(addresses)
        return self.touches.at(elements), is_inside


def clash(value: Layout, read: Touched, written: Touched, in_step: bool) -> int | None:
    """An address of `value` that is read after it was written, None if there is none.

    `in_step`: both happen within one step, so that kernel steps decide (a step reads before it writes); else any byte
    that both touch is lost. Addresses fall into stretches on which both steps change evenly. There, among addresses
    that are equal modulo both element sizes, the difference of the two is largest at an end.
    """
    starts, ends = stretches((value, value.elems or 1), *((t.layout, t.touches.cell) for t in (read, written)))
    lost: list[int] = []
    for phase in range(math.lcm(read.layout.elem_bytes, written.layout.elem_bytes) if len(starts) else 0):
        for at in (np.minimum(starts + phase, ends - 1), np.maximum(ends - 1 - phase, starts)):
            read_step, is_read = read.at(at)
            write_step, is_written = written.at(at)
            late = read_step > write_step if in_step else (read_step > -FAR // 2) & (write_step < FAR // 2)
            lost.extend(at[late & is_read & is_written & value.find(at)[1]][:1].tolist())
    return min(lost, default=None)


def stretches(*layouts: tuple[Layout, int]) -> tuple[IntArray, IntArray]:
    """Starts and ends of the stretches into which layouts, each with the size of its cells, cut the addresses that
    they may have in common."""
    low, high = max(layout.low for layout, _ in layouts), min(layout.high for layout, _ in layouts)
    if low >= high or not all(layout.elems for layout, _ in layouts):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    edges = distinct(np.concatenate([layout.edges(cell, low, high) for layout, cell in layouts]))
    starts = np.append(np.int64(low), edges[(edges > low) & (edges < high)])
    return starts, np.append(starts[1:], high)


def shared_bytes(a: Layout, b: Layout) -> int:
    """How many addresses are in both."""
    if len(a.at) == len(b.at) == 1:
        return max(0, min(a.high, b.high) - max(a.low, b.low))
    starts, ends = stretches((a, a.elems or 1), (b, b.elems or 1))
    if not len(starts):
        return 0
    return int((ends - starts)[a.find(starts)[1] & b.find(starts)[1]].sum())
