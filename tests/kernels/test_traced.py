"""A library known only from traces plans as one whose source is known, and what was not traced does not overlap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem import pipeline
from diagmem.frontends import zoo
from diagmem.kernels import library, signature
from diagmem.kernels._traced import TracedLibrary, TracedOp, signature_text
from diagmem.kernels.overlaps import all_overlaps
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.ops.accesses import replayed_separation
from tests.ops.cases import activation, node_of

BAD_ROWS = (
    '{"signature": {}, "position": 0, "number": 0, "traced": -1}',
    '{"signature": {}, "position": 0, "number": 0, "traced": 1.5}',
    '{"signature": {}, "position": true, "number": 0, "traced": 1}',
    '{"signature": {}, "position": 0, "number": 0, "traced": 1, "scratch_bytes": 1e999}',
    '{"signature": {}, "position": 0, "number": 0, "traced": 99999999999999}',
)

MODELS = ("kws_dscnn_int8", "resnet8_int8", "mobilenet_v1_0.25_128_int8")


def trace_file(graph: Graph, path: Path, *without: int) -> str:
    """The library of a trace that found every exact overlap of our kernels, but for some ops."""
    rows: list[dict[str, Any]] = []
    for overlap in all_overlaps(graph, library("diagmem"), ("exact",)):
        node = overlap.node
        if node.op.index not in without:
            rows.append(
                {
                    "signature": signature(node),
                    "position": node.op.inputs.index(overlap.input.index),
                    "number": node.op.outputs.index(overlap.output.index),
                    "traced": overlap.exact,
                }
            )
    path.write_text(json.dumps({"rows": rows}))
    return f"traced:{path}"


@pytest.mark.parametrize("name", MODELS)
def test_plan_is_that_of_the_same_overlaps(name: str, tmp_path: Path) -> None:
    """Given the exact overlaps as traces, the plan is as small as from closed forms, and passes the validator."""
    graph = zoo.build(name)
    options: dict[str, Any] = {"schedule": "file", "allocator": "greedy"}
    traced = pipeline.plan(graph, kernels=trace_file(graph, tmp_path / "trace.json"), **options)
    exact = pipeline.plan(graph, kernels="diagmem", **options)
    assert traced.arena_bytes == exact.arena_bytes
    assert traced.plan.options.kernels.startswith("traced:")


def test_what_was_not_traced_may_not_overlap(tmp_path: Path) -> None:
    """Leaving out the op that sets the peak costs its whole overlap."""
    graph = zoo.build("mobilenet_v1_0.25_128_int8")
    known = pipeline.plan(graph, schedule="file", allocator="greedy")
    peak_op = known.plan.peak_op
    assert peak_op is not None
    partly = trace_file(graph, tmp_path / "trace.json", peak_op)
    made = pipeline.plan(graph, kernels=partly, schedule="file", allocator="greedy")
    assert made.arena_bytes == known.baseline_bytes
    assert peak_op not in {o.op for o in made.plan.overlaps}


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from((1, 4)), st.sampled_from((1, 4)), st.data())
def test_accesses_have_the_traced_separation(
    elems_in: int, elems_out: int, in_size: int, out_size: int, data: st.DataObject
) -> None:
    """The kernel that the validator is shown needs just the separation that was traced, up to whole elements."""
    types = {1: DType.INT8, 4: DType.FLOAT32}
    node = node_of("QUANTIZE", None, [activation((elems_in,), types[in_size])], (types[out_size],), ((elems_out,),))
    whole = elems_in * in_size + elems_out * out_size
    overlap = data.draw(st.integers(0, whole))
    known = TracedLibrary("traced:x", "", {}, traces={signature_text(node): TracedOp({(0, 0): overlap})})
    separation = known.separation(node, 0, 0)
    accesses = known.accesses(node)
    assert separation == elems_out * out_size - overlap
    assert accesses is not None
    replayed = replayed_separation(accesses, 0, 0, in_size, out_size)
    floor = -elems_in * in_size
    assert max(floor, floor if replayed is None else replayed) <= separation
    last_read_follows_a_write = separation + (elems_in - 1) * in_size >= out_size
    if in_size == out_size and separation % out_size == 0 and last_read_follows_a_write:
        assert replayed == separation


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a file that `diagmem trace --json` writes"),
        ("[]", "not a file that `diagmem trace --json` writes"),
        ('{"rows": 3}', "not a file that `diagmem trace --json` writes"),
        ('{"rows": [{"signature": {}}]}', "not a file that `diagmem trace --json` writes"),
        ('{"rows": ["x"]}', "not a file that `diagmem trace --json` writes"),
        ('{"rows": {"a": 1}}', "not a file that `diagmem trace --json` writes"),
        ('{"rows": [], "align_bytes": 0}', "not a file that `diagmem trace --json` writes"),
        ('{"rows": [], "align_bytes": 12}', "not a file that `diagmem trace --json` writes"),
        (f'{{"rows": [], "align_bytes": {2**64}}}', "not a file that `diagmem trace --json` writes"),
        *((f'{{"rows": [{row}]}}', "not a file that `diagmem trace --json` writes") for row in BAD_ROWS),
        (None, "No such file"),
    ],
)
def test_bad_files_are_refused_in_one_line(content: str | None, said: str, tmp_path: Path) -> None:
    """Whatever is wrong with the file, the message names it and says what writes one."""
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PlanError, match=said) as caught:
        library(f"traced:{path}")
    assert "\n" not in str(caught.value)
