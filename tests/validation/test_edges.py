"""Right at the edge is inside, one byte further is not: of the arena, of pools, of alignments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from diagmem.validation import Fault, Pool, Rules
from tests.validation.plans import LARGE, Laid
from tests.validation.test_faults import MEAN, X, Y, Z, held, placed, streamed, whole, with_row

EDGE, BORDER = 12_000, 10_000
"""Above all that is not moved."""


def in_one_piece(tensor: int, at: int) -> Laid:
    return placed(whole(), tensor, *(at + 8 * row for row in range(4)))


MOVED: dict[str, tuple[Callable[[int], Laid], int]] = {
    "a row": (lambda at: with_row(streamed(), Y, 2, at), 8),
    "the first row": (lambda at: with_row(streamed(), Z, 0, at), 8),
    "the last row": (lambda at: with_row(streamed(), X, 3, at), 8),
    "sums": (lambda at: held(streamed(), MEAN, at), 8),
    "a tensor": (lambda at: in_one_piece(Y, at), 32),
}
"""What is put at an address, and its bytes."""


def faults(laid: Laid, arena_bytes: int = LARGE, rules: Rules | None = None) -> set[Fault]:
    return {finding.fault for finding in laid.findings(arena_bytes, rules or Rules())}


@pytest.mark.parametrize("what", MOVED)
def test_the_ends_of_the_arena(what: str) -> None:
    """What begins at address 0, or ends where the arena does, is inside."""
    put, size = MOVED[what]
    assert faults(put(EDGE - size), EDGE) == set()
    assert faults(put(EDGE - size + 4), EDGE) == {Fault.OUTSIDE}
    assert Fault.OUTSIDE in faults(put(EDGE - size + 1), EDGE)
    assert Fault.OUTSIDE not in faults(put(0))
    assert Fault.OUTSIDE in faults(put(-1))


@pytest.mark.parametrize("what", MOVED)
def test_the_borders_of_pools(what: str) -> None:
    """What ends or begins at a border is in one pool, one byte across it is in none; nor are rows on both sides."""
    put, size = MOVED[what]
    rules = Rules(pools=(Pool("low", 0, BORDER, BORDER), Pool("high", BORDER, EDGE, EDGE - BORDER)))
    above = {Fault.ACROSS_POOLS} if "row" in what else set()
    assert faults(put(BORDER - size), EDGE, rules) == set()
    assert faults(put(BORDER - 4), EDGE, rules) == {Fault.ACROSS_POOLS}
    assert Fault.ACROSS_POOLS in faults(put(BORDER - size + 1), EDGE, rules)
    assert Fault.ACROSS_POOLS in faults(put(BORDER - 1), EDGE, rules)
    assert faults(put(BORDER), EDGE, rules) == above
    assert faults(put(EDGE - size), EDGE, rules) == above


@pytest.mark.parametrize("begin", [0, 64])
@pytest.mark.parametrize(("spare", "found"), [(0, set()), (1, set()), (-1, {Fault.POOL_OVERRUN})])
def test_a_pool_may_be_used_up(begin: int, spare: int, found: set[Fault]) -> None:
    """Wherever it begins: from there to its end, as many bytes as it has."""
    laid = in_one_piece(X, 64)
    pools = (Pool("none", 0, begin, begin), Pool("all", begin, LARGE, LARGE - begin + spare))
    assert faults(laid, LARGE, Rules(pools=pools)) == found


@pytest.mark.parametrize("align", [2, 4, 8])
@pytest.mark.parametrize("what", MOVED)
def test_offsets_are_multiples_of_the_alignment(what: str, align: int) -> None:
    """Any multiple is right, and nothing between."""
    put, _ = MOVED[what]
    rest = faults(streamed() if "row" in what or what == "sums" else whole(), LARGE, Rules(align_bytes=align))
    assert faults(put(8000 + 8 * align), LARGE, Rules(align_bytes=align)) == rest
    assert Fault.MISALIGNED in faults(put(8000 + align // 2), LARGE, Rules(align_bytes=align))


@pytest.mark.parametrize("align", [1, 2, 4, 8])
def test_inputs_may_have_an_alignment_of_their_own(align: int) -> None:
    """It is asked of them, and of nothing else."""
    rules = Rules(input_align_bytes=align)
    assert faults(in_one_piece(X, 8000 + align), LARGE, rules) == set()
    assert faults(in_one_piece(X, 8000 + align), LARGE, Rules(input_align_bytes=2 * align)) == {Fault.MISALIGNED}
    assert faults(in_one_piece(Y, 8001), LARGE, rules) == set()
