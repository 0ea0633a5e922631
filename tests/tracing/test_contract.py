"""The contract test's last part: what compiled kernels do is what `accesses` says, on x86 and on a micro-controller."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from diagmem.kernels import library
from diagmem.model.graph import DType, Node
from diagmem.ops import kinds
from diagmem.tracing.analysis import trace_ops
from diagmem.tracing.model import build_model, has_kernel, side_by_side
from tests.ops.cases import case_modules
from tests.ops.deep_nodes import KINDS, deep_nodes
from tests.ops.fitting import fitted
from tests.profiles import examples
from tests.tracing.conftest import require_cortex_m, require_native
from tests.tracing.dressed import runnable

CASES = case_modules()
NODES_OF_A_KIND = 4
BY_DATA = ("CUSTOM:TFLite_Detection_PostProcess",)
"""Kinds whose kernels touch memory in an order that depends on their data: a trace refuses them, and plans keep their
tensors apart."""

MOST_SEEDS = 24
"""With so many, a node has been of every type that its kernels take."""


@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
@examples(2, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_traced_overlap_is_the_exact_one(
    on: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Every kind that has a C kernel, in every type, over a few shapes at once."""
    (require_native if on == "x86" else require_cortex_m)()
    check(on, drawn_nodes(data, NODES_OF_A_KIND), tmp_path_factory.mktemp("ops"))


def drawn_nodes(data: st.DataObject, count: int) -> list[Node]:
    """Random nodes that C code can run."""
    found: list[Node] = []
    for strategy in CASES.values():
        for seed in range(count):
            found += runnable(data.draw(strategy), seed)
    return [node for node in found if node.op.kind not in BY_DATA]


@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
@examples(2, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(data=st.data())
@pytest.mark.deep
def test_kernels_for_16_bits_are_traced_alike(
    on: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Integers of 16 bits, as far as there are kernels for them."""
    (require_native if on == "x86" else require_cortex_m)()
    found = [wide(data.draw(strategy)) for strategy in CASES.values() for _ in range(NODES_OF_A_KIND)]
    nodes = [node for node in found if node is not None]
    assert len({node.op.kind for node in nodes}) > 8
    check(on, nodes, tmp_path_factory.mktemp("ops"))


@pytest.mark.parametrize("kernels", ["diagmem-dsp", "diagmem-dsp/all", "diagmem-mve", "diagmem-mve/all"])
@pytest.mark.parametrize("on", ["x86", "cortex-m4"])
def test_kernels_for_more_than_plain_c_are_traced_alike(on: str, kernels: str, tmp_path: Path) -> None:
    """The fastest ones and those without scratch, as instructions of the core and as what these mean in plain C."""
    (require_native if on == "x86" else require_cortex_m)()
    check(on, [node for kind in KINDS for node in deep_nodes(kind, 10)], tmp_path, kernels)


def wide(node: Node) -> Node | None:
    """The node on integers of 16 bits, if C code can run it so and all it has in RAM are such. Nodes with an index in
    RAM are left out: what they touch depends on its value."""
    if any(kinds()[node.op.kind].index_range(node, position) for position, _ in node.activations()):
        return None
    for seed in range(MOST_SEEDS):
        found = fitted(node, seed)
        activations = [t for _, t in found.activations()]
        if activations and all(t.dtype is DType.INT16 for t in activations) and has_kernel(found):
            return found
    return None


def called_once(nodes: list[Node], kernels: str) -> list[Node]:
    """Nodes whose kernel no other node calls. A compiler would make a kernel for such a call alone, which may read
    earlier than the kernel in general; so they are called twice."""
    functions = [library(kernels).call(node).function for node in nodes]
    return [node for node, function in zip(nodes, functions, strict=True) if functions.count(function) == 1]


def check(on: str, nodes: list[Node], place: Path, kernels: str = "diagmem") -> None:
    nodes = [*nodes, *called_once(nodes, kernels)]
    rows = trace_ops(build_model(side_by_side(nodes, kernels), on, place), nodes)
    pairs = sum(len(node.outputs) * len(list(node.activations())) for node in nodes)
    assert len(rows) == pairs
    wrong = [f"{r.node and r.node.label}: traced {r.overlap.monotone}, exact {r.exact}" for r in rows if not r.agrees]
    assert not wrong
