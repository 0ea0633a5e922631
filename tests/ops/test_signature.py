"""What an operation is given is held against its kind's signature before anything is planned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Node, Op, Quantisation, Tensor
from diagmem.ops import OpKind, kinds
from diagmem.ops.elementwise.unary import Unary
from diagmem.ops.signature import MANY, WHOLE_NUMBERS, check_node, check_signatures
from tests.ops.fitting import SeededDraw, fitted
from tests.ops.sampling import activation, node_of, samples_of

SCALES = (-1.0, math.inf, math.nan)
SAMPLES = 12


def nodes_of(name: str) -> list[Node]:
    """Nodes that kernels can run, of several types."""
    return [fitted(samples_of(name).sample(name, SeededDraw(f"{name} {seed}")), seed) for seed in range(SAMPLES)]


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


def wrong_sizes(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    for position in kind.signature(node.op.kind).single:
        for shape in ((7,), (2, 1), (0,)):
            wrong = replace(node.input(position), shape=shape, data=None, is_constant=False)
            yield f"input {position} has {math.prod(shape)} elements", with_input(node, position, wrong)


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
    shapes = kind.output_shapes(node.op.kind, node.attributes, node.inputs)
    if shapes is not None:
        yield (
            f"options give {[list(shape) for shape in shapes]}",
            with_output(node, 0, replace(node.output, shape=(*node.output.shape, 2))),
        )


def wrong_options(node: Node, kind: OpKind) -> Iterator[tuple[str, Node]]:
    for one in dataclasses.fields(node.attributes) if dataclasses.is_dataclass(node.attributes) else ():
        if isinstance(getattr(node.attributes, one.name), float):
            for value in (math.inf, math.nan):
                changed = replace(node.op, attributes=replace(node.attributes, **{one.name: value}))
                yield one.name, replace(node, op=changed)


VIOLATIONS = (wrong_counts, wrong_types, wrong_sizes, wrong_weights, wrong_scales, wrong_shapes, wrong_options)


@pytest.mark.parametrize("name", sorted(kinds()))
def test_what_can_run_is_accepted(name: str) -> None:
    """No node that kernels run is refused, and every kind declares a signature of its own."""
    kind = kinds()[name]
    assert (type(kind).signature, type(kind).takes) != (OpKind.signature, OpKind.takes)
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


ENDS = {
    DType.INT4: (-8, 7),
    DType.INT8: (-128, 127),
    DType.UINT8: (0, 255),
    DType.INT16: (-(2**15), 2**15 - 1),
    DType.INT32: (-(2**31), 2**31 - 1),
}
"""The least and the largest zero point of each type that has scales."""


def problem_of(tensor: Tensor, name: str = "RELU") -> str | None:
    """What is said about an operation whose input is this tensor; None if nothing is."""
    node = node_of(kinds()[name], name, kinds()[name].decode(name, None), [tensor], (tensor.dtype,))
    try:
        check_node(node, kinds()[name])
    except ModelError as refusal:
        return str(refusal)
    return None


def scaled(dtype: DType, scales: tuple[float, ...], zero_points: tuple[int, ...], axis: int = 0) -> Tensor:
    return replace(activation((2, 3), dtype), quantisation=Quantisation(scales, zero_points, axis))


@pytest.mark.parametrize("dtype", ENDS)
def test_zero_points_are_stored_values(dtype: DType) -> None:
    """From the least to the largest number of the type, and not one beyond."""
    least, most = ENDS[dtype]
    for zero_point in (least, most):
        assert problem_of(scaled(dtype, (0.5,), (zero_point,))) is None
    for zero_point in (least - 1, most + 1):
        expected = f"has the zero point {zero_point}; expected: {least} to {most}"
        assert expected in str(problem_of(scaled(dtype, (0.5,), (zero_point,))))


def test_scales_are_there_finite_and_not_negative() -> None:
    """0 is what converters write for tensors that held nothing but zeros."""
    assert problem_of(scaled(DType.INT8, (0.0,), (0,))) is None
    assert "has 0 scales and 0 zero points" in str(problem_of(scaled(DType.INT8, (), ())))
    assert "has 1 scales and 2 zero points" in str(problem_of(scaled(DType.INT8, (0.5,), (0, 0))))
    assert "has the scale -0.5" in str(problem_of(scaled(DType.INT8, (-0.5,), (0,))))
    assert problem_of(scaled(DType.FLOAT32, (-0.5,), (0,))) is None


@pytest.mark.parametrize(("axis", "count", "fits"), [(0, 2, True), (1, 3, True), (0, 3, False), (1, 2, False)])
def test_channels_have_a_scale_each(axis: int, count: int, fits: bool) -> None:
    """Along the axis that the file names."""
    found = problem_of(scaled(DType.INT8, (0.5,) * count, (0,) * count, axis))
    assert found is None if fits else f"has {count} scales; axis {axis} of shape [2, 3] does not" in str(found)


@pytest.mark.parametrize("axis", [-1, 2])
def test_channels_lie_along_an_axis_that_there_is(axis: int) -> None:
    assert f"axis {axis} of shape [2, 3] does not" in str(problem_of(scaled(DType.INT8, (0.5,) * 3, (0,) * 3, axis)))


def test_counts_are_said() -> None:
    """As a number, a range, or a least one."""
    said = {}
    for name, count in (("RELU", 2), ("CONV_2D", 1), ("CONCATENATION", 0)):
        node = replace(nodes_of(name)[0], inputs=nodes_of(name)[0].inputs[:1] * count)
        with pytest.raises(ModelError) as refusal:
            check_node(node, kinds()[name])
        said[name] = str(refusal.value)
    assert "it has 2 inputs; expected: 1;" in said["RELU"]
    assert "it has 1 inputs; expected: 2 to 3;" in said["CONV_2D"]
    assert "it has 0 inputs; expected: at least 1;" in said["CONCATENATION"]


def test_filters_without_an_axis_of_channels_are_refused() -> None:
    """The axis that a bias has an element for must be there."""
    for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"):
        weights = kinds()[name].signature(name).weights
        assert weights is not None
        node = next(n for n in nodes_of(name) if len(n.inputs) > weights.bias and n.inputs[weights.bias] is not None)
        filters = replace(node.input(weights.filter), shape=(2, 3, 4)[: weights.axis], quantisation=None)
        with pytest.raises(ModelError, match=f"has {weights.axis} axes; expected: 4"):
            check_node(with_input(node, weights.filter, filters), kinds()[name])


def test_a_bias_may_be_left_out() -> None:
    """Absent, or not in the list at all."""
    for node in nodes_of("CONV_2D"):
        for inputs in (node.inputs[:2], (*node.inputs[:2], None)):
            check_node(replace(node, inputs=inputs), kinds()["CONV_2D"])


def test_graphs_are_checked_op_by_op() -> None:
    """Every operation of a known kind; what is not known is planned as it is."""
    tensors = tuple(replace(activation(shape), index=index) for index, shape in enumerate(((2, 3), (2, 3), (3, 2))))
    sound = Op(0, "RELU", (0,), (1,), Unary()), Op(1, "CUSTOM:of nobody", (1,), (2,))
    graph = Graph("two", tensors, sound, (0,), (2,))
    assert check_signatures(graph) is graph
    with pytest.raises(ModelError, match="op 1"):
        check_signatures(replace(graph, ops=(sound[0], Op(1, "RELU", (1,), (2,), Unary()))))
