"""What makes a model fit, the cheapest first."""

from __future__ import annotations

import diagmem
from diagmem.cli._limits import attempts
from diagmem.planning.options import Options
from tests.backends.c.models import tiny


def test_what_is_tried_in_which_order() -> None:
    """Whole, by rows, streamed, with more work, in more memories, and at last in a larger pool."""
    options = Options(effort="quick", pools=("fast:40", "slow:60:2"))  # type: ignore[arg-type]
    tried = list(attempts(tiny(), options, lambda made: made.plan.pools.missing_bytes))
    assert [sorted(t.changes) for t in tried[:3]] == [[], ["schedule"], ["input_rows"]]
    assert "recompute" in tried[3].changes
    assert [t.fits for t in tried] == [False] * (len(tried) - 1) + [True]
    assert tried[-1].changes["pools"][-1].capacity_bytes > 60
    smallest = min(t.missing_bytes for t in tried[:-1])
    assert tried[-1].changes["pools"][-1].capacity_bytes == 60 + smallest


def test_more_memories_are_tried_last() -> None:
    single = diagmem.plan(tiny()).arena_bytes
    found = list(attempts(tiny(), Options(effort="quick"), lambda made: 0 if made.plan.pools else 1, ("a:100", "b:4K")))
    assert found[-1].fits
    assert found[-1].changes == {"pools": ("a:100", "b:4K")}
    assert all("pools" not in t.changes for t in found[:-1])
    assert found[0].made is not None
    assert found[0].made.arena_bytes == single


def test_what_cannot_be_planned_is_told() -> None:
    """A streamed input that must be kept is no plan, and the others go on."""
    found = list(attempts(tiny(), Options(effort="quick", keep_inputs=True), lambda made: 1))
    assert any(t.made is None and t.reason for t in found)
    assert found[0].made is not None
