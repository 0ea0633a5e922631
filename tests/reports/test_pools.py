"""Pictures and pages of plans for several memories."""

from __future__ import annotations

import diagmem
from diagmem.reports import arena_svg
from tests.backends.c.models import tiny

POOLS = ("quick:140", "large:1K:5")


def test_pools_stand_side_by_side() -> None:
    """Each with its name and what is used of it; what lies in one says so; a plan for one arena names none."""
    made = diagmem.plan(tiny(), pools=POOLS)
    drawn = arena_svg(made.plan)
    for use in made.plan.pools.uses:
        assert f"{use.pool.name}  {use.used_bytes} B" in drawn
    assert "large bytes 0 to" in drawn
    assert "quick" not in arena_svg(diagmem.plan(tiny()).plan)


def test_the_page_has_a_row_for_each() -> None:
    page = diagmem.report(tiny(), pools=POOLS)["report.html"].decode()
    assert '<th scope="row">quick</th>' in page
    assert '<th scope="row">large</th>' in page
    assert "One memory for everything" in page


def test_copies_of_weights_are_shown() -> None:
    """As blocks of their own kind in the picture, and in a table on the page with what they are worth."""
    options = {"pools": ("quick:600", "large:1K:5"), "weights_pool": "quick:20"}
    made = diagmem.plan(tiny(), **options)
    drawn = arena_svg(made.plan)
    assert drawn.count('class="block weights"') == len(made.plan.staged) > 0
    assert "weights, copied for an op" in drawn
    page = diagmem.report(tiny(), **options)["report.html"].decode()
    assert "weights copied to quick" in page
    assert "without copies it would cost" in page
