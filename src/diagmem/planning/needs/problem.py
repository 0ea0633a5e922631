"""The placement problem: buffers with lifetimes, and how far apart each pair must start.

Find offsets such that for each pair that lives at once, B starts at least separation(A, B) above A, or A at least
separation(B, A) above B; make the highest end as low as possible. Overlap, in-place reuse and plain disjointness are
all that one number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import IntArray

BEFORE_RUN = -1
"""The step at which the caller fills the graph's inputs. The caller reads its outputs at step len(schedule)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that live during the steps [first_step, end_step). `tensors`: those that use it; none for what an op needs
    beside its tensors: scratch, or sums. `rows`: which rows of its tensor it holds; None: all. `weights_of`: the op
    whose weights are copied to it."""

    name: str
    size_bytes: int
    first_step: int
    end_step: int
    align_bytes: int = 1
    tensors: tuple[int, ...] = ()
    scratch_of: int | None = None
    rows: range | None = None
    weights_of: int | None = None

    @property
    def steps(self) -> range:
        return range(self.first_step, self.end_step)

    def lives_with(self, other: Buffer) -> bool:
        return self.first_step < other.end_step and other.first_step < self.end_step


def live_sum(first: npt.ArrayLike, end: npt.ArrayLike, size_bytes: npt.ArrayLike, steps: int) -> IntArray:
    """For each step of a run, the bytes of all that live then: each from its first step to its end."""
    change = np.zeros(steps + 1, dtype=np.int64)
    np.add.at(change, np.clip(np.asarray(first, dtype=np.int64), 0, steps), size_bytes)
    np.subtract.at(change, np.clip(np.asarray(end, dtype=np.int64), 0, steps), size_bytes)
    live: IntArray = np.cumsum(change[:-1])
    return live


def live_bytes(buffers: Collection[Buffer], steps: int) -> tuple[int, ...]:
    """For each step the bytes of the buffers that live then, each counted whole."""
    spans = ([b.first_step for b in buffers], [b.end_step for b in buffers])
    return tuple(live_sum(*spans, [b.size_bytes for b in buffers], steps).tolist())


Neighbour = tuple[int, int, int]
"""(index, below, above): buffer `index` lives while another one, B, does. B must not start in the open interval from
`below` bytes under the neighbour's start to `above` bytes over it."""


class Near(NamedTuple):
    """Buffer b has the neighbours `near[q]` for q in [near_from[b], near_from[b + 1]), and must not start in the open
    interval from `below[q]` under such a neighbour's start to `above[q]` over it."""

    near_from: IntArray
    near: IntArray
    below: IntArray
    above: IntArray


@dataclass(frozen=True)
class Problem:
    """`overlaps[a, b]`: separation(a below, b above) in bytes where it is less than the size of a.

    `unit_bytes`: all alignments, and so all offsets and the arena's size, are multiples of it. `pressure`: for each
    step a lower bound in bytes for any placement; `lower_bound_bytes` is their maximum. `pins`: buffers that must
    start at an offset.
    """

    buffers: tuple[Buffer, ...]
    overlaps: Mapping[tuple[int, int], int]
    unit_bytes: int = 1
    pressure: tuple[int, ...] = ()
    lower_bound_bytes: int = 0
    pins: Mapping[int, int] = field(default_factory=dict)

    def separation(self, below: int, above: int) -> int:
        """Bytes from the start of `below` to that of `above`, at the least, in whole units."""
        apart = self.overlaps.get((below, above), self.buffers[below].size_bytes)
        return -(-apart // self.unit_bytes) * self.unit_bytes

    def neighbours(self, buffer: int) -> tuple[Neighbour, ...]:
        """The others that restrict where a buffer may start. Put together when first asked for: of some problems there
        are millions."""
        found = self._neighbours[buffer]
        if found is None:
            begin, end = self.near.near_from[buffer : buffer + 2].tolist()
            columns = (column[begin:end].tolist() for column in self.near[1:])
            found = self._neighbours[buffer] = tuple(zip(*columns, strict=True))
        return found

    @cached_property
    def _neighbours(self) -> list[tuple[Neighbour, ...] | None]:
        return [None] * len(self.buffers)

    @cached_property
    def near(self) -> Near:
        """`neighbours` as arrays: there may be a million of them."""
        count = len(self.buffers)
        a, b = self._pairs()
        sizes = np.array([buffer.size_bytes for buffer in self.buffers], dtype=np.int64)
        up, down = sizes[a], sizes[b]
        if self.overlaps and len(a):
            keys = np.array([below * count + above for below, above in self.overlaps], dtype=np.int64)
            values, order = np.array(list(self.overlaps.values()), dtype=np.int64), np.argsort(keys)
            keys, values = keys[order], values[order]
            for pair, apart in ((a * count + b, up), (b * count + a, down)):
                at = np.minimum(np.searchsorted(keys, pair), len(keys) - 1)
                apart[:] = np.where(keys[at] == pair, values[at], apart)
        unit = self.unit_bytes
        up, down = -(-up // unit) * unit, -(-down // unit) * unit
        matter = up + down > 0
        a, b, up, down = a[matter], b[matter], up[matter], down[matter]
        own, other = np.concatenate((a, b)), np.concatenate((b, a))
        order = np.argsort(own * count + other)
        begins = np.concatenate(([0], np.cumsum(np.bincount(own, minlength=count)))).astype(np.int64)
        return Near(begins, other[order], np.concatenate((up, down))[order], np.concatenate((down, up))[order])

    def _pairs(self) -> tuple[IntArray, IntArray]:
        """Pairs that live at once: each once, the one that begins first before the other."""
        first = np.array([buffer.first_step for buffer in self.buffers], dtype=np.int64)
        end = np.array([buffer.end_step for buffer in self.buffers], dtype=np.int64)
        by_start = np.argsort(first, kind="stable")
        found: list[IntArray] = []
        live: IntArray = by_start[:0]
        for b in by_start.tolist():
            live = live[end[live] > first[b]]
            found.append(live if end[b] > first[b] else live[:0])
            live = np.append(live, b)
        if not found:
            return by_start, by_start
        return np.concatenate(found), np.repeat(by_start, [len(alive) for alive in found])

    def part(self, members: Iterable[int]) -> Problem:
        """The problem that some of the buffers are among themselves. It keeps the lower bound of the whole, which may
        be above what they need, but not above what the whole needs."""
        kept = sorted(members)
        number = {buffer: n for n, buffer in enumerate(kept)}
        overlaps = {(number[a], number[b]): v for (a, b), v in self.overlaps.items() if a in number and b in number}
        pins = {number[b]: at for b, at in self.pins.items() if b in number}
        return replace(self, buffers=tuple(self.buffers[b] for b in kept), overlaps=overlaps, pins=pins)

    def arena_bytes(self, offsets: Sequence[int]) -> int:
        """The highest end of all buffers, in whole units."""
        end = max(map(add, offsets, self._sizes), default=0)
        return -(-end // self.unit_bytes) * self.unit_bytes

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(buffer.size_bytes for buffer in self.buffers)

    def is_met_by(self, offsets: Sequence[int]) -> bool:
        """Whether the offsets keep every separation and alignment."""
        aligned = all(o >= 0 and o % b.align_bytes == 0 for o, b in zip(offsets, self.buffers, strict=True))
        return aligned and all(
            offsets[index] - offsets[b] >= below or offsets[b] - offsets[index] >= above
            for b in range(len(self.buffers))
            for index, below, above in self.neighbours(b)
        )


class Gap(NamedTuple):
    """The size found and the proven lower bound. The optimum lies between the two."""

    found_bytes: int
    bound_bytes: int

    @property
    def bytes(self) -> int:
        """Above the best, at the most; 0: proven."""
        return max(0, self.found_bytes - self.bound_bytes)

    @property
    def is_closed(self) -> bool:
        """Proven: nothing is smaller."""
        return not self.bytes

    @property
    def words(self) -> str:
        """With the share of the bound, rounded up: it says at most."""
        if self.is_closed:
            return "proven optimal"
        tenths = -(-1000 * self.bytes // self.bound_bytes) if self.bound_bytes else 0
        share = f" ({tenths / 10:.1f} %)" if tenths else ""
        return f"at most {self.bytes:,} byte{'s' * (self.bytes > 1)}{share} above the optimum"
