"""The places of rows, judged one by one by the plainest rules, and each that breaks one is named."""

from __future__ import annotations

from itertools import pairwise
from math import lcm

from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.graph import DType
from diagmem.validation import Fault, Finding, Pool, Rules
from diagmem.validation.findings import Checker
from tests.networks import Net
from tests.profiles import examples

ARENA_BYTES = 40
ROW_BYTES = 4

STARTS = st.one_of(st.integers(-6, ARENA_BYTES + 2), st.integers(2, 8).map(lambda word: 4 * word))


def expected(rows: list[int], rules: Rules, elem_bytes: int, is_input: bool) -> list[Finding]:
    """What is wrong with rows: those outside; if there are none, that no pool has all; and if one has, those that are
    not aligned, of a tensor in one piece its first."""
    outside = [row for row, at in enumerate(rows) if at < 0 or at + ROW_BYTES > ARENA_BYTES]
    if outside:
        return [Finding(Fault.OUTSIDE, tensor="t0", byte=rows[row], row=row) for row in outside]
    pools = [pool for pool in rules.pools if all(pool.begin <= at and at + ROW_BYTES <= pool.end for at in rows)]
    if rules.pools and not pools:
        return [Finding(Fault.ACROSS_POOLS, tensor="t0", byte=min(rows))]
    align = lcm(elem_bytes, rules.align_bytes, rules.input_align_bytes if is_input else 1)
    if rows == [rows[0] + n * ROW_BYTES for n in range(len(rows))]:
        return [Finding(Fault.MISALIGNED, tensor="t0", byte=rows[0])] if rows[0] % align else []
    return [Finding(Fault.MISALIGNED, tensor="t0", byte=at, row=row) for row, at in enumerate(rows) if at % align]


@given(
    st.one_of(
        st.lists(STARTS, min_size=3, max_size=3),
        STARTS.map(lambda at: [at, at + ROW_BYTES, at + 2 * ROW_BYTES]),
    ),
    st.sampled_from([(), (0, 20, 40), (4, 24, 36), (0, 40)]),
    st.sampled_from([1, 2, 4, 3]),
    st.sampled_from([1, 4]),
    st.sampled_from([DType.INT8, DType.INT16, DType.FLOAT32]),
    st.booleans(),
)
@examples(400)
def test_rows_anywhere(
    rows: list[int], borders: tuple[int, ...], align: int, input_align: int, dtype: DType, is_input: bool
) -> None:
    """Outside the arena, in no pool, not aligned: exactly the rows that are, by number and address."""
    pools = tuple(Pool("p", low, high, high - low) for low, high in pairwise(borders))
    rules = Rules(align_bytes=align, input_align_bytes=input_align, pools=pools)
    net = Net(dtype)
    rowed = net.tensor((1, 3, 1, ROW_BYTES // dtype.size_bytes))
    net.inputs += [rowed] if is_input else []
    checker = Checker(net.graph(), ARENA_BYTES, rules)
    placed = checker.check({rowed: rows}, {}, [], [rowed], set())
    wanted = expected(rows, rules, dtype.size_bytes, is_input)
    assert placed.findings == wanted
    is_usable = not {finding.fault for finding in wanted} & {Fault.OUTSIDE, Fault.ACROSS_POOLS}
    assert ({t: found.tolist() for t, found in placed.rows.items()} == {rowed: rows}) is is_usable
