"""How several cores share the turns of an op that runs row by row.

A turn makes one row, from rows that lie anywhere: those that share addresses with it, mostly none, are what phases are
made for. Turns of one op differ only in that, so most of them are shared in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from diagmem.model.graph import IntArray, Node, Tensor
from diagmem.model.teamwork import Cut, Phases, Sharing
from diagmem.ops import Order
from diagmem.ops.accesses import Runs
from diagmem.planning.plan import Plan
from diagmem.planning.sharing import BARRIER_INSTRUCTIONS, Near, SharedOp, can_be_shared


@dataclass(frozen=True, eq=False)
class _Reads:
    """Runs of which each stays within a row of `tensor`, and within the turns [first, last]."""

    tensor: Tensor
    runs: Runs
    row: IntArray
    first: IntArray
    last: IntArray

    @classmethod
    def of(cls, node: Node, tensor: Tensor, runs: Runs) -> _Reads:
        row_elems, made_elems = tensor.elems // tensor.rows, node.output.elems // node.output.rows
        far = runs.start + (runs.length - 1) * runs.pitch
        last = _last_steps(runs)
        crosses = (runs.start // row_elems != far // row_elems) | (
            (runs.stride > 0) & (runs.step // made_elems != last // made_elems)
        )
        element, begin, end = _picked(runs, crosses).touches()
        single = Runs.of(element, 1, begin, stride=0, hold=end - begin + 1)
        runs = Runs.join(_picked(runs, ~crosses), single)
        return cls(tensor, runs, runs.start // row_elems, runs.step // made_elems, _last_steps(runs) // made_elems)

    def pairs(self, turns: int) -> IntArray:
        """turn * rows + row for each row that a turn reads, once."""
        count = np.minimum(self.last, turns - 1) - self.first + 1
        nth = np.arange(int(count.sum()), dtype=np.int64) - np.repeat(np.cumsum(count) - count, count)
        return np.unique((np.repeat(self.first, count) + nth) * self.tensor.rows + np.repeat(self.row, count))

    def of_row(self, turn: int, row: int) -> Runs:
        return _picked(self.runs, (self.first <= turn) & (turn <= self.last) & (self.row == row))


@dataclass(frozen=True)
class SharedTurns:
    """The ways to share each turn of one op among cores."""

    plan: Plan
    node: Node
    cores: int
    barrier: float = BARRIER_INSTRUCTIONS

    def sharings(self, choose: Callable[[SharedTurn], Sharing | None] = SharedOp.best) -> tuple[Sharing, ...]:
        """One for each turn that cores are faster with, turns that are shared alike together. `choose`: the best."""
        found: dict[Sharing, list[int]] = {}
        if not self._can_be_shared:
            return ()
        apart = SharedTurn(self.plan, self.node, self.cores, self.barrier)
        in_one_phase = choose(apart)
        for turn in range(self.node.output.rows):
            near = tuple(self._near(turn)) if turn in self._near_rows else ()
            chosen = choose(replace(apart, turn=turn, rows=near)) if near else in_one_phase
            if chosen is not None:
                found.setdefault(chosen, []).append(turn)
        return tuple(replace(sharing, turns=tuple(turns)) for sharing, turns in found.items())

    @property
    def _can_be_shared(self) -> bool:
        """What sums up rows is not, nor what is part of something else."""
        node, library = self.node, self.plan.options.library
        is_plain = all(tensor.view is None for tensor in (*(t for _, t in node.activations()), *node.outputs))
        return can_be_shared(node) and is_plain and bool(library.row_cuts(node))

    @cached_property
    def _reads(self) -> tuple[_Reads, ...]:
        accesses = SharedOp(self.plan, self.node, self.cores).accesses
        given = ((tensor, accesses.reads[position]) for position, tensor in self.node.activations())
        placed = self.plan.row_offsets
        return tuple(_Reads.of(self.node, t, runs) for t, runs in given if runs is not None and t.index in placed)

    @cached_property
    def _near_rows(self) -> dict[int, list[tuple[int, int]]]:
        """Turn -> which of the reads, and rows, share addresses with the row that it makes."""
        found: dict[int, list[tuple[int, int]]] = {}
        out = self.node.output
        made = np.array(self.plan.row_offsets[out.index], dtype=np.int64)
        for number, reads in enumerate(self._reads):
            tensor = reads.tensor
            pairs = reads.pairs(out.rows)
            turn, row = pairs // tensor.rows, pairs % tensor.rows
            at = np.array(self.plan.row_offsets[tensor.index], dtype=np.int64)[row]
            meets = (at < made[turn] + out.row_bytes) & (made[turn] < at + tensor.row_bytes)
            for t, r in zip(turn[meets].tolist(), row[meets].tolist(), strict=True):
                found.setdefault(t, []).append((number, r))
        return found

    def _near(self, turn: int) -> Iterator[Near]:
        for number, row in self._near_rows[turn]:
            reads = self._reads[number]
            tensor = reads.tensor
            at = self.plan.row_offsets[tensor.index][row]
            yield Near(tensor, reads.of_row(turn, row), at, row * (tensor.elems // tensor.rows))


@dataclass(frozen=True)
class SharedTurn(SharedOp):
    """The ways to share one turn. `rows`: the input rows that share addresses with the row that is made."""

    turn: int = 0
    rows: tuple[Near, ...] = ()

    @property
    def work(self) -> float:
        return super().work / self.node.output.rows

    @property
    def made_elems(self) -> int:
        return self.node.output.elems // self.node.output.rows

    @property
    def first_elem(self) -> int:
        return self.turn * self.made_elems

    @property
    def out_address(self) -> int:
        return self.plan.row_offsets[self.node.output.index][self.turn]

    @property
    def order(self) -> Order | None:
        return self.library.row_order(self.node)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        return tuple(cut for cut in self.library.row_cuts(self.node) if cut.units > cut.grain)

    @cached_property
    def near(self) -> tuple[Near, ...]:
        return self.rows

    def _in_phases(self, cut: Cut, phases: tuple[Phases, ...]) -> Sharing:
        return Sharing(self.node.op.index, cut, phases, ())


def _picked(runs: Runs, which: IntArray) -> Runs:
    return Runs(*(getattr(runs, name)[which] for name in Runs.__slots__))


def _last_steps(runs: Runs) -> IntArray:
    last: IntArray = runs.step + (runs.length - 1) * runs.stride + runs.hold - 1
    return last
