"""Tables of buffers, placed: nothing in use is overwritten, and bounds hold."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.planning.place.effort import Effort
from diagmem.planning.place.table import Table, TableError, conflicts, parse_table, table_placement, table_problem
from tests.profiles import examples

LITTLE = Effort(fits=100, most_fits=2_000, nodes=200, nodes_apart=2_000, proof=0.2, moves=20, most_moves=1_000)


@st.composite
def tables(draw: st.DrawFn, most: int = 7, with_separations: bool = True) -> Table:
    """Buffers of a few bytes and moments, with gaps, alignments, and separations of some pairs."""
    lines = ["id,lower,upper,size,alignment,gaps"]
    sizes, count = [], draw(st.integers(1, most))
    for number in range(count):
        lower, size = draw(st.integers(0, 6)), draw(st.integers(0, 6))
        upper, gaps = lower + draw(st.integers(0, 5)), ""
        if upper - lower > 2 and draw(st.booleans()):
            low = draw(st.integers(0, size))
            gaps = f"{lower + 1}-{upper - 1}" + (f"@{low}:{size}" if draw(st.booleans()) else "")
        lines.append(f"b{number},{lower},{upper},{size},{draw(st.sampled_from([1, 1, 2, 4]))},{gaps}")
        sizes.append(size)
    pairs = ["below,above,bytes"]
    pairs += [
        f"b{below},b{above},{draw(st.integers(-sizes[above], sizes[below]))}"
        for below, above in permutations(range(count), 2)
        if with_separations and draw(st.integers(0, 5)) == 0
    ]
    return parse_table("\n".join(lines), "\n".join(pairs))


def shared_bytes(table: Table, offsets: tuple[int, ...]) -> list[tuple[int, int]]:
    """Pairs that use one byte at one moment, byte by byte and moment by moment."""
    found = set()
    for time in range(12):
        owner: dict[int, list[int]] = {}
        for index, row in enumerate(table.rows):
            low, high = row.window_at(time) if row.lower <= time < row.upper else (0, 0)
            for byte in range(offsets[index] + low, offsets[index] + high):
                owner.setdefault(byte, []).append(index)
        found |= {(a, b) for users in owner.values() for a in users for b in users if a < b}
    return sorted(found)


@given(tables(with_separations=False))
@examples(60)
def test_no_two_buffers_use_a_byte_at_once(table: Table) -> None:
    """Gaps are used, but never more than they leave; and the check that the command makes says so too."""
    offsets, found = table_placement(table, LITTLE)
    assert shared_bytes(table, offsets) == []
    assert list(conflicts(table, offsets)) == []
    live = [offset + row.size_bytes for row, offset in zip(table.rows, offsets, strict=True) if row.lower < row.upper]
    assert max(live, default=0) <= found.arena_bytes
    assert found.lower_bound_bytes <= found.arena_bytes


@given(tables())
@examples(60)
def test_separations_are_kept(table: Table) -> None:
    """Pairs that share bytes have a separation that allows it, in the direction in which they lie."""
    offsets, _ = table_placement(table, LITTLE)
    assert list(conflicts(table, offsets)) == []
    for a, b in shared_bytes(table, offsets):
        rise, apart = offsets[b] - offsets[a], table.separations
        assert rise >= apart.get((a, b), 99) or -rise >= apart.get((b, a), 99)


@given(tables(most=4), st.lists(st.integers(0, 12), min_size=4, max_size=4))
@examples(80)
def test_the_check_finds_what_bytes_show(table: Table, offsets: list[int]) -> None:
    """It finds something at offsets taken at random just where alignment is wrong, or bytes are shared that may not
    be."""
    given = tuple(offsets[: len(table.rows)])
    crooked = any(at % row.align_bytes for row, at in zip(table.rows, given, strict=True))
    apart = table.separations
    bad = [
        (a, b)
        for a, b in shared_bytes(table, given)
        if not (given[b] - given[a] >= apart.get((a, b), 99) or given[a] - given[b] >= apart.get((b, a), 99))
    ]
    assert bool(list(conflicts(table, given))) == (crooked or bool(bad))


@given(tables(most=4))
@examples(40)
def test_bounds_are_never_above_the_optimum(table: Table) -> None:
    """No offsets at all, found by trying every one, take less than the bound."""
    built = table_problem(table)
    bound = table_placement(table, LITTLE)[1].lower_bound_bytes
    rows = [table.rows[member] for member in built.members]
    smaller = [range(0, bound - row.size_bytes, row.align_bytes) for row in rows]

    def fits(offsets: list[int]) -> bool:
        whole = list(
            built.offsets([*offsets, *(999 + 99 * n for n in range(len(rows) - len(offsets)))], len(table.rows))
        )
        whole = [at - at % row.align_bytes if at >= 999 else at for row, at in zip(table.rows, whole, strict=True)]
        if any("overlap" in wrong for wrong in conflicts(table, whole)):
            return False
        return len(offsets) == len(rows) or any(fits([*offsets, at]) for at in smaller[len(offsets)])

    assert not rows or not fits([])


def test_times_may_be_far_apart() -> None:
    """Only the sequence of moments counts, not how long anything lasts."""
    table = parse_table("id,lower,upper,size\na,-4000000000000000000,0,8\nb,0,4000000000000000000,8\nc,-1,1,4\n")
    assert table_placement(table, LITTLE)[1].arena_bytes == 12


def test_offsets_that_are_given_are_kept_if_nothing_is_smaller() -> None:
    """They are checked first: offsets that are no placement are refused."""
    head = "id,lower,upper,size,offset\n"
    table = parse_table(head + "a,0,2,8,4\nb,0,2,4,0\n")
    offsets, found = table_placement(table, LITTLE)
    assert (sorted(offsets)[0], found.arena_bytes, found.is_optimal) == (0, 12, True)
    with pytest.raises(TableError, match="'b' and 'a' overlap at time 0, at byte 0"):
        table_placement(parse_table(head + "a,0,2,8,0\nb,0,2,4,0\n"), LITTLE)


def test_buffers_that_never_live_lie_anywhere() -> None:
    """They take no bytes, also where there is nothing else."""
    assert table_placement(parse_table("id,lower,upper,size\na,3,3,8\n"), LITTLE)[1].arena_bytes == 0
