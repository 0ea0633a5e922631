"""Tables, figures and pages that a person can judge."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagmem.planning.plan import Plan
    from diagmem.planning.planner import Planned


def arena_svg(plan: Plan, theme: str = "auto") -> str:
    """The arena map of a plan as an SVG file; `theme` is auto, light or dark."""
    from diagmem.reports.arena import arena_drawing

    return arena_drawing(plan).svg(theme)


def plan_html(made: Planned) -> str:
    """A plan for a notebook: its figures, and the arena map as an image, so that its style stays its own."""
    from diagmem.reports.drawing import kb, plain, tag

    plan = made.plan
    words = f"{plan.graph.name}: {kb(made.baseline_bytes)} before, {kb(plan.arena_bytes)} after, {plan.standing}"
    image = base64.b64encode(arena_svg(plan).encode()).decode("ascii")
    return tag("p", plain(words)) + tag("img", src=f"data:image/svg+xml;base64,{image}", alt=words)
