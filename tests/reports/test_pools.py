"""Pictures and pages of plans for several memories."""

from __future__ import annotations

import re
from typing import Any

import pytest

import diagmem
from diagmem.reports.arena import arena_drawing, arena_lines
from tests.backends.c.models import tiny

POOLS = ("quick:140", "large:1K:5")


def test_pools_stand_side_by_side() -> None:
    """Each with its name and what is used of it; what lies in one says so; a plan for one arena names none."""
    made = diagmem.plan(tiny(), pools=POOLS)
    drawn = arena_drawing(made.plan).svg()
    for use in made.plan.pools.uses:
        assert f"{use.pool.name}  {use.used_bytes} B" in drawn
    assert "large bytes 0 to" in drawn
    assert "quick" not in arena_drawing(diagmem.plan(tiny()).plan).svg()


def test_the_page_has_a_row_for_each() -> None:
    page = diagmem.report(tiny(), pools=POOLS)["report.html"].decode()
    assert '<th scope="row">quick</th>' in page
    assert '<th scope="row">large</th>' in page
    assert "One memory for everything" in page


def test_copies_of_weights_are_shown() -> None:
    """As blocks of their own kind in the picture, and in a table on the page with what they are worth."""
    options: dict[str, Any] = {"pools": ("quick:600", "large:1K:5"), "weights_pool": "quick:20"}
    made = diagmem.plan(tiny(), **options)
    drawn = arena_drawing(made.plan).svg()
    assert drawn.count('class="block weights"') == len(made.plan.weight_copies) > 0
    assert "weight copy" in drawn
    page = diagmem.report(tiny(), **options)["report.html"].decode()
    assert "weights copied to quick" in page
    assert "without copies it would cost" in page


@pytest.mark.parametrize(
    "options",
    [{"buffers": {"input": "external"}}, {"pools": POOLS}, {"pools": POOLS, "buffers": {"input": "external"}}],
)
def test_the_map_in_a_terminal_has_all_memories(options: dict[str, Any]) -> None:
    """Also what the caller holds, behind the arena; each memory is named where it begins."""
    plan = diagmem.plan(tiny(), **options).plan
    lines = arena_lines(plan, 100)
    assert max(map(len, lines)) <= 100
    for use in plan.pools.in_use.uses:
        assert f"|{use.pool.name}" in lines[1]


def test_what_the_caller_holds_is_on_the_sheet() -> None:
    """No block of a picture ends right of the map."""
    plan = diagmem.plan(tiny(), buffers={"input": "external"}).plan
    assert plan.end_bytes > plan.arena_bytes
    drawn = arena_drawing(plan)
    ends = [
        float(x) for path in re.findall(r'<path d="([^"]+)"', drawn.body) for x in re.findall(r"([\d.]+)[ ,]", path)
    ]
    assert max(ends) <= drawn.width
