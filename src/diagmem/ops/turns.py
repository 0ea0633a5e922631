"""One operation taken apart into turns: what each output row reads, and how far it may lie over what it reads.

All is read off `accesses`, so it is the same truth that overlaps of whole tensors come from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import IntArray, Node, Tensor
from diagmem.ops.accesses import Accesses, Runs


@dataclass(frozen=True, slots=True)
class Need:
    """Turn y of an operation reads rows [first[y], end[y]) of `tensor`; none where end <= first.

    `apart[y]`: for each of these rows, separation(output row below, this row above) in bytes within the turn; nothing
    where they may not overlap.
    """

    tensor: int
    first: tuple[int, ...]
    end: tuple[int, ...]
    apart: tuple[tuple[int, ...], ...]


class _Reads(NamedTuple):
    """Reads of one tensor: for each the turn, the row, and the separation that it asks for."""

    turn: IntArray
    row: IntArray
    apart: IntArray


@dataclass(frozen=True)
class Turns:
    """A node with one output, whose row y is made at turn y."""

    node: Node
    accesses: Accesses

    @cached_property
    def _written(self) -> tuple[IntArray, IntArray]:
        """Every element that is written, and the step that writes it."""
        written, step, _ = self.accesses.writes[0].touches()
        return written, step

    @cached_property
    def are_apart(self) -> bool:
        """Whether rows are written one after the other, none together with another."""
        written, step = self._written
        row = written // (self.node.output.elems // self.node.output.rows)
        order = np.argsort(step, kind="stable")
        changes = np.diff(row[order])
        return bool((changes >= 0).all() and (np.diff(step[order])[changes > 0] > 0).all())

    @cached_property
    def of_step(self) -> IntArray:
        """The turn of each kernel step: the row that it, or the next step that writes, writes."""
        output = self.node.output
        written, step = self._written
        turn = np.full(self.accesses.steps, output.rows - 1, dtype=np.int64)
        turn[step] = written // (output.elems // output.rows)
        return np.minimum.accumulate(turn[::-1])[::-1]

    @cached_property
    def written_before(self) -> IntArray:
        """For each kernel step, the end of what is written of its turn's row before it, in bytes from the row's
        start."""
        output = self.node.output
        written, step = self._written
        ends = np.zeros(self.accesses.steps + 1, dtype=np.int64)
        np.maximum.at(ends, step + 1, (written + 1) * output.dtype.size_bytes)
        np.maximum.accumulate(ends, out=ends)
        before: IntArray = np.maximum(0, ends[:-1] - self.of_step * output.row_bytes)
        return before

    def need(self, tensor: Tensor) -> Need:
        """What the turns read of an input, at all positions where it stands."""
        reads = [
            reads
            for position, t in self.node.activations()
            if t.index == tensor.index
            for reads in self._reads(position)
        ]
        turn, row, apart = (np.concatenate(column) for column in zip(*reads, strict=True))
        turns = self.node.output.rows
        first = np.full(turns, tensor.rows, dtype=np.int64)
        end = np.zeros(turns, dtype=np.int64)
        np.minimum.at(first, turn, row)
        np.maximum.at(end, turn, row + 1)
        first, end = np.where(first < end, first, 0), np.where(first < end, end, 0)
        largest = np.full((turns, int((end - first).max(initial=1))), -tensor.row_bytes, dtype=np.int64)
        np.maximum.at(largest, (turn, row - first[turn]), apart)
        rows = tuple(tuple(line[:count]) for line, count in zip(largest.tolist(), (end - first).tolist(), strict=True))
        return Need(tensor.index, tuple(first.tolist()), tuple(end.tolist()), rows)

    def _reads(self, position: int) -> Iterator[_Reads]:
        """Runs that stay within a turn and a row are looked at as a whole, the others element by element."""
        runs, tensor = self.accesses.reads[position] or Runs.none(), self.node.input(position)
        row_elems = tensor.elems // tensor.rows
        last = runs.last_steps
        final = runs.start + (runs.length - 1) * runs.pitch
        is_short = self.of_step[runs.step] == self.of_step[last]
        is_short &= runs.start // row_elems == final // row_elems
        is_short &= (runs.stride == 0) | self._is_even(runs.step + runs.hold - 1, last)
        # Along a run the separation is largest at one of its ends, where nothing may be written yet; if all is read at
        # once, at its lowest element.
        at_once = runs.picked(is_short & (runs.stride == 0))
        lowest = at_once.start + (at_once.length - 1) * (at_once.pitch < 0) * at_once.pitch
        yield self._asked(tensor, lowest, at_once.step + at_once.hold - 1)
        swept = runs.picked(is_short & (runs.stride != 0))
        for nth in (np.zeros_like(swept.length), np.minimum(1, swept.length - 1), swept.length - 1):
            step = swept.step + nth * swept.stride + swept.hold - 1
            yield self._asked(tensor, swept.start + nth * swept.pitch, step)
        yield from self._one_by_one(tensor, runs.picked(~is_short))

    def _one_by_one(self, tensor: Tensor, runs: Runs) -> Iterator[_Reads]:
        """What is held over several turns is read at each of them, and may not be overlapped."""
        element, begin, finish = runs.touches()
        turn, last_turn = self.of_step[begin], self.of_step[finish]
        crosses = turn != last_turn
        yield self._asked(tensor, element[~crosses], finish[~crosses])
        count = (last_turn - turn + 1)[crosses]
        nth = np.arange(count.sum(), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        row = np.repeat(element[crosses] // (tensor.elems // tensor.rows), count)
        apart = np.full(len(row), self.node.output.row_bytes, dtype=np.int64)
        yield _Reads(np.repeat(turn[crosses], count) + nth, row, apart)

    def _is_even(self, first: IntArray, last: IntArray) -> npt.NDArray[np.bool_]:
        """Whether an element of the output is written at each step from the first to the last."""
        grown = self.written_before[last] - self.written_before[first]
        even: npt.NDArray[np.bool_] = grown == (last - first) * self.node.output.dtype.size_bytes
        return even

    def _asked(self, tensor: Tensor, element: IntArray, step: IntArray) -> _Reads:
        """Reads of elements, each for the last time at a step."""
        row_elems = tensor.elems // tensor.rows
        row, written = element // row_elems, self.written_before[step]
        apart = written - element % row_elems * tensor.dtype.size_bytes
        return _Reads(self.of_step[step], row, np.where(written > 0, apart, -tensor.row_bytes))


class KnownTurns:
    """Needs by what they follow from: a network repeats its layers."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Need, ...] | None] = {}

    def needs(self, node: Node, accesses: Accesses) -> tuple[Need, ...] | None:
        """What the turns of a node with one output read of each of its inputs; None where rows are written together."""
        inputs = {tensor.index: tensor for _, tensor in node.activations()}
        places = list(inputs)
        key = (
            accesses.steps,
            tuple(None if runs is None else _content(runs) for runs in (*accesses.reads, *accesses.writes)),
            tuple((position, places.index(tensor.index)) for position, tensor in node.activations()),
            tuple((t.rows, t.elems, t.dtype) for t in (node.output, *inputs.values())),
        )
        if key not in self._found:
            turns = Turns(node, accesses)
            self._found[key] = tuple(turns.need(t) for t in inputs.values()) if turns.are_apart else None
        found = self._found[key]
        return found and tuple(replace(need, tensor=t) for need, t in zip(found, inputs, strict=True))


def _content(runs: Runs) -> tuple[bytes, ...]:
    return tuple(getattr(runs, name).tobytes() for name in Runs.__slots__)
