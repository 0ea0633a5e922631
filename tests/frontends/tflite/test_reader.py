"""The TFLite frontend: what it understands, and what it refuses, and how it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tflite as schema

import diagmem
from diagmem.frontends.tflite import has_shapes_of_file, parse
from diagmem.model.errors import ModelError, PlanError
from diagmem.model.graph import DType, Graph
from tests.frontends.tflite.flat import FlatModel, FlatOp, FlatTensor
from tests.networks import Net
from tests.tflite_files import file_of

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


def test_subgraphs_that_nobody_calls_are_not_looked_at(tmp_path: Path) -> None:
    """Models with several signatures have them; TFLM makes room for all, so that no plan of ours would be obeyed."""
    several = FlatModel([T([4]), T([4])], [RELU], subgraphs=2)
    assert read(several) == read(FlatModel([T([4]), T([4])], [RELU]))
    (tmp_path / "net.tflite").write_bytes(several.content())
    with pytest.raises(PlanError, match="does not run"):
        diagmem.emit_tflm(tmp_path / "net.tflite")


def test_a_batch_of_minus_one_in_the_signature_is_one() -> None:
    """Converters leave -1 for the batch; the shape says 1, and that is what runs."""
    assert read(chain(T([1, 4], signature=[-1, 4]), T([1, 4]))).tensors[0].shape == (1, 4)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (FlatModel([T([4]), T([4])], [RELU], subgraphs=0), "no subgraphs"),
        (FlatModel([T([4]), T([4])], [RELU], version=2), "version 2"),
        (FlatModel([T([4]), T([4])], [FlatOp("WHILE", [0], [1])]), "it names no subgraphs"),
        (chain(T([-1, 4]), T([1, 4])), "dynamic.*--shape"),
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


@pytest.mark.parametrize("has_old_code", [True, False])
@pytest.mark.parametrize("kind", ["SUB", "MUL", "BITWISE_XOR"])
def test_an_operation_is_what_the_larger_of_its_two_codes_says(kind: str, has_old_code: bool) -> None:
    """Newer files may hold only the newer code; the older one then reads as 0, which is ADD."""
    model = FlatModel([T([4]), T([4]), T([4], data=bytes(4))], [FlatOp(kind, [0, 2], [1], has_old_code=has_old_code)])
    assert read(model).ops[0].kind == kind


def test_where_the_scales_of_a_bias_lie_is_nobodys_concern() -> None:
    """A bias counts in units of data and weights; converters have written any axis beside its scales."""
    wide = schema.TensorType.INT32
    bias = T([8], type=wide, data=bytes(32), scales=[0.5] * 8, axis=3)
    weights = T([8, 1, 1, 2], data=bytes(16), scales=[0.5] * 8)
    tensors = [T([1, 1, 1, 2], scales=[1]), T([1, 1, 1, 8], scales=[1]), weights, bias]
    conv = FlatOp("CONV_2D", [0, 2, 3], [1])
    assert read(FlatModel(tensors, [conv])).ops[0].kind == "CONV_2D"
    tensors[2] = T([8, 1, 1, 2], data=bytes(16), scales=[0.5] * 8, axis=3)
    with pytest.raises(ModelError, match="8 scales; axis 3"):
        read(FlatModel(tensors, [conv]))


@pytest.mark.parametrize(("scale", "is_fine"), [(0.0, True), (float("inf"), False), (float("nan"), False), (-1, False)])
def test_scales_are_numbers_that_can_be_multiplied_with(scale: float, is_fine: bool) -> None:
    """0 can: tensors that are all zeros have it."""
    model = chain(T([4], scales=[scale]), T([4], scales=[1]))
    if is_fine:
        assert read(model).tensors[0].quantisation is not None
    else:
        with pytest.raises(ModelError, match="has the scale"):
            read(model)


def test_what_no_operation_looks_at_is_not_looked_at() -> None:
    """Neither an empty tensor, nor one of an unknown type, nor one with a shape that is still open."""
    odd = [T([0, 4]), T([2], type=schema.TensorType.STRING), T([-1, 3]), T([2**20, 2**20])]
    graph = read(FlatModel([T([4]), T([4]), *odd], [RELU]))
    assert len(graph.tensors) == 6
    assert all(t.is_constant and t.elems == 0 for t in graph.tensors[2:])


def test_a_signature_says_nothing_about_a_shape_that_is_whole() -> None:
    """Runtimes for micro-controllers never read it."""
    signature = [-1, -1]
    graph = read(chain(T([2, 4], signature=signature), T([2, 4], signature=signature)))
    assert [t.shape for t in graph.tensors] == [(2, 4), (2, 4)]


def test_shapes_that_the_file_leaves_open_follow_from_the_inputs() -> None:
    """Converters write 1 for what is known only at run time; one that the file vouches for must still be right."""
    assert read(chain(T([2, 4]), T([1, 1], signature=[-1, -1]))).tensors[1].shape == (2, 4)
    assert read(chain(T([2, 4]), T([-1, -1]))).tensors[1].shape == (2, 4)
    assert read(chain(T([2, 4]), T([]))).tensors[1].shape == (2, 4)
    assert read(chain(T([]), T([]))).tensors[1].shape == ()
    with pytest.raises(ModelError, match="the file says"):
        read(chain(T([2, 4]), T([1, 1])))


def _shape_computed_by_the_model(signature: list[int]) -> FlatModel:
    """The input as rows of as many elements as its last axis has: shape, slice, pack, reshape."""
    wide = schema.TensorType.INT32

    def number(value: int) -> FlatTensor:
        return T([1], type=wide, data=np.array([value], "<i4").tobytes())

    tensors = [
        *(T([1, 6, 2], "x", signature=signature), T([1, 2], "y", signature=[-1, 2])),
        *(T([3], type=wide), T([1], type=wide), T([2], type=wide)),
        *(number(2), number(1), number(-1)),
    ]
    ops = [
        FlatOp("SHAPE", [0], [2]),
        FlatOp("SLICE", [2, 5, 6], [3]),
        FlatOp("CONCATENATION", [7, 3], [4]),
        FlatOp("RESHAPE", [0, 4], [1]),
    ]
    return FlatModel(tensors, ops)


def test_shapes_that_the_model_computes_from_shapes_are_computed() -> None:
    assert read(_shape_computed_by_the_model([1, -1, 2])).tensors[1].shape == (6, 2)


def test_the_caller_may_fix_the_shapes_of_inputs() -> None:
    """All others follow; an input must be named as the file names it, with as many axes as it has."""
    data = _shape_computed_by_the_model([1, -1, 2]).content()
    graph = parse(data, "model", {"x": (1, 9, 2)})
    assert [t.shape for t in graph.tensors[:2]] == [(1, 9, 2), (9, 2)]
    assert not has_shapes_of_file(data, graph)
    for name, shape, says in (("z", (1, 9, 2), "'x'"), ("x", (9, 2), "3 sizes above 0"), ("x", (1, 0, 2), "above 0")):
        with pytest.raises(ModelError, match=says):
            parse(data, "model", {name: shape})


def test_shapes_that_only_a_run_computes_are_refused() -> None:
    model = FlatModel([T([1, 4], signature=[1, -1]), T([1, 4])], [FlatOp("CUSTOM", [0], [1], custom="x")])
    assert parse(model.content(), "model").tensors[1].shape == (1, 4)
    with pytest.raises(ModelError, match="cannot be inferred: its operation is not known"):
        parse(model.content(), "model", {"t": (1, 8)})


def test_odd_names_are_kept_and_printed_on_one_line() -> None:
    """Duplicate, empty and hostile names are names like any other."""
    graph = read(chain(T([4], 'a"\n<script>'), T([4], "")))
    assert graph.tensors[0].name == 'a"\n<script>'
    assert graph.tensors[0].label == 'a"\\n<script>'
    assert graph.tensors[1].label == "tensor 1"


def test_an_input_that_is_named_twice_is_refused() -> None:
    """Its values could come from two places."""
    net = Net()
    x = net.input(1, 4)
    graph = net.graph(net.relu(x))
    with pytest.raises(ModelError, match="an input of the model is named twice"):
        parse(file_of(replace(graph, inputs=(x, x))), "model")
