"""What the validator compares in few numbers, against one byte at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import DType, Tensor, View
from diagmem.ops.accesses import Runs
from diagmem.validation.kernel import FAR, Layout, Touched, Touches, clash, shared_bytes, stretches
from diagmem.validation.replay import _around
from tests.ops.simulation import by_step, places
from tests.ops.test_accesses import ELEMS, some_runs
from tests.profiles import examples

HIGHEST = 40


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Up to four pieces that do not meet, in any order, in the first bytes of an arena; or one piece, or none."""
    elem_bytes, piece = draw(st.sampled_from((1, 2, 4))), draw(st.integers(0, 4))
    size = max(1, piece * elem_bytes)
    count = draw(st.integers(0, min(4, HIGHEST // size)))
    gaps = sorted(draw(st.lists(st.integers(0, HIGHEST - count * size), min_size=count, max_size=count)))
    starts = draw(st.permutations([gap + n * size for n, gap in enumerate(gaps)]))
    return Layout(np.array(starts if piece else [], dtype=np.int64), piece, elem_bytes)


def element_at(layout: Layout) -> dict[int, int]:
    """Address -> element, by the definition."""
    return {
        start + byte: number * layout.piece_elems + byte // layout.elem_bytes
        for number, start in enumerate(layout.at.tolist())
        for byte in range(layout.piece_bytes)
    }


@st.composite
def touched(draw: st.DrawFn) -> Touched:
    """Bytes with steps that rise or fall evenly over cells of elements; some are never touched."""
    layout = draw(layouts())
    if not layout.elems:
        return Touched(layout, Touches.whole(0, 0))
    cell = draw(st.sampled_from([n for n in range(1, layout.elems + 1) if layout.elems % n == 0]))
    step = st.one_of(st.integers(0, 9), st.sampled_from((FAR, -FAR)))
    base = draw(st.lists(step, min_size=layout.elems // cell, max_size=layout.elems // cell))
    return Touched(layout, Touches(cell, draw(st.integers(0, 2)), np.array(base, dtype=np.int64)))


def step_at(value: Touched) -> dict[int, int]:
    touches = value.touches
    return {
        at: int(touches.base[e // touches.cell]) + touches.slope * (e % touches.cell)
        for at, e in element_at(value.layout).items()
    }


EVERYWHERE = np.arange(-3, HIGHEST + 5, dtype=np.int64)


@given(layouts())
@examples(200)
def test_elements_are_found_where_they_lie(layout: Layout) -> None:
    """At each address, and nowhere else; the lowest and the highest end are theirs."""
    wanted = element_at(layout)
    elements, is_inside = layout.find(EVERYWHERE) if len(layout.at) else (EVERYWHERE * 0, EVERYWHERE < -9)
    assert {int(at) for at in EVERYWHERE[is_inside]} == wanted.keys()
    assert {int(at): int(e) for at, e in zip(EVERYWHERE[is_inside], elements[is_inside], strict=True)} == wanted
    assert layout.low == min(wanted, default=0)
    assert layout.high == max(wanted, default=-1) + 1
    assert layout.elems * layout.elem_bytes == len(wanted)


@given(layouts(), layouts())
@examples(200)
def test_shared_bytes_are_counted(a: Layout, b: Layout) -> None:
    assert shared_bytes(a, b) == len(element_at(a).keys() & element_at(b).keys())


@given(layouts(), st.integers(1, 5), layouts(), st.integers(1, 5))
@examples(150)
def test_stretches_are_cut_where_anything_changes(a: Layout, cell: int, b: Layout, other_cell: int) -> None:
    """They hold all addresses in common, and within one both layouts go on evenly, in one cell."""
    starts, ends = stretches((a, cell), (b, other_cell))
    pieces = [range(s, e) for s, e in zip(starts.tolist(), ends.tolist(), strict=True)]
    covered = {at for piece in pieces for at in piece}
    assert element_at(a).keys() & element_at(b).keys() <= covered
    assert len(covered) == sum(map(len, pieces))
    for piece in pieces:
        for layout, size in ((a, cell), (b, other_cell)):
            found = element_at(layout)
            assert len({at in found for at in piece}) <= 1
            inside = [found[at] for at in piece if at in found]
            assert len({e // size for e in inside}) <= 1
            assert inside == sorted(inside)


@given(layouts(), touched(), touched(), st.booleans())
@examples(400)
def test_a_clash_is_a_byte_read_after_it_was_written(
    value: Layout, read: Touched, written: Touched, in_step: bool
) -> None:
    """Found where there is one, and none where there is none. In one step a byte may be read and then written."""
    reads, writes = step_at(read), step_at(written)
    common = element_at(value).keys() & reads.keys() & writes.keys()
    if in_step:
        lost = {at for at in common if reads[at] > writes[at]}
    else:
        lost = {at for at in common if reads[at] > -FAR // 2 and writes[at] < FAR // 2}
    found = clash(value, read, written, in_step)
    assert found in lost if lost else found is None


@given(st.lists(some_runs(), min_size=1, max_size=3), st.booleans())
@examples(200)
def test_touches_are_the_last_or_the_first_of_runs(parts: list[Runs], latest: bool) -> None:
    """Of each element over all runs; never is far away."""
    found = Touches.of(parts, ELEMS, latest).at(np.arange(ELEMS)).tolist()
    touches = [(e, step) for runs in parts for step, elements in by_step(runs).items() for e in elements]
    for element in range(ELEMS):
        steps = [step for e, step in touches if e == element]
        if steps:
            assert found[element] == (max(steps) if latest else min(steps))
        else:
            assert found[element] < -FAR // 2 if latest else found[element] > FAR // 2


@given(some_runs(), st.integers(1, 4), st.integers(0, 3), st.lists(st.integers(0, 2), max_size=4))
@examples(150)
def test_picked_touches_are_those_of_groups(runs: Runs, elems: int, slope: int, groups: list[int]) -> None:
    """In the order of the groups, element by element."""
    touches = Touches(3, slope, np.arange(0, 40, 10, dtype=np.int64))
    found = touches.picked(np.array(groups, dtype=np.int64), elems)
    wanted = [int(touches.at(np.array([group * elems + k]))[0]) for group in groups for k in range(elems)]
    assert found.at(np.arange(len(wanted))).tolist() == wanted


@given(st.lists(some_runs(), min_size=1, max_size=2), st.integers(1, 5), st.integers(0, 4))
@examples(150)
def test_runs_around_a_unit_start_with_one(parts: list[Runs], unit_elems: int, unit: int) -> None:
    """Moved so that the first unit that is reached is at 0; all that is touched, and the unit, lie inside."""
    moved, first, elems = _around(parts, unit_elems, unit)
    assert first % unit_elems == elems % unit_elems == 0
    assert first <= unit * unit_elems < first + elems
    reached = {unit}
    for before, after in zip(parts, moved, strict=True):
        old = {(e, step) for step, elements in by_step(before).items() for e in elements}
        assert {(e + first, step) for step, elements in by_step(after).items() for e in elements} == old
        reached |= {e // unit_elems for e, _ in old}
    assert (first // unit_elems, (first + elems) // unit_elems - 1) == (min(reached), max(reached))


@given(st.integers(0, 9), st.sampled_from((DType.INT8, DType.INT16)))
def test_layouts_of_views_are_where_their_strides_say(address: int, dtype: DType) -> None:
    """In one piece or in several, from the first element on."""
    for strides in ((6, 2, 1), (8, 3, 1), (1, 5, 20)):
        tensor = Tensor(1, "part", (2, 3, 2), dtype, view=View(0, 4, strides))
        size = dtype.size_bytes
        wanted = {address + place * size + b: e for e, place in enumerate(places(tensor)) for b in range(size)}
        assert element_at(Layout.of(tensor, address)) == wanted
