"""The placement problem: buffers with lifetimes, and how far apart each pair must start.

Find offsets such that for each pair that lives at once, B starts at least separation(A, B) above A, or A at least
separation(B, A) above B; make the highest end as low as possible. Overlap, in-place reuse and plain disjointness are
all that one number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

BEFORE_RUN = -1
"""The step at which the caller fills the graph's inputs. The caller reads its outputs at step len(schedule)."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that live during the steps [first_step, end_step). `tensors`: those that use it; none for what an op needs
    beside its tensors: scratch, or sums. `rows`: which rows of its tensor it holds; None: all."""

    name: str
    size_bytes: int
    first_step: int
    end_step: int
    align_bytes: int = 1
    tensors: tuple[int, ...] = ()
    scratch_of: int | None = None
    rows: range | None = None

    def lives_with(self, other: Buffer) -> bool:
        return self.first_step < other.end_step and other.first_step < self.end_step


class Neighbour(NamedTuple):
    """`buffer` lives while another one, B, does. B must not start in the open interval from `below` bytes under
    the neighbour's start to `above` bytes over it. There may be millions of them: a plain tuple."""

    buffer: int
    below: int
    above: int


@dataclass(frozen=True)
class Problem:
    """`overlaps[a, b]`: separation(a below, b above) in bytes where it is less than the size of a.

    `unit_bytes`: all alignments, and so all offsets and the arena's size, are multiples of it. `pressure`: for each
    step the bytes that no placement can do without; `lower_bound_bytes` is their maximum.
    """

    buffers: tuple[Buffer, ...]
    overlaps: Mapping[tuple[int, int], int]
    unit_bytes: int = 1
    pressure: tuple[int, ...] = ()
    lower_bound_bytes: int = 0

    def separation(self, below: int, above: int) -> int:
        """Bytes from the start of `below` to that of `above`, at the least, in whole units."""
        apart = self.overlaps.get((below, above), self.buffers[below].size_bytes)
        return -(-apart // self.unit_bytes) * self.unit_bytes

    @cached_property
    def neighbours(self) -> tuple[tuple[Neighbour, ...], ...]:
        """For each buffer, the others that restrict where it may start."""
        found: list[list[Neighbour]] = [[] for _ in self.buffers]
        # Few pairs overlap; all others are as far apart as the lower one is large.
        whole = [self.separation(b, b) for b in range(len(self.buffers))]
        nearer = {pair: self.separation(*pair) for pair in self.overlaps}
        for a, b in self._pairs():
            up, down = nearer.get((a, b), whole[a]), nearer.get((b, a), whole[b])
            if up + down > 0:
                found[a].append(Neighbour(b, up, down))
                found[b].append(Neighbour(a, down, up))
        return tuple(tuple(sorted(near)) for near in found)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Pairs that live at once."""
        by_start = sorted(range(len(self.buffers)), key=lambda i: self.buffers[i].first_step)
        live: list[int] = []
        for b in by_start:
            live = [a for a in live if self.buffers[a].end_step > self.buffers[b].first_step]
            yield from ((a, b) for a in live if self.buffers[b].lives_with(self.buffers[a]))
            live.append(b)

    def part(self, members: Iterable[int]) -> Problem:
        """The problem that some of the buffers are among themselves. It keeps the lower bound of the whole, which may
        be above what they need, but not above what the whole needs."""
        kept = sorted(members)
        number = {buffer: n for n, buffer in enumerate(kept)}
        overlaps = {(number[a], number[b]): v for (a, b), v in self.overlaps.items() if a in number and b in number}
        return replace(self, buffers=tuple(self.buffers[b] for b in kept), overlaps=overlaps)

    def arena_bytes(self, offsets: Sequence[int]) -> int:
        """The highest end of all buffers, in whole units."""
        end = max((o + b.size_bytes for o, b in zip(offsets, self.buffers, strict=True)), default=0)
        return -(-end // self.unit_bytes) * self.unit_bytes

    def is_met_by(self, offsets: Sequence[int]) -> bool:
        """Whether the offsets keep every separation and alignment."""
        aligned = all(o >= 0 and o % b.align_bytes == 0 for o, b in zip(offsets, self.buffers, strict=True))
        return aligned and all(
            offsets[n.buffer] - offsets[b] >= n.below or offsets[b] - offsets[n.buffer] >= n.above
            for b, near in enumerate(self.neighbours)
            for n in near
        )
