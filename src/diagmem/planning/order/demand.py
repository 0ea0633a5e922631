"""Rows on demand: a segment's last tensor asks for one row after the other, and each row asks for what it needs.

A chain of demands may be as long as the segment, so it is kept on a stack: turns that are asked for, each with the
number of rows that were made for it alone. The build compiles this file, by the types in the .pxd file beside.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from diagmem.kernels.rows import RowGraph
from diagmem.model.schedule import PUSH
from diagmem.planning.needs.build_problem import RowStep
from diagmem.planning.place.fit import filled, ints

if TYPE_CHECKING:
    from diagmem.planning.order.rows import Segment

KEPT = 1 << 40
"""Stands for an op behind all others: the caller, who reads outputs."""

NOBODY, CALLER = -1, -2
"""Who makes a tensor: no op, or the caller row by row."""

TOO_MUCH = 1 << 62
"""Peak of a segment whose rows would be recomputed too often."""

PARTS = 1 << 16
"""More than a row has."""


@dataclass(eq=False, repr=False)
class FlatRows:
    """A graph seen row by row. By op: its turns; 1 if each makes a row; bytes of its sums; 1 if it runs whole; where
    its tensors begin in `makes`, and its needs in those. By need: its tensor, and where its turns begin. By turn of a
    need: the rows [first, end), the end of all rows asked for before, and where separations begin in `apart`. By
    tensor: where its rows begin among all, and those of the tensor that it is part of (itself, if of none), bytes of
    such a row, who makes it, and the last op that reads it (beyond all for what is kept, NOBODY if nobody does)."""

    turns: list[int]
    makes_rows: list[int]
    sum_bytes: list[int]
    is_whole: list[int]
    make_from: list[int]
    makes: list[int]
    need_from: list[int]
    need_tensor: list[int]
    need_turns: list[int]
    first: list[int]
    end: list[int]
    reached: list[int]
    apart_from: list[int]
    apart: list[int]
    row_from: list[int]
    home_from: list[int]
    row_bytes: list[int]
    maker: list[int]
    last_use: list[int]


@dataclass(eq=False, repr=False)
class Drops:
    """By tensor: after how many turns of its reader its rows are recomputed, 0 if they are held. By op: how many turns
    come at once."""

    again: list[int]
    at_once: list[int]


@dataclass(eq=False, repr=False)
class Room:
    """By op: turns done, rows ready. The stack: ops, turns, rows made for them. Steps: ops (CALLER for a row of the
    streamed input) and turns. By row: the last look in which it was touched, whether it lives on, and how many of its
    parts do, counted from the look's number times PARTS. Of the rows that die at a step, the separation and size. How
    many steps there are so far, turns on the stack, rows of the streamed input that are there, what a step needs, and
    the number of the present look at all steps."""

    done: list[int]
    ready: list[int]
    stack_op: list[int]
    stack_turn: list[int]
    stack_own: list[int]
    step_op: list[int]
    step_turn: list[int]
    touched: list[int]
    alive: list[int]
    held: list[int]
    dying_apart: list[int]
    dying_bytes: list[int]
    step_count: int = 0
    top: int = 0
    pushed: int = 0
    needed: int = 0
    look: int = 0


@dataclass(eq=False, repr=False)
class Span:
    """The ops [begin, end) of a segment; the streamed input, NOBODY if there is none, and how many rows of it earlier
    segments have asked for; and how many steps are too many."""

    begin: int
    end: int
    streamed: int
    pushed_before: int
    most_steps: int


def flat_rows(rows: RowGraph, input_rows: bool) -> FlatRows:
    """The graph as the loops take it. `input_rows`: the caller makes the input, row by row."""
    graph, ops = rows.graph, rows.ops
    needs = [need for op in ops for need in op.needs]
    apart = [rows_apart for need in needs for rows_apart in need.apart]
    given = graph.inputs if input_rows else ()
    last_use = [NOBODY] * len(graph.tensors)
    for op in ops:
        for need in op.needs:
            last_use[need.tensor] = max(last_use[need.tensor], op.index)
    for tensor in graph.outputs:
        for part in graph.sharing.get(tensor, (tensor,)):
            last_use[part] = KEPT
    row_from = _begins(rows.rows)
    columns: tuple[Iterable[int], ...] = (
        [op.turns for op in ops],
        [int(op.makes_rows) for op in ops],
        [op.accumulator_bytes for op in ops],
        [int(op.is_whole) for op in ops],
        _begins(len(op.makes) for op in ops),
        [tensor for op in ops for tensor in op.makes],
        _begins(len(op.needs) for op in ops),
        [need.tensor for need in needs],
        _begins(len(need.first) for need in needs),
        [row for need in needs for row in need.first],
        [row for need in needs for row in need.end],
        [row for need in needs for row in (0, *accumulate(need.end, max))[: len(need.end)]],
        _begins(map(len, apart)),
        [each for rows_apart in apart for each in rows_apart],
        row_from,
        [row_from[t.base] for t in graph.tensors],
        [rows.row_bytes[t.base] for t in graph.tensors],
        [CALLER if t.index in given else graph.producer.get(t.index, NOBODY) for t in graph.tensors],
        last_use,
    )
    return FlatRows(*map(ints, columns))


def _begins(counts: Any) -> list[int]:
    return [0, *accumulate(counts)]


@dataclass(frozen=True)
class Demand:
    """Finds steps on demand, and their peaks. `again`: how often rows may be made, on average."""

    rows: RowGraph
    input_rows: bool
    again: float = 1.0

    @cached_property
    def _flat(self) -> FlatRows:
        return flat_rows(self.rows, self.input_rows)

    @cached_property
    def _held(self) -> Drops:
        """Nothing is recomputed."""
        return Drops(filled(len(self.rows.rows)), filled(len(self.rows.ops), 1))

    @cached_property
    def _room(self) -> Room:
        ops, turns = len(self.rows.ops), sum(op.turns for op in self.rows.ops)
        given = sum(self.rows.rows[tensor] for tensor in self.rows.graph.inputs)
        steps = int(self.again * turns) + 2 * given + 2
        most_read = sum(max(self.rows.rows, default=0) for _ in range(self._most_needs))
        sizes = (ops, ops, *[ops + turns] * 3, steps, steps, *[sum(self.rows.rows)] * 3, most_read, most_read)
        return Room(*map(filled, sizes))

    @cached_property
    def _most_needs(self) -> int:
        return max((len(op.needs) for op in self.rows.ops), default=0)

    def _drops(self, segment: Segment) -> Drops:
        if not segment.dropped:
            return self._held
        again, at_once = filled(len(self.rows.rows)), filled(len(self.rows.ops), 1)
        for tensor in segment.dropped:
            again[tensor] = segment.piece_of(tensor)
        for op, rows in segment.pieces.items():
            at_once[op] = rows
        return Drops(again, at_once)

    def _span(self, segment: Segment) -> Span:
        streamed = self.rows.graph.inputs[0] if self.input_rows else NOBODY
        return Span(segment.begin, segment.end, streamed, segment.pushed_before, int(segment.most_steps))

    def peak(self, segment: Segment) -> int:
        """The least peak of a segment, its ops asking for their inputs first to last, or last to first."""
        return least_peak(self._span(segment), self._flat, self._drops(segment), self._room)

    def best(self, segment: Segment) -> tuple[int, tuple[RowStep, ...]]:
        """The least peak, and the steps that have it."""
        ways = [self._way(segment, last) for last in (0, 1)]
        is_too_much = any(peak == TOO_MUCH for peak, _ in ways)
        return min((TOO_MUCH if is_too_much else peak, steps) for peak, steps in ways)

    def _way(self, segment: Segment, last: int) -> tuple[int, tuple[RowStep, ...]]:
        span, drops, room = self._span(segment), self._drops(segment), self._room
        count = on_demand(last, span, self._flat, drops, room)
        found = zip(room.step_op[:count], room.step_turn[:count], strict=True)
        steps = tuple((PUSH if op == CALLER else int(op), int(turn)) for op, turn in found)
        return TOO_MUCH if count > segment.most_steps else peak(span, self._flat, room), steps


def new_from(need: int, turn: int, rows: FlatRows, drops: Drops) -> int:
    """The first row that a turn needs and does not find: none is left of those before its piece."""
    at = rows.need_turns[need] + turn
    if turn % drops.again[rows.need_tensor[need]] == 0:
        return rows.first[at]
    return max(rows.first[at], rows.end[at - 1])


def own_rows(need: int, turn: int, rows: FlatRows, drops: Drops) -> int:
    """How many rows are recomputed for a turn. No op leaves out a turn, so rows that lie between those of two turns,
    and that nobody asks for, are made on the way."""
    at, begin = rows.need_turns[need] + turn, new_from(need, turn, rows, drops)
    skipped = min(begin, rows.end[at]) - rows.reached[at]
    return max(0, skipped) + max(0, rows.end[at] - begin)


def own_row(need: int, turn: int, number: int, rows: FlatRows, drops: Drops) -> int:
    """One of these rows."""
    at, begin = rows.need_turns[need] + turn, new_from(need, turn, rows, drops)
    skipped = max(0, min(begin, rows.end[at]) - rows.reached[at])
    return rows.reached[at] + number if number < skipped else begin + number - skipped


def missing(op: int, turn: int, begin: int, last: int, rows: FlatRows, drops: Drops, room: Room) -> int:
    """An op whose next turn is needed first; NOBODY if all is there, for rows too that are then made for this turn
    alone. Rows of a streamed input are taken at once. `last`: 1 if the last input is asked for first."""
    low, high = rows.need_from[op], rows.need_from[op + 1]
    for number in range(high - low):
        need = high - 1 - number if last == 1 else low + number
        tensor = rows.need_tensor[need]
        maker = rows.maker[tensor]
        if maker == CALLER:
            until = rows.end[rows.need_turns[need] + turn]
            while room.pushed < until:
                room.step_op[room.step_count] = CALLER
                room.step_turn[room.step_count] = room.pushed
                room.step_count += 1
                room.pushed += 1
        elif maker >= begin and drops.again[tensor] > 0:
            for own in range(own_rows(need, turn, rows, drops)):
                found = missing(maker, own_row(need, turn, own, rows, drops), begin, last, rows, drops, room)
                if found != NOBODY:
                    return found
        elif maker >= begin and room.ready[maker] < rows.end[rows.need_turns[need] + turn]:
            return maker
    return NOBODY


def ask(op: int, turn: int, room: Room) -> None:
    """Puts a turn on the stack."""
    top = room.top
    room.stack_op[top], room.stack_turn[top], room.stack_own[top] = op, turn, 0
    room.top = top + 1


def ask_next(op: int, rows: FlatRows, drops: Drops, room: Room) -> None:
    """Puts the next turn of an op, or its next piece, on the stack, the first one on top."""
    done = room.done[op]
    for turn in range(min(done + drops.at_once[op], rows.turns[op]) - 1, done - 1, -1):
        ask(op, turn, room)


def run(op: int, turn: int, rows: FlatRows, room: Room) -> None:
    """Runs a turn."""
    at = room.step_count
    room.step_op[at], room.step_turn[at] = op, turn
    room.step_count = at + 1
    room.done[op] = max(room.done[op], turn + 1)
    if rows.makes_rows[op] == 1:
        room.ready[op] = room.done[op]
    elif room.done[op] == rows.turns[op]:
        # Of parts with different heights the highest is there, too.
        for m in range(rows.make_from[op], rows.make_from[op + 1]):
            tensor = rows.makes[m]
            room.ready[op] = max(room.ready[op], rows.row_from[tensor + 1] - rows.row_from[tensor])


def make(op: int, begin: int, last: int, most: int, rows: FlatRows, drops: Drops, room: Room) -> None:
    """Makes the next turn of an op, or its next piece, and before it all that it needs."""
    again = drops.again
    ask_next(op, rows, drops, room)
    while room.top > 0 and room.step_count <= most:
        top = room.top - 1
        op, turn = room.stack_op[top], room.stack_turn[top]
        first = missing(op, turn, begin, last, rows, drops, room)
        if first != NOBODY:
            if room.done[first] >= rows.turns[first]:
                # It has no turn left that could bring what is asked of it: no such order is one.
                room.step_count = most + 1
            ask_next(first, rows, drops, room)
            continue
        left, own = room.stack_own[top], -1
        low, high = rows.need_from[op], rows.need_from[op + 1]
        for number in range(high - low):
            need = high - 1 - number if last == 1 else low + number
            if own < 0 and rows.maker[rows.need_tensor[need]] >= begin and again[rows.need_tensor[need]] > 0:
                count = own_rows(need, turn, rows, drops)
                if left < count:
                    own = need
                else:
                    left -= count
        if own >= 0:
            room.stack_own[top] += 1
            ask(rows.maker[rows.need_tensor[own]], own_row(own, turn, left, rows, drops), room)
        else:
            run(op, turn, rows, room)
            room.top -= 1


def on_demand(last: int, span: Span, rows: FlatRows, drops: Drops, room: Room) -> int:
    """The steps of a segment, into the room; how many there are. Gives up when they are too many. `last`: 1 if the last
    input of an op is asked for first."""
    begin, end, most = span.begin, span.end, span.most_steps
    room.step_count, room.top, room.pushed = 0, 0, span.pushed_before
    for op in range(begin, end):
        room.done[op], room.ready[op] = 0, 0
    # What is needed later comes first, the last of it first of all; then rows that nobody asks for, the last ones under
    # a window that leaves some over; those of what is dropped when no reader asks for any of its rows again.
    for stage in range(3):
        for number in range(end - begin):
            op = begin + number if stage == 1 else end - 1 - number
            is_dropped, is_needed = False, False
            for m in range(rows.make_from[op], rows.make_from[op + 1]):
                use = rows.last_use[rows.makes[m]]
                is_dropped = is_dropped or drops.again[rows.makes[m]] > 0
                is_needed = is_needed or use >= end or use < 0
            if is_dropped == (stage == 2) and (is_needed or stage > 0):
                while room.done[op] < rows.turns[op] and room.step_count <= most:
                    make(op, begin, last, most, rows, drops, room)
                    room.top = 0
    return room.step_count


def touch(tensor: int, low: int, high: int, rows: FlatRows, room: Room) -> None:
    """Marks rows as touched in this look."""
    for row in range(rows.row_from[tensor] + low, rows.row_from[tensor] + high):
        room.touched[row], room.alive[row] = room.look, 0


def hold(tensor: int, row: int, rows: FlatRows, room: Room) -> int:
    """One more part of a row lives: the bytes that are held for it, none if others are there already."""
    slot, none = rows.home_from[tensor] + row, room.look * PARTS
    is_first = room.held[slot] <= none
    room.held[slot] = max(room.held[slot], none) + 1
    return rows.row_bytes[tensor] if is_first else 0


def leave(tensor: int, row: int, rows: FlatRows, room: Room) -> int:
    """One part of a row less: the bytes that are then free, none if others are still there."""
    slot = rows.home_from[tensor] + row
    room.held[slot] -= 1
    return rows.row_bytes[tensor] if room.held[slot] <= room.look * PARTS else 0


def covered(size: int, count: int, room: Room) -> int:
    """The most of [0, size) that the rows which die can cover, each from its separation on."""
    apart, length = room.dying_apart, room.dying_bytes
    for i in range(1, count):
        start, own, j = apart[i], length[i], i
        while j > 0 and (apart[j - 1] > start or (apart[j - 1] == start and length[j - 1] > own)):
            apart[j], length[j] = apart[j - 1], length[j - 1]
            j -= 1
        apart[j], length[j] = start, own
    total, top = 0, 0
    for i in range(count):
        low = max(apart[i], top)
        top = low + length[i]
        total += max(0, min(size, top) - low)
    return total


def made_row(tensor: int, row: int, rows: FlatRows, room: Room) -> int:
    """Goes back over the making of a row: the bytes that are needed for it alone, as nobody reads it, or less than 0,
    those that were not there before it."""
    at = rows.row_from[tensor] + row
    if room.alive[at] == 0:
        return rows.row_bytes[tensor] if room.held[rows.home_from[tensor] + row] <= room.look * PARTS else 0
    room.alive[at] = 0
    return -leave(tensor, row, rows, room)


def leave_step(at: int, live: int, streamed: int, rows: FlatRows, room: Room) -> int:
    """Goes back over a step, behind which so much lives: what lived before it. NEEDED: what it needs itself."""
    op, turn = room.step_op[at], room.step_turn[at]
    alive, during, before, count = room.alive, live, live, 0
    if op == CALLER:
        freed = made_row(streamed, turn, rows, room)
        during += max(0, freed)
        before += min(0, freed)
        room.needed = during
        return before
    is_last = rows.makes_rows[op] == 1 or rows.is_whole[op] == 1 or turn == rows.turns[op] - 1
    for m in range(rows.make_from[op], rows.make_from[op + 1]):
        tensor = rows.makes[m]
        low, high = 0, rows.row_from[tensor + 1] - rows.row_from[tensor]
        if rows.makes_rows[op] == 1:
            low, high = turn, turn + 1
        elif rows.is_whole[op] == 0:
            high = 1
        if is_last:
            for row in range(low, high):
                freed = made_row(tensor, row, rows, room)
                during += max(0, freed)
                before += min(0, freed)
    for need in range(rows.need_from[op], rows.need_from[op + 1]):
        tensor, t = rows.need_tensor[need], rows.need_turns[need] + turn
        size, is_apart = rows.row_bytes[tensor], rows.apart_from[t + 1] > rows.apart_from[t]
        for row in range(rows.first[t], rows.end[t]):
            if alive[rows.row_from[tensor] + row] == 0:
                alive[rows.row_from[tensor] + row] = 1
                more = hold(tensor, row, rows, room)
                during += more
                before += more
                if is_apart:
                    room.dying_apart[count] = rows.apart[rows.apart_from[t] + row - rows.first[t]]
                    room.dying_bytes[count] = size
                    count += 1
    if count > 0 and rows.is_whole[op] == 0:
        during -= covered(rows.row_bytes[rows.makes[rows.make_from[op]]], count, room)
    room.needed = during
    return before


def touch_all(span: Span, rows: FlatRows, room: Room) -> int:
    """Marks what the steps in the room touch, and by op its first and last step; 1 if some of the ops sum up."""
    begin, end, steps, has_sums = span.begin, span.end, room.step_count, 0
    room.look += 1
    for op in range(begin, end):
        room.done[op], room.ready[op] = steps, NOBODY
        has_sums = max(has_sums, min(1, rows.sum_bytes[op]))
    for at in range(steps):
        op, turn = room.step_op[at], room.step_turn[at]
        if op == CALLER:
            touch(span.streamed, turn, turn + 1, rows, room)
            continue
        room.done[op], room.ready[op] = min(room.done[op], at), at
        for m in range(rows.make_from[op], rows.make_from[op + 1]):
            tensor = rows.makes[m]
            if rows.makes_rows[op] == 1:
                touch(tensor, turn, turn + 1, rows, room)
            elif rows.is_whole[op] == 1:
                touch(tensor, 0, rows.row_from[tensor + 1] - rows.row_from[tensor], rows, room)
            elif turn == rows.turns[op] - 1:
                touch(tensor, 0, 1, rows, room)
        for need in range(rows.need_from[op], rows.need_from[op + 1]):
            t = rows.need_turns[need] + turn
            touch(rows.need_tensor[need], rows.first[t], rows.end[t], rows, room)
    return has_sums


def peak(span: Span, rows: FlatRows, room: Room) -> int:
    """The most bytes that live at a step of those in the room, with all that merely passes the segment by. Goes back
    from what lives behind the last step."""
    has_sums = touch_all(span, rows, room)
    begin, end, live, passing = span.begin, span.end, 0, 0
    for tensor in range(len(rows.row_bytes)):
        maker = rows.maker[tensor]
        if rows.last_use[tensor] < end or maker >= end:
            continue
        is_older = span.pushed_before > 0 if maker == CALLER else maker < begin
        for row in range(rows.row_from[tensor + 1] - rows.row_from[tensor]):
            if room.touched[rows.row_from[tensor] + row] == room.look:
                room.alive[rows.row_from[tensor] + row] = 1
                live += hold(tensor, row, rows, room)
            elif is_older:
                passing += hold(tensor, row, rows, room)
    worst, live = passing, live + passing
    for at in range(room.step_count - 1, -1, -1):
        live = leave_step(at, live, span.streamed, rows, room)
        needed = room.needed
        if has_sums == 1:
            for op in range(begin, end):
                if rows.sum_bytes[op] > 0 and room.done[op] <= at <= room.ready[op]:
                    needed += rows.sum_bytes[op]
        worst = max(worst, needed)
    return worst


def least_peak(span: Span, rows: FlatRows, drops: Drops, room: Room) -> int:
    """The peak of a segment whose ops ask for their inputs first to last, or last to first if that is less."""
    begin, end = span.begin, span.end
    best, joins, sinks = TOO_MUCH, 0, 0
    for op in range(begin, end):
        is_needed = False
        for m in range(rows.make_from[op], rows.make_from[op + 1]):
            use = rows.last_use[rows.makes[m]]
            is_needed = is_needed or use >= end or use < 0
        joins += rows.need_from[op + 1] - rows.need_from[op] > 1
        sinks += is_needed
    for last in range(2 if joins > 0 or sinks > 1 else 1):
        if on_demand(last, span, rows, drops, room) > span.most_steps:
            return TOO_MUCH
        best = min(best, peak(span, rows, room))
    return best
