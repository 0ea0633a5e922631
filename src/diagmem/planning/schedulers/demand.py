"""Rows on demand: a segment's last tensor asks for one row after the other, and each row asks for what it needs."""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from diagmem.model.schedule import PUSH
from diagmem.planning.row_needs import Need
from diagmem.planning.schedulers.lives import RowStep
from diagmem.planning.schedulers.segments import Segment

TOO_MUCH = 1 << 62
"""Peak of a segment whose rows would be made again too often."""


def best_on_demand(segment: Segment) -> tuple[int, tuple[RowStep, ...]]:
    """Peak and steps of a segment, its ops asking for their inputs first to last, or last to first."""
    ways = (False, True) if segment.has_joins else (False,)
    orders = {tuple(_Demand(segment, reverse).steps()) for reverse in ways}
    is_too_much = any(len(steps) > segment.most_steps for steps in orders)
    return min((TOO_MUCH if is_too_much else segment.peak_bytes(steps), steps) for steps in sorted(orders))


class _Ask(NamedTuple):
    """What a turn of an op asks for: rows of a tensor that `producer` makes; PUSH: the caller does. `piece`: after so
    many turns the rows that are still needed are made again; 0: they are held. `reached`: before each turn, the end of
    all rows that earlier ones have asked for."""

    need: Need
    producer: int
    piece: int
    reached: tuple[int, ...]

    def own(self, turn: int) -> list[int]:
        """Rows that are made again for a turn: all that it needs, or, within a piece, the new ones. No op leaves out a
        turn, so rows that lie between those of two turns, and that nobody asks for, are made on the way."""
        first, end = self.need.first[turn], self.need.end[turn]
        begin = first if turn % self.piece == 0 else max(first, self.need.end[turn - 1])
        return [*range(self.reached[turn], min(begin, end)), *range(begin, end)]


class _Demand:
    """Turns of a segment on demand. `reverse`: the last input of an op is asked for first."""

    def __init__(self, segment: Segment, reverse: bool) -> None:
        ops = range(segment.begin, segment.end)
        self.segment = segment
        self.found: list[RowStep] = []
        # How many turns each op has had, those made again not counted, and how many rows of its output are there.
        self.done = {PUSH: segment.pushed_before, **dict.fromkeys(ops, 0)}
        self.ready = dict(self.done)
        self.asks = {op: self._asks(op, reverse) for op in ops}
        self.makes_rows_again = {op: [ask for ask in self.asks[op] if ask.piece] for op in ops}

    def _asks(self, op: int, reverse: bool) -> list[_Ask]:
        segment, graph = self.segment, self.segment.rows.graph
        found: list[_Ask] = []
        for need in segment.rows.ops[op].needs:
            producer = graph.producer.get(need.tensor)
            if producer is None and segment.input_rows and need.tensor in graph.inputs:
                found.append(_Ask(need, PUSH, 0, ()))
            elif producer is not None and segment.holds(producer):
                reached = (0, *accumulate(need.end[:-1], max))
                found.append(_Ask(need, producer, segment.piece_of(need.tensor), reached))
        return found[::-1] if reverse else found

    def steps(self) -> list[RowStep]:
        segment, ops = self.segment, self.segment.rows.ops
        all_ops = range(segment.begin, segment.end)
        dropped = {op for op in all_ops if segment.dropped.keys() & set(ops[op].makes)}
        held = [op for op in (*reversed(segment.sinks()), *all_ops) if op not in dropped]
        # Rows that nobody asks for (the last ones under a window that leaves some over) come at the end; those of what
        # is dropped when no reader asks for any of its rows again.
        for op in (*held, *sorted(dropped, reverse=True)):
            while self.done[op] < ops[op].turns and len(self.found) <= segment.most_steps:
                self._make(op, self.done[op])
        return self.found

    def _make(self, op: int, turn: int) -> None:
        """A chain of demands may be as long as the segment, so it is kept on a stack of our own: turns that are asked
        for, each with the rows that are still to be made for it alone, last first."""
        stack = self._piece(op, turn)
        most = self.segment.most_steps
        while stack and len(self.found) <= most:
            op, turn, own = stack[-1]
            missing = self._missing(op, turn)
            if missing is not None:
                stack += self._piece(missing, self.done[missing])
            elif own:
                stack.append(self._asked(*own.pop()))
            else:
                self._run(op, turn)
                stack.pop()

    def _run(self, op: int, turn: int) -> None:
        self.found.append((op, turn))
        self.done[op] = max(self.done[op], turn + 1)
        if self.segment.rows.ops[op].makes_rows:
            self.ready[op] = self.done[op]
        elif self.done[op] == self.segment.rows.ops[op].turns:
            self.ready[op] = self.segment.rows.rows[self.segment.rows.ops[op].makes[0]]

    def _piece(self, op: int, turn: int) -> list[tuple[int, int, list[RowStep]]]:
        """A turn and those that come at once with it, last first."""
        rows = self.segment.pieces.get(op, 1)
        if rows == 1:
            return [self._asked(op, turn)]
        end = min(turn + rows, self.segment.rows.ops[op].turns)
        return [self._asked(op, t) for t in range(end - 1, turn - 1, -1)]

    def _asked(self, op: int, turn: int) -> tuple[int, int, list[RowStep]]:
        own = [(ask.producer, row) for ask in self.makes_rows_again[op] for row in ask.own(turn)]
        return op, turn, own[::-1]

    def _missing(self, op: int, turn: int) -> int | None:
        """An op whose next turn is needed first; None if all is there, for rows too that are then made for this turn
        alone. Rows of a streamed input are taken at once."""
        for ask in self.asks[op]:
            if ask.piece:
                for row in ask.own(turn):
                    found = self._missing(ask.producer, row)
                    if found is not None:
                        return found
            elif self.ready[ask.producer] < ask.need.end[turn]:
                if ask.producer != PUSH:
                    return ask.producer
                self.found += ((PUSH, row) for row in range(self.ready[PUSH], ask.need.end[turn]))
                self.ready[PUSH] = ask.need.end[turn]
        return None
