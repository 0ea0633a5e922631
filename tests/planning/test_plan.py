"""What a plan tells of where its tensors lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import diagmem
from diagmem.model.graph import Graph
from diagmem.planning.plan import Storage
from tests.networks import Net, chain
from tests.row_networks import image_net, line_net


@pytest.mark.parametrize(("net", "seed", "align"), [(image_net, 14, 1), (image_net, 5, 16), (line_net, 1, 1)])
def test_only_what_lies_in_one_piece_has_an_offset(net: Callable[[int], Graph], seed: int, align: int) -> None:
    """Rows with gaps between them, where other tensors may lie, are no piece, though a rule says where they are."""
    plan = diagmem.plan(net(seed), schedule="rows", align=align, allocator="greedy").plan
    tensors = plan.graph.tensors
    pieces = {t for t, how in plan.storage.items() if how == in_one_piece(how, tensors[t].row_bytes)}
    assert any(how.form == "linear" and t not in pieces for t, how in plan.storage.items())
    assert {t for t in plan.offsets if tensors[t].view is None} == pieces
    assert {t for o in plan.overlaps for t in (o.input, o.output)} <= pieces


def in_one_piece(how: Storage, row_bytes: int) -> Storage:
    return Storage.linear(how.offsets[0], how.height, row_bytes)


def test_rows_that_run_downwards_are_no_piece() -> None:
    net = Net()
    plan = diagmem.plan(net.graph(net.relu(net.input(1, 4, 2, 1))), skip="all").plan
    upside_down = Storage.of([6, 4, 2, 0])
    assert upside_down.form == "linear"
    assert replace(plan, storage={**plan.storage, 0: upside_down}).offsets.keys() == plan.offsets.keys() - {0}


def test_ram_before_speed_where_kernels_have_no_choice() -> None:
    """Others' kernels come with their scratch: a plan for RAM is then the plan for speed."""
    graph = chain(8, 8)
    for kernels in ("cmsis-nn", "cmsis-nn-mve", "tflm-reference"):
        plans = [diagmem.plan(graph, kernels=kernels, prefer=prefer) for prefer in ("speed", "ram")]
        assert plans[0].arena_bytes == plans[1].arena_bytes
