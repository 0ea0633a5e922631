"""How far a plan may be from the best, in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.planning.needs.problem import Gap


@pytest.mark.parametrize(
    ("found", "bound", "words"),
    [
        (96, 96, "proven optimal"),
        (0, 0, "proven optimal"),
        (90, 96, "proven optimal"),
        (156_492, 150_566, "at most 5,926 bytes (4.0 %) above the optimum"),
        (1_000_001, 1_000_000, "at most 1 byte (0.1 %) above the optimum"),
        (8, 0, "at most 8 bytes above the optimum"),
    ],
)
def test_it_is_said_once_and_for_all(found: int, bound: int, words: str) -> None:
    """Proven, or bytes and their share; with nothing to compare with, bytes alone."""
    assert Gap(found, bound).words == words


@given(st.integers(1, 10**7), st.integers(0, 10**7))
def test_the_share_is_never_made_smaller(bound: int, above: int) -> None:
    """What is said in per cent is at least what it is, and not a tenth more."""
    words = Gap(bound + above, bound).words
    said = float(words.split("(")[1].split(" %")[0]) if above else 0.0
    assert 100 * above / bound <= said + 1e-9 < 100 * above / bound + 0.1 + 2e-9
