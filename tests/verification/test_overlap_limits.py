"""The limit of each overlap is a limit of the compiled kernels: there they are right, and one element further wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagmem.kernels import library
from diagmem.model.graph import DType, Node
from diagmem.ops import kinds
from diagmem.verification import reference
from diagmem.verification.harness import differences, spans
from diagmem.verification.host import Machine, trace_on_host
from tests.backends.c.models import compiler
from tests.ops.cases import kinds_by_file
from tests.ops.drawing import is_supported, sampled, spread_out
from tests.ops.fitting import fitted, input_values
from tests.profiles import some
from tests.verification.side_by_side import Pair, side_by_side

DIAGMEM = library("diagmem")
NODES = some(48)
NODES_OF_A_NAME = some(8)
RUNS = 12


def _nodes() -> Iterator[Node]:
    """Random nodes of every kind that runs in C: their tensors in one piece, or parts of larger ones."""
    for kind in kinds_by_file().values():
        for name in kind.names:
            for seed, node in enumerate(sampled(name, max(NODES // len(kind.names), NODES_OF_A_NAME))):
                spread = spread_out(node, seed)
                found = (fitted(one, seed) for one in (node, spread) if one is node or _is_spread(one))
                yield from (one for one in found if is_supported(one) and not _has_state(one))


def _has_state(node: Node) -> bool:
    """Whether it keeps a variable, which emitted programs do not; tests/ops/test_recurrent.py runs such kinds."""
    return any(t is not None and t.is_variable for t in node.inputs)


def _is_spread(node: Node) -> bool:
    """Whether the kernel can address its tensors, though not all are in one piece."""
    touched = (*(t for _, t in node.activations()), *node.outputs)
    return not all(t.is_in_one_piece for t in touched) and kinds()[node.op.kind].can_address(node)


def _pairs() -> Iterator[Pair]:
    """Every input and output that may overlap, as far as they may. Indices are left out: wrong ones read anywhere."""
    for node in _nodes():
        kind = kinds()[node.op.kind]
        order = DIAGMEM.order(node)
        for position, source in node.activations():
            for output in range(len(node.outputs)):
                if order is None or kind.is_alias or (position and source.dtype is DType.INT32):
                    continue
                exact = kind.closed_separation(node, position, order, output)
                align = _align(node, position, output)
                if exact is not None and exact - align > -source.span_bytes:
                    yield Pair(node, position, output, -(-exact // align) * align)


def _wrong_ops(pairs: list[Pair]) -> set[int]:
    """The pairs whose node computes something else than numpy, for any of a few random inputs."""
    rng = np.random.default_rng(1)
    program = side_by_side(pairs)
    inputs = []
    for _ in range(RUNS):
        values = [value for pair in pairs for value in _given(pair.node, rng)]
        inputs.append(values)
    sent, complaint = trace_on_host(program, inputs, Machine(flags=("-O0",)))
    assert not complaint
    expected = spans(program, is_traced=True)
    size = sum(span.tensor.span_bytes for span in expected)
    wrong: set[int] = set()
    for run, values in enumerate(inputs):
        found = differences(expected, reference.run(program.graph, values), sent[run * size : (run + 1) * size])
        wrong |= {int(line.split()[1]) for line in found if line.startswith("op ")}
    return wrong


def _given(node: Node, rng: np.random.Generator) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    for (_, tensor), value in zip(
        node.activations(),
        (v for v, t in zip(input_values(node, rng), node.inputs, strict=True) if t is not None and not t.is_constant),
        strict=True,
    ):
        assert value is not None
        yield value.reshape(tensor.shape)


def _one_element_further(pair: Pair) -> Pair:
    return replace(pair, apart_bytes=pair.apart_bytes - _align(pair.node, pair.position, pair.output))


def _align(node: Node, position: int, output: int) -> int:
    """The larger element of the two."""
    return max(node.input(position).dtype.size_bytes, node.outputs[output].dtype.size_bytes)


def _shows(pair: Pair) -> bool:
    """Whether a lost element must be seen in the output. One that becomes narrower may lose its last bits unseen."""
    return pair.node.input(pair.position).dtype.size_bytes <= pair.node.outputs[pair.output].dtype.size_bytes


def test_one_element_further_corrupts() -> None:
    """At the limit every pair is right. With one element more, every kind that overlaps is seen to fail."""
    compiler("gcc")
    pairs = list(_pairs())
    assert {pair.node.op.kind for pair in pairs} >= {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MAX_POOL_2D", "SOFTMAX"}
    wrong = _wrong_ops([*pairs, *map(_one_element_further, pairs)])
    assert {op for op in wrong if op < len(pairs)} == set()
    spread = {pair.node.op.kind for pair in pairs if _is_spread(pair.node)}
    assert spread >= {"CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "RELU", "MAX_POOL_2D", "AVERAGE_POOL_2D"}
    assert max(wrong) < 2 * len(pairs)
    failed = {pairs[op - len(pairs)].node.op.kind for op in wrong}
    assert failed >= {pair.node.op.kind for pair in pairs if _shows(pair)}
