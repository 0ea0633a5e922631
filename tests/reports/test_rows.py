"""Pictures of plans that run row by row: windows that move, rows as blocks, rows of one tensor alike."""

from __future__ import annotations

import re

import diagmem
from diagmem.planning.plan import Plan
from diagmem.reports.arena import arena_drawing
from diagmem.reports.blocks import Picture, row_windows
from diagmem.reports.charts import live_drawing
from tests.networks import Net


def tall() -> Plan:
    net = Net()
    graph = net.graph(net.conv(net.conv(net.input(1, 12, 6, 4), 16), 4))
    return diagmem.plan(graph, schedule="rows", skip="all").plan


def test_windows_move_with_the_rows() -> None:
    """The input is used up from its start, the output grows to its end; bytes and steps only ascend."""
    plan = tall()
    windows = row_windows(plan)
    (given,), (made,) = plan.graph.inputs, plan.graph.outputs
    assert windows[given].made == () == windows[made].needed
    for edge in (windows[given].needed, windows[made].made):
        assert list(edge) == sorted(edge)
        assert edge[-1][0] == plan.graph.tensors[given].size_bytes
    assert windows[made].made[-1][1] == len(plan.schedule.steps) - 1


def test_each_row_is_a_block_and_windows_are_not_full() -> None:
    picture = Picture(tall())
    rows = [block for block in picture.blocks if block.buffer.rows is not None]
    assert len(rows) == 12
    assert all(block.is_full for block in rows)
    assert not any(block.is_full for block in picture.blocks if block.buffer.rows is None)


def test_the_map_can_be_drawn() -> None:
    svg = arena_drawing(tall(), last_step=10).svg()
    assert "op 0 row 0, conv 2d" in svg


def test_live_bytes_of_rows_and_of_layers_are_drawn_over_the_same_run() -> None:
    """Two steps or many: both curves go from the left edge of the chart to its right one."""
    net = Net()
    graph = net.graph(net.conv(net.conv(net.input(1, 12, 6, 4), 16), 4))
    made = diagmem.plan(graph, schedule="rows", skip="all")
    assert len(made.baseline.schedule.steps) < len(made.plan.schedule.steps)
    svg = live_drawing(made.baseline, made.plan, width=700).svg()
    for class_ in ("area", "area2"):
        (outline,) = re.findall(rf'd="M([^"]*)Z" class="{class_}"', svg)
        across = [float(point.split()[0]) for point in outline.split("L")]
        assert (min(across), max(across)) == (76, 776)
        assert across[:-1] == sorted(across[:-1])
