"""TensorFlow Lite Micro's own kernels are right where their tensors overlap as far as `tflm-reference` says."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from diagmem.frontends.tflite import writer
from diagmem.kernels import library
from diagmem.model.graph import Node
from diagmem.ops import kinds
from tests.ops.compiled import Place, overlapped
from tests.ops.drawing import CASES, drawn
from tests.ops.fitting import input_values
from tests.ops.single_op import Job, answered, is_installed, to_tflite

TFLM = library("tflm-reference")
ONLINE = -1

CAPRICIOUS = ("SPACE_TO_BATCH_ND",)
"""Kinds of which each run gives something else: this one pads with what it happens to find."""


class Case(NamedTuple):
    """A node, and its tensors where they overlap."""

    node: Node
    place: Place
    is_too_near: bool = False


def _cases(node: Node) -> Iterator[Case]:
    """Each input over each output: as near as may be, and nearer."""
    kind = kinds()[node.op.kind]
    if node.op.kind in CAPRICIOUS or kind.is_alias or kind.states(node) or TFLM.scratch_bytes(node):
        return
    for position, tensor in node.activations():
        for output, made in enumerate(node.outputs):
            separation = TFLM.separation(node, position, output)
            if separation is not None and separation < made.size_bytes:
                unit = max(tensor.dtype.size_bytes, made.dtype.size_bytes)
                near = -(-separation // unit) * unit
                yield Case(node, overlapped(node, position, output, near))
                if near > -tensor.size_bytes:
                    yield Case(node, overlapped(node, position, output, near - unit), is_too_near=True)


def _planned(case: Case) -> bytes:
    """The node's file with this plan inside; constants are left to the runtime."""
    tensors = [t for t in (*case.node.inputs, *case.node.outputs) if t is not None]
    offsets = [ONLINE if t.is_constant else case.place.offsets[t.index] for t in tensors]
    block = struct.pack(f"<{3 + len(offsets)}i", 1, 1, len(offsets), *offsets)
    return writer.rewritten(to_tflite(case.node), {"OfflineMemoryAllocation": block})


def _jobs(cases: Sequence[Case]) -> list[Job]:
    """Of each case the file as it is, and with the plan."""
    jobs: list[Job] = []
    for index, case in enumerate(cases):
        values = input_values(case.node, np.random.default_rng(index))
        pairs = zip(values, case.node.inputs, strict=True)
        given = [np.asarray(v) for v, t in pairs if t is not None and not t.is_constant]
        jobs += [(model, given, len(case.node.outputs)) for model in (to_tflite(case.node), _planned(case))]
    return jobs


@pytest.mark.skipif(not is_installed("tflm"), reason="needs tflite_micro")
def test_tflms_kernels_are_right_at_their_limits() -> None:
    """The same bytes come out as with tensors apart, for every kind that it runs; of kinds that have a limit, most are
    seen to fail beyond it."""
    cases = [case for name in CASES for node in drawn(name, 1) for case in _cases(node)]
    answers = answered("tflm", _jobs(cases))
    right: set[str] = set()
    limited: set[str] = set()
    caught: set[str] = set()
    for case, apart, near in zip(cases, answers[::2], answers[1::2], strict=True):
        if isinstance(apart, str):
            continue
        agree = not isinstance(near, str) and all(x.tobytes() == y.tobytes() for x, y in zip(apart, near, strict=True))
        if case.is_too_near:
            limited.add(case.node.op.kind)
            caught |= set() if agree else {case.node.op.kind}
        else:
            assert agree, (case, near)
            right.add(case.node.op.kind)
    assert len(right) > 40
    assert len(caught) > len(limited) / 2, limited - caught
