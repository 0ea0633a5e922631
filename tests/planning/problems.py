"""Small placement problems at random, and their answer by trying everything."""

from __future__ import annotations

import math
import random

from hypothesis import strategies as st

from diagmem.planning.needs.problem import Buffer, Problem


@st.composite
def problems(draw: st.DrawFn, most: int = 6) -> Problem:
    """Buffers of a few bytes; where one begins as another ends, they may overlap, by more than its size even."""
    step, size = st.integers(0, 5), st.integers(1, 5)
    buffers = []
    for number in range(draw(st.integers(1, most))):
        first, align = draw(step), draw(st.sampled_from([1, 1, 1, 2, 4]))
        buffers.append(Buffer(f"b{number}", draw(size), first, first + draw(st.integers(1, 4)), align))
    overlaps = {}
    for a, below in enumerate(buffers):
        for b, above in enumerate(buffers):
            if a != b and below.first_step == above.end_step - 1 > above.first_step and draw(st.booleans()):
                overlaps[a, b] = draw(st.integers(-above.size_bytes, below.size_bytes))
    return Problem(tuple(buffers), overlaps, math.gcd(*(b.align_bytes for b in buffers)))


def smallest_arena(problem: Problem) -> int:
    """The least arena, by trying all offsets of all buffers that are not pinned."""
    unit = problem.unit_bytes
    arena = max(-(-b.size_bytes // unit) * unit for b in problem.buffers)
    while not _fits(problem, [], arena):
        arena += unit
    return arena


def _fits(problem: Problem, offsets: list[int], arena: int) -> bool:
    buffer = len(offsets)
    if buffer == len(problem.buffers):
        return True
    own = problem.buffers[buffer]
    places = range(0, arena - own.size_bytes + 1, own.align_bytes)
    for at in places if buffer not in problem.pins else [p for p in (problem.pins[buffer],) if p in places]:
        clear = all(
            not own.lives_with(other)
            or at - offsets[b] >= problem.overlaps.get((b, buffer), other.size_bytes)
            or offsets[b] - at >= problem.overlaps.get((buffer, b), own.size_bytes)
            for b, other in enumerate(problem.buffers[:buffer])
        )
        if clear and _fits(problem, [*offsets, at], arena):
            return True
    return False


def cut_rectangle(seed: int, pieces: int, steps: int = 60, height: int = 64) -> Problem:
    """Buffers that fill an arena of `height` units of 16 bytes without a gap, in random order: a rectangle of time and
    space, cut again and again."""
    chance = random.Random(seed)
    rectangles = [(0, steps, 0, height)]
    while len(rectangles) < pieces:
        first, end, low, high = rectangles.pop(chance.randrange(len(rectangles)))
        if chance.random() < 0.5 and end - first > 1:
            middle = chance.randint(first + 1, end - 1)
            rectangles += [(first, middle, low, high), (middle, end, low, high)]
        elif high - low > 1:
            middle = chance.randint(low + 1, high - 1)
            rectangles += [(first, end, low, middle), (first, end, middle, high)]
        else:
            rectangles.append((first, end, low, high))
    chance.shuffle(rectangles)
    buffers = tuple(Buffer(f"b{n}", 16 * (h - lo), f, e, 16) for n, (f, e, lo, h) in enumerate(rectangles))
    return Problem(buffers, {}, 16, lower_bound_bytes=16 * height)


def sliding_rows(seed: int, count: int) -> Problem:
    """Rows that come and go one after the other, each of which may lie partly over one that dies as it begins."""
    chance = random.Random(seed)
    buffers = [
        Buffer(f"r{step}", 2 * chance.randint(4, 40), step, step + chance.randint(2, 9), 2) for step in range(count)
    ]
    overlaps = {
        (b, a): 2 * chance.randint(-8, below.size_bytes // 2)
        for b, below in enumerate(buffers)
        for a, above in enumerate(buffers)
        if a != b and below.first_step == above.end_step - 1
    }
    return Problem(tuple(buffers), overlaps, 2)
