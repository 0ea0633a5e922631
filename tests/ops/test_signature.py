"""What an operation is given is held against its kind's signature before anything is planned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Quantisation, Tensor
from diagmem.ops import OpKind, kinds
from diagmem.ops.fitting import fitted
from diagmem.ops.sampling import SeededDraw
from diagmem.ops.signature import MANY, WHOLE_NUMBERS, check_node

SCALES = (-1.0, math.inf, math.nan)
SAMPLES = 12


def nodes_of(name: str) -> list[Node]:
    """Nodes that kernels can run, of several types."""
    return [fitted(kinds()[name].sample(name, SeededDraw(f"{name} {seed}")), seed) for seed in range(SAMPLES)]


def with_input(node: Node, position: int, tensor: Tensor | None) -> Node:
    return replace(node, inputs=(*node.inputs[:position], tensor, *node.inputs[position + 1 :]))


def with_output(node: Node, position: int, tensor: Tensor) -> Node:
    return replace(node, outputs=(*node.outputs[:position], tensor, *node.outputs[position + 1 :]))


def wrong_counts(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    signature = kind.signature(node.op.kind)
    least, most = signature.inputs
    yield "inputs", replace(node, inputs=node.inputs[: least - 1])
    if most < MANY:
        yield "inputs", replace(node, inputs=(*node.inputs, *[node.inputs[0]] * (most + 1 - len(node.inputs))))
    for position in range(least):
        yield f"input {position}", with_input(node, position, None)
    yield "outputs", replace(node, outputs=())
    if signature.outputs[1] < MANY:
        yield "outputs", replace(node, outputs=(*node.outputs, node.outputs[0]))


def wrong_types(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    signature = kind.signature(node.op.kind)
    alike = range(len(node.inputs)) if signature.all_alike else signature.alike
    data = node.input(signature.data)
    for position in alike:
        if position != signature.data:
            dtype = DType.INT64 if data.dtype is not DType.INT64 else DType.BOOL
            yield f"input {position}", with_input(node, position, replace(node.input(position), dtype=dtype))
    for position in signature.numbers:
        given = node.inputs[position] if position < len(node.inputs) else None
        if given is not None:
            assert given.dtype in WHOLE_NUMBERS
            yield f"input {position}", with_input(node, position, replace(given, dtype=DType.FLOAT32))
    if signature.made is not None:
        allowed = signature.made.get(data.dtype, (data.dtype,))
        dtype = next(dtype for dtype in (DType.BOOL, DType.FLOAT16) if dtype not in allowed)
        yield "output 0", with_output(node, 0, replace(node.output, dtype=dtype))


def wrong_weights(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    weights = kind.signature(node.op.kind).weights
    if weights is None:
        return
    filters = node.input(weights.filter)
    yield f"input {weights.filter}", with_input(node, weights.filter, replace(filters, dtype=DType.BOOL))
    bias = node.inputs[weights.bias] if weights.bias < len(node.inputs) else None
    if bias is None:
        return
    yield f"input {weights.bias}", with_input(node, weights.bias, replace(bias, dtype=DType.BOOL))
    for elems in {1, 7, bias.elems - 1, bias.elems + 1} - {bias.elems}:
        yield f"input {weights.bias}", with_input(node, weights.bias, replace(bias, shape=(elems,)))


def wrong_scales(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    for position, tensor in enumerate(node.inputs):
        if tensor is not None and tensor.quantisation is not None:
            for bad in unscaled(tensor):
                yield f"input {position}", with_input(node, position, bad)
    for position, tensor in enumerate(node.outputs):
        if tensor.quantisation is not None:
            for bad in unscaled(tensor):
                yield f"output {position}", with_output(node, position, bad)


def unscaled(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor with scales and zero points that nothing can be computed with."""
    assert tensor.quantisation is not None
    zero_point = tensor.quantisation.zero_points[0]
    for scale in SCALES:
        yield replace(tensor, quantisation=Quantisation((scale,), (zero_point,)))
    for far in (2**40, -(2**31) - 1):
        yield replace(tensor, quantisation=Quantisation((0.5,), (far,)))
    yield replace(tensor, quantisation=Quantisation((0.5, 0.5, 0.5), (0, 0)))


def wrong_shapes(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    if kind.output_shapes(node.op.kind, node.attributes, node.inputs) is not None:
        yield "outputs have shapes", with_output(node, 0, replace(node.output, shape=(*node.output.shape, 2)))


def wrong_options(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    for one in dataclasses.fields(node.attributes) if dataclasses.is_dataclass(node.attributes) else ():
        if isinstance(getattr(node.attributes, one.name), float):
            for value in (math.inf, math.nan):
                changed = replace(node.op, attributes=replace(node.attributes, **{one.name: value}))
                yield one.name, replace(node, op=changed)


VIOLATIONS = (wrong_counts, wrong_types, wrong_weights, wrong_scales, wrong_shapes, wrong_options)


@pytest.mark.parametrize("name", sorted(kinds()))
def test_what_can_run_is_accepted(name: str) -> None:
    """No node that kernels run is refused, and every kind declares a signature of its own."""
    kind = kinds()[name]
    assert type(kind).signature is not OpKind.signature
    for node in nodes_of(name):
        check_node(node, kind)


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_violation_is_refused(name: str) -> None:
    """Each rule, broken at each operand that it holds for, ends in one line that names the operation and operand."""
    kind = kinds()[name]
    tried = 0
    for node in nodes_of(name):
        for violation in VIOLATIONS:
            for where, broken in violation(node, kind):
                with pytest.raises(ModelError) as refusal:
                    check_node(broken, kind)
                assert where in str(refusal.value), (violation.__name__, where)
                assert f"({name})" in str(refusal.value)
                assert "\n" not in str(refusal.value)
                tried += 1
    assert tried > 3 * SAMPLES


def test_the_scale_of_a_bias_is_nobodys_business() -> None:
    """A bias counts in units of the data times the weights; converters leave odd scales on it."""
    for node in nodes_of("CONV_2D"):
        bias = node.inputs[2]
        if bias is not None:
            odd = replace(bias, quantisation=Quantisation((0.0, math.nan), (0, 2**40), axis=3))
            check_node(with_input(node, 2, odd), kinds()["CONV_2D"])
