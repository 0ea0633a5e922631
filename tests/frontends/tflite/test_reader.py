"""The TFLite frontend: what it understands, and what it refuses, and how it says so."""

from __future__ import annotations

import numpy as np
import pytest
import tflite as schema

from diagmem.frontends.tflite import parse
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph
from tests.frontends.tflite.flat import FlatModel, FlatOp, FlatTensor

T = FlatTensor
RELU = FlatOp("RELU", [0], [1])


def read(model: FlatModel) -> Graph:
    return parse(model.content(), "model")


def chain(*tensors: FlatTensor) -> FlatModel:
    return FlatModel(tensors, [RELU])


def test_a_sound_file() -> None:
    graph = read(chain(T([1, 4], "in"), T([1, 4], "out")))
    assert [op.kind for op in graph.ops] == ["RELU"]
    assert [t.name for t in graph.tensors] == ["in", "out"]
    assert (graph.inputs, graph.outputs) == ((0,), (1,))


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(getattr(schema.TensorType, d.name), d) for d in DType if d is not DType.INT4],
)
def test_element_types(code: int, dtype: DType) -> None:
    tensor = read(chain(T([1, 4], type=code), T([1, 4], type=code))).tensors[0]
    assert (tensor.dtype, tensor.size_bytes) == (dtype, 4 * dtype.size_bytes)


@pytest.mark.parametrize("name", [k for k in vars(schema.BuiltinOperator) if k.isupper()])
def test_every_builtin_operator_is_recognised_by_name(name: str) -> None:
    """An operator is kept under its name, or refused by name; a placeholder never stands in for it."""
    model = FlatModel([T([1, 4]), T([1, 4])], [FlatOp(name, [0], [1], custom="my_op" if name == "CUSTOM" else None)])
    try:
        kind = read(model).ops[0].kind
    except ModelError as error:
        kind = str(error)
    assert name in kind


def test_unknown_custom_op_is_opaque() -> None:
    graph = read(FlatModel([T([1, 4]), T([1, 8])], [FlatOp("CUSTOM", [0], [1], custom="frobnicate\n<b>")]))
    assert graph.ops[0].kind == "CUSTOM:frobnicate\n<b>"
    assert "\n" not in graph.nodes[0].label


@pytest.mark.parametrize("outside", [False, True])
def test_constants_inside_and_outside_the_flatbuffer(outside: bool) -> None:
    """Newer schemas keep large buffers behind the flatbuffer, by offset and size."""
    data = np.arange(4, dtype="<i4").tobytes()
    weights = T([4], type=schema.TensorType.INT32, data=data, outside=outside)
    model = FlatModel([T([4], type=schema.TensorType.INT32), T([4], type=schema.TensorType.INT32), weights],
                      [FlatOp("ADD", [0, 2], [1])])  # fmt: skip
    constant = read(model).tensors[2]
    assert constant.is_constant
    assert constant.ints == (0, 1, 2, 3)
    if outside:
        with pytest.raises(ModelError, match="outside the file"):
            parse(model.content()[:-1], "model")


def test_a_stub_is_a_constant_without_values() -> None:
    """Graphs published without weights keep a few bytes of each: they plan, but do not run."""
    model = FlatModel([T([64]), T([64]), T([64], data=b"1234")], [FlatOp("ADD", [0, 2], [1])])
    constant = read(model).tensors[2]
    assert constant.is_constant
    assert constant.data is None


def test_variables_and_optional_inputs() -> None:
    model = FlatModel([T([4]), T([4]), T([4], is_variable=True)], [FlatOp("CUSTOM", [0, -1, 2], [1], custom="x")])
    graph = read(model)
    assert graph.tensors[2].is_variable
    assert graph.nodes[0].inputs[1] is None


def test_a_batch_of_minus_one_in_the_signature_is_one() -> None:
    """Converters leave -1 for the batch; the shape says 1, and that is what runs."""
    assert read(chain(T([1, 4], signature=[-1, 4]), T([1, 4]))).tensors[0].shape == (1, 4)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (FlatModel([T([4]), T([4])], [RELU], subgraphs=2), "2 subgraphs"),
        (FlatModel([T([4]), T([4])], [RELU], subgraphs=0), "0 subgraphs"),
        (FlatModel([T([4]), T([4])], [RELU], version=2), "version 2"),
        (FlatModel([T([4]), T([4])], [FlatOp("WHILE", [0], [1])]), "WHILE is control flow"),
        (chain(T([1, 4], signature=[1, -1]), T([1, 4])), "axis 1 .* dynamic"),
        (chain(T([-1, 4]), T([1, 4])), "negative"),
        (chain(T([2**31 - 1, 2**31 - 1]), T([4])), "256 MiB"),
        (chain(T([2**16, 2**13]), T([4])), "256 MiB"),
        (chain(T([0, 4]), T([4])), "no elements"),
        (chain(T([1] * 17), T([4])), "axes"),
        (chain(T([4], type=schema.TensorType.STRING), T([4])), "STRING is not supported"),
        (chain(T([4], type=schema.TensorType.INT4), T([4])), "4-bit"),
        (chain(T([4]), T([5])), r"\[\[5\]\].*\[\[4\]\]"),
        (FlatModel([T([4]), T([4])], [RELU], inputs=[7]), "tensor 7 does not exist"),
        (FlatModel([T([4]), T([4])], [FlatOp("RELU", [9], [1])]), "tensor 9 does not exist"),
        (FlatModel([T([4]), T([4])], [FlatOp("RELU", [0], [-1])]), "tensor -1 does not exist"),
        (FlatModel([T([4]), T([4])], [RELU, RELU]), "value from elsewhere"),
        (FlatModel([T([4]), T([4])], [FlatOp("RELU", [0], [0])]), "value from elsewhere"),
        (FlatModel([T([4]), T([4]), T([4])], [FlatOp("RELU", [2], [1])]), "nothing produces"),
        (FlatModel([T([4]), T([4]), T([4])], [RELU], outputs=[2]), "nothing produces"),
        (
            FlatModel([T([4]), T([4]), T([4])], [FlatOp("RELU", [2], [1]), FlatOp("RELU", [1], [2])]),
            "only a later operation produces",
        ),
        (FlatModel([T([4]), T([4], data=b"1234")], [RELU]), "constant, yet"),
        (
            FlatModel([T([4]), T([4], type=schema.TensorType.INT32)], [FlatOp("RESHAPE", [0], [1])]),
            "output 0 .t. has int32 elements; expected: int8",
        ),
        (FlatModel([T([4]), T([4])], [FlatOp("CONV_2D", [0], [1])]), "it has 1 inputs; expected: 2 to 3"),
    ],
)
def test_refusals_say_what_and_where(model: FlatModel, says: str) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        read(model)
    assert "\n" not in str(caught.value)


def test_odd_names_are_kept_and_printed_on_one_line() -> None:
    """Duplicate, empty and hostile names are names like any other."""
    graph = read(chain(T([4], 'a"\n<script>'), T([4], "")))
    assert graph.tensors[0].name == 'a"\n<script>'
    assert graph.tensors[0].label == 'a"\\n<script>'
    assert graph.tensors[1].label == "tensor 1"
