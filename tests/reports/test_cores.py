"""The picture of several cores shows each of them, in every phase, within the arena."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from diagmem import pipeline
from diagmem.planning.cores.multicore import running_steps
from diagmem.reports.charts import LABELS, WIDTH, cores_drawing


@pytest.mark.parametrize("cores", [2, 4])
def test_every_core_is_seen(cores: int) -> None:
    """With a name for each op, and nothing outside the arena."""
    plan = pipeline.plan("zoo:kws_dscnn_int8", cores=cores).plan
    drawn = cores_drawing(plan, cores)
    root = ElementTree.fromstring(drawn.svg())
    blocks = [e for e in root.iter() if e.tag.endswith("rect") and float(e.get("y") or 0) >= 80]
    assert len({e.get("class") for e in blocks} - {"t3", "shared", "paper"}) == cores
    for block in blocks:
        x, width = float(block.get("x") or 0), float(block.get("width") or 0)
        assert x >= LABELS - 0.01
        assert x + width <= LABELS + WIDTH + 0.01
    labels = re.findall(r"small end\">(\d+) ", drawn.body)
    assert [int(label) for label in labels] == [plan.graph.ops[step.op].number for step in running_steps(plan)]


def test_rows_are_seen_too() -> None:
    """The first steps of a run row by row, with those of the caller, by both cores."""
    plan = pipeline.plan("zoo:vww_96_int8", cores=2, schedule="rows", input_rows=True).plan
    drawn = cores_drawing(plan)
    assert "the first" in drawn.body
    assert "the caller" in drawn.body
    root = ElementTree.fromstring(drawn.svg())
    blocks = [e for e in root.iter() if e.tag.endswith("rect") and float(e.get("y") or 0) >= 80]
    assert {"made", "t0", "t3", "shared"} <= {e.get("class") for e in blocks}
    assert all(float(e.get("x") or 0) + float(e.get("width") or 0) <= LABELS + WIDTH + 0.01 for e in blocks)


def test_the_report_has_it_where_cores_are_asked_for() -> None:
    """And says nothing of cores elsewhere."""
    asked, other = (pipeline.report("zoo:kws_dscnn_int8", cores=cores) for cores in (2, 1))
    assert "cores.svg" in asked
    assert b"What each core accesses" in asked["report.html"]
    assert "cores.svg" not in other
    assert b"What each core accesses" not in other["report.html"]
