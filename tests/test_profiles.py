"""What a quick run leaves out: combinations, examples, and nothing else."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import settings

from tests import profiles


@pytest.mark.parametrize("letter", "vwxyz")
@pytest.mark.parametrize(("number", "doubled"), [(1, 2), (2, 4), (3, 6)])
def test_some_combinations(number: int, doubled: int, letter: str) -> None:
    """For the next test: five of these have all values."""
    assert doubled * letter == letter * number * 2


def test_every_value_of_a_parameter_is_in_a_quick_run(request: pytest.FixtureRequest) -> None:
    """Of each test of this run, the cases that are chosen have the values of all its cases, and are no more than
    these."""
    for _, found in groupby(request.session.items, lambda item: item.nodeid.partition("[")[0]):
        cases = list(found)
        values = {value for case in cases for value in profiles.values(case)}
        chosen = profiles.covering(cases)
        assert {value for case in chosen for value in profiles.values(case)} == values
        assert 0 < len(chosen) <= max(1, len(values))


def test_a_quick_run_tries_a_share_of_the_examples() -> None:
    """At least a few, never more than the full run."""
    full, quick = (settings.get_profile(name).max_examples for name in (profiles.EVERYTHING, profiles.QUICK))
    assert [profiles.scaled(count, full) for count in (2, 20, 400)] == [2, 20, 400]
    assert [profiles.scaled(count, quick) for count in (2, 20, 400)] == [2, profiles.FEWEST, 4 * quick]
    assert quick <= 25


def test_cases_share_what_there_is() -> None:
    """Together they go through all of it; in a full run each does."""
    items = list(range(997))
    every = len(items) // profiles.some(len(items))
    shares = [profiles.share(items, number) for number in range(every)]
    assert {item for share in shares for item in share} == {*items}
    assert len(shares[0]) == -(-len(items) // every)
    assert profiles.share([], 3) == []
