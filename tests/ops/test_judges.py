"""Of every kind on integers: which runtime has it, and that its numbers are ours.

TensorFlow Lite Micro judges what it runs, and LiteRT what only it runs. What neither runs is listed, with all there is.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Set
from dataclasses import replace

import numpy as np
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Tensor
from diagmem.ops import kinds
from diagmem.ops.kind import Array
from diagmem.verification.oracles import deviation
from tests.ops.drawing import CASES, runnable
from tests.ops.fitting import input_values
from tests.ops.single_op import ask, is_installed

NARROW = {DType.INT4, DType.INT8, DType.UINT8, DType.INT16}

DRAWN, NODES = 200, 4
"""Of each name, and of each of its types."""

NUMBERS = 20_000
"""That each node makes where it can take many images: one rounding in ten thousand may be another."""

Types = tuple[str, str]
"""A kind, and the types of what it reads and makes."""


def types_of(node: Node) -> Types:
    """Constants are in brackets; `*` stands for several scales."""

    def told(tensor: Tensor | None) -> str:
        if tensor is None:
            return "-"
        name = tensor.dtype.value + ("*" if tensor.quantisation and tensor.quantisation.per_channel else "")
        return f"({name})" if tensor.is_constant else name

    read = [told(t) for t in node.inputs[:4]]
    return node.op.kind, f"{' '.join(dict.fromkeys(read))} > {node.output.dtype.value}"


def _has_state(node: Node) -> bool:
    """A file of one operation cannot hold what a variable was, or whose handle it is."""
    return node.op.kind in ("READ_VARIABLE", "ASSIGN_VARIABLE") or bool(kinds()[node.op.kind].states(node))


@functools.cache
def drawn_by_types(case: str) -> dict[Types, list[Node]]:
    found: dict[Types, list[Node]] = defaultdict(list)
    for node in itertools.islice(runnable(case), DRAWN * len(CASES[case].names)):
        tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
        if NARROW & {t.dtype for t in tensors} and not _has_state(node):
            # A bias that is not there is left out: one that is marked as absent makes TensorFlow Lite Micro crash.
            bare = replace(node, inputs=node.inputs[: len(node.inputs) - (node.inputs[-1] is None)])
            bare = _around_zero(bare) if node.op.kind == "EMBEDDING_LOOKUP" else bare
            those = found[types_of(bare)]
            if len(those) < NODES:
                those.append(with_many_numbers(bare))
    return found


def _around_zero(node: Node) -> Node:
    """Where both runtimes refuse any other zero point."""
    table = node.input(1)
    plain = table.quantisation and replace(table.quantisation, zero_points=(0,))
    made = replace(node.output, quantisation=plain) if node.output.quantisation else node.output
    return replace(node, inputs=(node.inputs[0], replace(table, quantisation=plain)), outputs=(made,))


def with_many_numbers(node: Node) -> Node:
    """The node with many images, where its first axis is that of images."""
    if None in node.inputs or len(list(node.activations())) > 1 or len(node.output.shape) < 2:
        return node
    images = -(-NUMBERS // max(1, node.output.elems // node.output.shape[0]))

    def larger(tensor: Tensor) -> Tensor:
        if node.op.kind == "TRANSPOSE_CONV" and tensor.index == node.input(0).index:
            return replace(tensor, data=np.array([images, *tensor.ints[1:]], np.int32))
        return tensor if tensor.is_constant else replace(tensor, shape=(images, *tensor.shape[1:]))

    inputs, output = tuple(t and larger(t) for t in node.inputs), larger(node.output)
    try:
        shapes = kinds()[node.op.kind].output_shapes(node.op.kind, node.attributes, inputs)
    except ModelError:
        return node
    return replace(node, inputs=inputs, outputs=(output,)) if shapes == (output.shape,) else node


INDICES = {"GATHER": (1, 0), "GATHER_ND": (1, 0), "EMBEDDING_LOOKUP": (0, 1)}
"""Where the indices are, and what they are an index of: one outside ends other runtimes."""


def values_for(node: Node, seed: int) -> list[Array | None]:
    values = list(input_values(node, np.random.default_rng(seed)))
    if node.op.kind in INDICES:
        indices, table = INDICES[node.op.kind]
        given, tensor = values[indices], node.input(indices)
        if given is not None and not tensor.is_constant:
            shape = node.input(table).shape
            sizes = shape[: given.shape[-1]] if node.op.kind == "GATHER_ND" else shape[_gathered_axis(node)]
            values[indices] = (np.abs(given.astype(np.int64)) % np.array(sizes)).astype(given.dtype)
    return values


def _gathered_axis(node: Node) -> int:
    return int(getattr(node.attributes, "axis", 0))


_WEIGHTS = ("int8", "int8*", "int4", "int4*")
_HYBRID = frozenset(f"float32 ({weights}){bias} > float32" for weights in _WEIGHTS for bias in ("", " (float32)"))
NOBODY: dict[str, Set[str]] = {
    # LiteRT quantises the data too; TensorFlow Lite Micro has none of these.
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), _HYBRID),
    "CONV_2D": {*_HYBRID, "uint8 (uint8) > uint8"},
    # LiteRT's convolutions want a bias, and neither has a depthwise one of 32 bits.
    "DEPTHWISE_CONV_2D": {
        *_HYBRID,
        "uint8 (uint8) > uint8",
        "int16 (int8) (int32) > int16",
        "int16 (int8*) (int32) > int16",
    },
    # Both shift small quotients by too much; test_oracles compares the others.
    "DIV": {"(int8) int8 > int8", "int8 (int8) > int8", "int8 > int8"},
    "DENSIFY": {"int16 > int16", "int8 > int8"},
    "ONE_HOT": {f"int32 (int32) {pair} > int16" for pair in ("(int16)", "int16", "(int16) int16", "int16 (int16)")},
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), frozenset(("int16 (int32) > int32", "int16 (int32) > int64"))),
    **dict.fromkeys(("RELU_0_TO_1", "RELU_N1_TO_1", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), frozenset(("int16 > int16",))),
    "QUANTIZE": {"int16 > uint8", "int32 > uint8"},
    # Our own, made of operations that both have; tests of the transforms compare them with these.
    "CUSTOM:DiagmemLookup": {"int8 > int8"},
    "CUSTOM:DiagmemMean": {"int8 (int32) > float32", "uint8 (int32) > float32"},
    "CUSTOM:DiagmemSum": {"int8 (int32) > float32", "uint8 (int32) > float32"},
}
"""Kinds with their types for which `verify` says UNCONFIRMED where a model has nothing else."""


@pytest.mark.deep
@pytest.mark.parametrize("case", [case for case in CASES if case != "detection_postprocess"])
def test_the_runtime_that_has_it_computes_the_same(case: str) -> None:
    """Bit for bit; where one of them is not followed, the other is. What nobody runs is known. Detections have a test
    of their own, since some of their outputs are not written."""
    if not all(map(is_installed, ("tflm", "litert"))):
        pytest.skip("needs both runtimes")
    by_types = drawn_by_types(case)
    nodes = [node for those in by_types.values() for node in those]
    values = [values_for(node, number) for number, node in enumerate(nodes)]
    asked = {oracle: ask(oracle, nodes, values) for oracle in ("tflm", "litert")} if nodes else {}
    alone = set(by_types)
    for oracle, answers in asked.items():
        judged = set()
        for node, given, answer in zip(nodes, values, answers, strict=True):
            if types_of(node) not in alone or isinstance(answer, str) or deviation(oracle, node) is not None:
                continue
            judged.add(types_of(node))
            with np.errstate(all="ignore"):
                wanted = kinds()[node.op.kind].reference(node, given)
            for made, right in zip(answer, wanted, strict=True):
                assert _agrees(np.reshape(made, right.shape), right), (oracle, node)
        alone -= judged
    assert {types for kind, types in alone if types not in NOBODY.get(kind, ())} == set(), alone


def _agrees(found: Array, wanted: Array) -> bool:
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    return np.allclose(found, wanted, rtol=2e-6, atol=2e-6, equal_nan=True)
