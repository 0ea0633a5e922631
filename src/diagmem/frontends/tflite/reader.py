"""Reads a TensorFlow Lite file.

The file is not trusted. Offsets that point outside make the flatbuffers package raise, which becomes one clear
ModelError; counts and sizes are bounded before anything is looped over or allocated; and the graph's wiring is checked
before it is returned.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from diagmem.frontends.checks import check_sizes, check_wiring, with_inputs, with_shapes
from diagmem.frontends.tflite.subgraphs import attributes_of, called_subgraphs, with_variables, without_control_flow
from diagmem.model.errors import LARGEST_FILE_BYTES, ModelError, damaged, one_line
from diagmem.model.graph import ABSENT, DType, Graph, IntArray, Node, Op, Quantisation, Shape, Tensor
from diagmem.ops import kind_of
from diagmem.ops.folding import Allowance
from diagmem.ops.options import CUSTOM
from diagmem.ops.signature import check_signatures
from diagmem.ops.state import keeps_state, tensors_in_file, with_own_states

MOST_ITEMS = 100_000
"""Tensors or operations: a hundred times those of the largest network known."""
MOST_SUBGRAPHS = 64
"""Beside the network itself there may be what sets up its variables, branches and loops."""
MOST_WIRES = 1024
"""Inputs or outputs of one operation."""
MOST_OPTIONS = 64
"""Of one custom operation."""

DAMAGE = (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError)
"""What the flatbuffers package raises when an offset or a length points outside the file."""

_DTYPES = {getattr(tflite.TensorType, dtype.name): dtype for dtype in DType}
# Handles of variables and lists, which to runtimes are numbers.
_DTYPES |= dict.fromkeys((tflite.TensorType.RESOURCE, tflite.TensorType.VARIANT), DType.INT32)

_BUILTIN_CODE_FIELD = 10
"""Of an operator code, in the table of its fields."""

_CONTROL_FLOW = frozenset({"CALL", "STABLEHLO_WHILE", "STABLEHLO_REDUCE", "STABLEHLO_CASE", "DELEGATE"})


def parse(data: bytes, name: str, shapes: Mapping[str, Shape] | None = None) -> Graph:
    """The graph in the bytes of a .tflite file; `name`: of the model. `shapes`: input shapes by name that replace the
    file's; all others are inferred from them."""
    stored = _as_stored(data, name, shapes or {})
    graph = with_shapes(stored.graph, shapes or {}, stored.dynamic)
    check_sizes(graph)
    check_wiring(graph)
    graph = with_own_states(check_signatures(graph))
    check_sizes(graph)
    return graph


def has_shapes_of_file(data: bytes, graph: Graph) -> bool:
    """Whether all tensors of the graph have the shapes that the file gives them: runtimes without shape inference rely
    on those."""
    stored = _as_stored(data, graph.name, {})
    shapes = [t.shape for t in stored.graph.tensors]
    return not stored.has_open_loops and [t.shape for t in graph.tensors[: tensors_in_file(graph)]] == shapes


def has_uncalled_subgraphs(data: bytes) -> bool:
    """Whether the file, which must be sound, has subgraphs that the model does not run."""
    reader = _Reader(data)
    count = int(reader.model.SubgraphsLength())
    return count > 1 + len(reader.called(reader.subgraph(0, ""), count))


class _Stored(NamedTuple):
    """A graph as its file has it. `dynamic`: tensors some of whose sizes, by the file, are known only when the model
    runs; converters write 1 for them. `has_open_loops`: there are some in the subgraphs that it calls."""

    graph: Graph
    dynamic: frozenset[int]
    has_open_loops: bool


def _as_stored(data: bytes, name: str, shapes: Mapping[str, Shape]) -> _Stored:
    """The graph as its file has it, with no more checks than reading needs. `shapes`: of inputs, where loops depend on
    them."""
    if len(data) > LARGEST_FILE_BYTES:
        raise ModelError("the file is larger than 2 GiB, which a flatbuffer cannot be")
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise ModelError("not a TensorFlow Lite file (it does not carry the mark TFL3); diagmem reads .tflite files")
    try:
        reader = _Reader(data)
        return _Stored(reader.graph(name, shapes), frozenset(reader.dynamic), reader.has_open_loops)
    except DAMAGE as error:
        raise ModelError(
            f"the file is damaged or truncated: its {len(data)} bytes refer to others that are not there"
        ) from error


class _Reader:
    """One pass over a file. `spend` bounds the work: no sound file refers to its bytes several times over."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.model = tflite.Model.GetRootAs(data, 0)
        self.allowance = 4 * len(data) + 2**20
        self.unpacked = Allowance.of(len(data))
        self.buffers: set[int] = set()
        self.dynamic: set[int] = set()
        self.has_open_loops = False

    def spend(self, size_bytes: int) -> None:
        self.allowance -= size_bytes
        if self.allowance < 0:
            raise ModelError("the file refers to the same bytes over and over")

    def graph(self, name: str, shapes: Mapping[str, Shape]) -> Graph:
        if self.model.Version() != 3:
            raise ModelError(f"schema version {self.model.Version()} is not supported; supported: 3")
        count = _bounded(self.model.SubgraphsLength(), "subgraphs", MOST_SUBGRAPHS)
        if not count:
            raise ModelError("the file has no subgraphs: there is no model in it")
        graph = self.subgraph(0, name)
        dynamic, self.dynamic = self.dynamic, set()
        others = self.called(graph, count)
        self.has_open_loops, self.dynamic = bool(self.dynamic), dynamic
        given = with_inputs(graph, shapes) if others else graph
        return with_variables(without_control_flow(given, others, dynamic), others)

    def called(self, graph: Graph, count: int) -> Mapping[int, Graph]:
        """The subgraphs that the first one calls, directly or not. Others (further signatures of a model, such as those
        that train it) are ignored: runtimes do not run them."""
        found: dict[int, Graph] = {}
        wanted = called_subgraphs(graph)
        while wanted:
            number = min(wanted)
            if not 0 < number < count:
                raise damaged(f"an operation calls subgraph {number}, of {count}")
            found[number] = other = self.subgraph(number, graph.name)
            for op in filter(keeps_state, other.ops):
                where = f"subgraph {number}, op {op.index}"
                raise ModelError(f"{where}: {op.kind} keeps state, which is not supported in branches and loops")
            wanted = (wanted | called_subgraphs(other)) - found.keys()
        return found

    def subgraph(self, number: int, name: str) -> Graph:
        subgraph = self.model.Subgraphs(number)
        count = _bounded(subgraph.TensorsLength(), "tensors")
        inputs = self.indices(subgraph.InputsLength(), subgraph.InputsAsNumpy, count, "the graph's inputs")
        outputs = self.indices(subgraph.OutputsLength(), subgraph.OutputsAsNumpy, count, "the graph's outputs")
        codes = self.op_names()
        operators = [subgraph.Operators(i) for i in range(_bounded(subgraph.OperatorsLength(), "operations"))]
        wiring = [self.wiring(i, operator, count) for i, operator in enumerate(operators)]
        fed = {*inputs, *(t for _, written in wiring for t in written)}
        seen = fed | {*outputs, *(t for read, _ in wiring for t in read)}
        tensors = tuple(
            self.tensor(i, subgraph.Tensors(i), i in fed) if i in seen else self.unseen(i, subgraph.Tensors(i))
            for i in range(count)
        )
        ops = tuple(
            self.op(Op(i, _checked_name(i, codes, operator), *wires), operator, tensors)
            for i, (operator, wires) in enumerate(zip(operators, wiring, strict=True))
        )
        # Converters write any shape for what custom operations make, and some write none where it is open.
        made = {t: op.kind for op in ops for t in op.outputs}
        self.dynamic |= {t for t in made if made[t].startswith(CUSTOM) or not (number or tensors[t].shape)}
        return Graph(name, tensors, ops, inputs, outputs)

    def op_names(self) -> list[str]:
        """The name of each operator code; `CUSTOM:name` for those that TFLite does not define."""
        names = []
        for i in range(_bounded(self.model.OperatorCodesLength(), "operator codes")):
            code = self.model.OperatorCodes(i)
            number = max(raw_builtin_code(code), code.DeprecatedBuiltinCode())
            known = _builtin_names().get(number, f"BUILTIN_{number}")
            names.append(CUSTOM + self.text(code.CustomCode()) if known == "CUSTOM" else known)
        return names

    def text(self, raw: bytes | None) -> str:
        self.spend(len(raw or b""))
        return (raw or b"").decode("utf-8", errors="replace")

    def vector(self, length: int, get: Callable[[], Any]) -> list[int]:
        """A vector of numbers as a list; absent is empty."""
        self.spend(8 * length)
        return np.asarray(get()).tolist() if length else []

    def indices(self, length: int, get: Callable[[], Any], tensors: int, where: str, least: int = 0) -> tuple[int, ...]:
        found = self.vector(_bounded(length, where, MOST_WIRES), get)
        for index in found:
            if not least <= index < tensors:
                raise ModelError(f"{where}: tensor {index} does not exist (the file has {tensors}); it is damaged")
        return tuple(found)

    def wiring(self, index: int, operator: Any, tensors: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        where = f"op {index}"
        return (
            self.indices(operator.InputsLength(), operator.InputsAsNumpy, tensors, f"{where}'s inputs", ABSENT),
            self.indices(operator.OutputsLength(), operator.OutputsAsNumpy, tensors, f"{where}'s outputs"),
        )

    def unseen(self, index: int, table: Any) -> Tensor:
        """One that is no input or output of an operation or of the graph: only its place is kept."""
        return Tensor(index, self.text(table.Name()), (0,), DType.UINT8, is_constant=True)

    def tensor(self, index: int, table: Any, is_fed: bool) -> Tensor:
        """`is_fed`: an operation or the caller writes it, so it is not a constant."""
        name = self.text(table.Name())
        where = f"tensor {index} '{one_line(name)}'"
        dtype = _DTYPES.get(table.Type())
        if dtype is None:
            types = {v: k for k, v in vars(tflite.TensorType).items() if isinstance(v, int)}
            unknown = types.get(table.Type(), f"number {table.Type()}")
            raise ModelError(f"{where}: element type {unknown} is not supported")
        shape = tuple(self.vector(_bounded(table.ShapeLength(), f"{where}: axes", 16), table.ShapeAsNumpy))
        signature = self.vector(table.ShapeSignatureLength(), table.ShapeSignatureAsNumpy)
        if any(size < 0 for size in (*shape, *signature)):
            self.dynamic.add(index)
        raw = self.buffer(table.Buffer(), where)
        bare = Tensor(index, name, shape, dtype, self.quantisation(table, where, dtype))
        is_constant = not is_fed and not table.IsVariable() and (raw is not None or bare.elems == 0)
        if is_fed and raw is not None:
            raise damaged(f"{where}: it is a constant, yet an operation or the caller writes it")
        values = self.values(raw, bare, table) if is_constant and raw is not None else None
        return replace(bare, is_constant=is_constant, is_variable=bool(table.IsVariable()), data=values)

    def values(self, raw: npt.NDArray[np.uint8], tensor: Tensor, table: Any) -> npt.NDArray[Any] | None:
        """The values of a constant; those that a sparse one leaves out are 0."""
        sparsity = table.Sparsity()
        is_unpacked = sparsity is not None or tensor.dtype is DType.INT4
        if is_unpacked and not self.unpacked.take(tensor.elems):
            raise ModelError(f"tensor {tensor.index} '{tensor.label}': shape {list(tensor.shape)} is too large")
        return _values(raw, tensor) if sparsity is None else dense_values(sparsity, raw, tensor)

    def buffer(self, index: int, where: str) -> npt.NDArray[np.uint8] | None:
        """A buffer's bytes, inside the flatbuffer or (newer schemas, large models) behind it; None if it is empty."""
        if index >= self.model.BuffersLength():
            raise damaged(f"{where}: buffer {index} does not exist")
        table = self.model.Buffers(index)
        offset, size = table.Offset(), table.Size()
        if index not in self.buffers:
            self.buffers.add(index)
            self.spend(size if offset > 1 else table.DataLength())
        if offset > 1:
            if offset + size > len(self.data):
                raise ModelError(f"{where}: its data lie outside the file; the file is truncated")
            return np.frombuffer(self.data, np.uint8, size, offset) if size else None
        data: npt.NDArray[np.uint8] = np.asarray(table.DataAsNumpy()) if table.DataLength() else np.empty(0, np.uint8)
        return data if data.size else None

    def quantisation(self, table: Any, where: str, dtype: DType) -> Quantisation | None:
        """Float tensors have none, even if the file says so. The axis is checked where it is used: runtimes ignore that
        of biases."""
        found = table.Quantization()
        if found is None or not found.ScaleLength() or dtype in (DType.FLOAT32, DType.FLOAT16):
            return None
        self.spend(16 * found.ScaleLength())
        scales = tuple(float(s) for s in found.ScaleAsNumpy())
        zero_points = tuple(self.vector(found.ZeroPointLength(), found.ZeroPointAsNumpy)) or (0,) * len(scales)
        axis = found.QuantizedDimension()
        if len(zero_points) != len(scales):
            raise damaged(f"{where}: {len(scales)} scales but {len(zero_points)} zero points")
        return Quantisation(scales, zero_points, axis)

    def op(self, bare: Op, operator: Any, tensors: Sequence[Tensor]) -> Op:
        """The operation with its attributes."""
        kind, known = bare.kind, kind_of(bare.kind)
        if known is None:
            # Options of an unknown custom operation may have any form.
            options = None if kind.startswith(CUSTOM) else _options(kind, operator)
            return replace(bare, attributes=attributes_of(kind, options, self.text))
        sources = tuple(None if i == ABSENT else tensors[i] for i in bare.inputs)
        label = Node(bare, sources, tuple(tensors[i] for i in bare.outputs)).label
        self.spend(operator.CustomOptionsLength())
        try:
            return replace(bare, attributes=known.decode(kind, _options(kind, operator)))
        except ModelError as error:
            raise ModelError(f"{label}: {error}") from error
        except DAMAGE as error:
            raise ModelError(f"{label}: its options are damaged") from error


@cache
def _option_classes() -> dict[int, type[Any]]:
    return {
        v: getattr(tflite, k)
        for k, v in vars(tflite.BuiltinOptions).items()
        if isinstance(v, int) and hasattr(tflite, k)
    }


def _options(kind: str, operator: Any) -> Any:
    """A table of the schema, in its class; of a custom operation, a map from names to numbers. None: there are none."""
    if kind.startswith(CUSTOM):
        return custom_options(operator.CustomOptionsAsNumpy().tobytes()) if operator.CustomOptionsLength() else None
    cls = _option_classes().get(operator.BuiltinOptionsType())
    union = operator.BuiltinOptions()
    if cls is None or union is None:
        return None
    options = cls()
    options.Init(union.Bytes, union.Pos)
    return options


def custom_options(raw: bytes) -> Mapping[str, float]:
    """The numbers in a flexbuffer's map; anything else in it is left out. One that holds no map holds no options."""
    if len(raw) < 3:
        return {}
    from flatbuffers import flexbuffers

    root = flexbuffers.GetRoot(bytearray(raw))
    if not root.IsMap:
        return {}
    keys, values = root.AsMap.Keys, root.AsMap.Values
    if len(keys) > MOST_OPTIONS:
        raise ModelError(f"{len(keys)} options are beyond the limit of {MOST_OPTIONS}")
    found: dict[str, float] = {}
    for name, value in ((str(keys[i].AsKey), values[i]) for i in range(len(keys))):
        if value.IsInt or value.IsBool:
            found[name] = int(value.AsInt if value.IsInt else value.AsBool)
        elif value.IsFloat:
            found[name] = float(value.AsFloat)
    return found


def raw_builtin_code(code: Any) -> int:
    """The newer field as the file has it. The schema's accessor returns the older field instead where the newer one is
    below 127; in a file without the older one, every such operation would be read as ADD, which is 0."""
    offset = code._tab.Offset(_BUILTIN_CODE_FIELD)
    return int(code._tab.Get(flatbuffers.number_types.Int32Flags, offset + code._tab.Pos)) if offset else 0


@cache
def _builtin_names() -> dict[int, str]:
    return {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}


def _checked_name(index: int, names: Sequence[str], operator: Any) -> str:
    code = int(operator.OpcodeIndex())
    if code >= len(names):
        raise damaged(f"op {index}: operator code {code} does not exist")
    if names[code] in _CONTROL_FLOW:
        raise ModelError(
            f"op {index}: {names[code]} is control flow, which is not supported; convert the model without it"
        )
    return names[code]


def _bounded(count: int, what: str, most: int = MOST_ITEMS) -> int:
    if count > most:
        raise ModelError(f"{what}: {count} is beyond the limit of {most}")
    return count


def _values(raw: npt.NDArray[np.uint8], tensor: Tensor) -> npt.NDArray[Any] | None:
    """A constant's values; None where the buffer does not hold them all (a graph published without its weights)."""
    if raw.size != tensor.size_bytes:
        return None
    if tensor.dtype is DType.INT4:
        # Two lie in a byte, the first in its lower half.
        both = np.stack([raw & 15, raw >> 4], axis=1).reshape(-1)[: tensor.elems]
        return ((both ^ 8).astype(np.int8) - 8).reshape(tensor.shape)
    values: npt.NDArray[Any] = raw.view(tensor.dtype.numpy.newbyteorder("<")).reshape(tensor.shape)
    return values


_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
_MOST_LEVELS = 16


@dataclass(frozen=True, slots=True)
class _Level:
    """`size`: of a dense one; 0 for a sparse one, where entry e has `indices[segments[e]:segments[e + 1]]`."""

    size: int
    segments: IntArray
    indices: IntArray


def dense_values(sparsity: Any, stored: npt.NDArray[np.uint8], tensor: Tensor) -> npt.NDArray[Any]:
    """All values of a sparse constant, of which the file stores only those that are not 0, in `stored`, and where they
    belong.

    The axes are walked level by level, in an order that the file gives; some are cut into blocks, which are axes of
    their own. A level is dense, with all of its indices, or sparse: then each entry of the level before has a segment
    of the indices that are stored."""
    if tensor.dtype is DType.INT4 or stored.size % tensor.dtype.size_bytes:
        raise ModelError(f"tensor '{tensor.label}': {tensor.dtype.value} elements cannot be sparse")
    values = stored.view(tensor.dtype.numpy.newbyteorder("<"))
    order = [sparsity.TraversalOrder(n) for n in range(_count(sparsity.TraversalOrderLength()))]
    blocked = [sparsity.BlockMap(n) for n in range(_count(sparsity.BlockMapLength()))]
    levels = [_level(sparsity.DimMetadata(n)) for n in range(_count(sparsity.DimMetadataLength()))]
    rank = len(tensor.shape)
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise _damage(tensor)
    found, entries = _walked(levels, tensor)
    by_axis = [found[order.index(axis)] for axis in range(len(order))]
    for place, axis in enumerate(blocked, rank):
        size = levels[order.index(place)].size
        by_axis[axis] = by_axis[axis] * size + by_axis[place]
    if len(entries) > values.size or any(np.any(at >= size) for at, size in zip(by_axis, tensor.shape, strict=False)):
        raise _damage(tensor)
    dense: npt.NDArray[Any] = np.zeros(tensor.shape, tensor.dtype.numpy)
    dense[tuple(by_axis[:rank])] = values[entries]
    return dense


def _walked(levels: Sequence[_Level], tensor: Tensor) -> tuple[list[IntArray], IntArray]:
    """For each level the index of every stored number along it, and which one it is among those stored."""
    found: list[IntArray] = []
    entries: IntArray = np.zeros(1, np.int64)
    for level in levels:
        if level.size:
            counts = np.full(len(entries), level.size)
        else:
            if len(entries) and entries.max() + 1 >= len(level.segments):
                raise _damage(tensor)
            counts = level.segments[entries + 1] - level.segments[entries]
        if counts.min(initial=0) < 0 or counts.sum() > max(1, tensor.elems):
            raise _damage(tensor)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        first = entries * level.size if level.size else level.segments[entries]
        entries = np.repeat(first, counts) + within
        if not level.size and len(entries) and (entries.min() < 0 or entries.max() >= len(level.indices)):
            raise _damage(tensor)
        found = [*(np.repeat(at, counts) for at in found), within if level.size else level.indices[entries]]
    return found, entries


def _level(table: Any) -> _Level:
    if table.Format() == tflite.DimensionType.DENSE:
        return _Level(max(1, int(table.DenseSize())), np.empty(0, np.int64), np.empty(0, np.int64))
    segments = _vector(table.ArraySegmentsType(), table.ArraySegments())
    return _Level(0, segments, _vector(table.ArrayIndicesType(), table.ArrayIndices()))


def _vector(code: int, union: Any) -> IntArray:
    if code not in _VECTORS or union is None:
        raise damaged("a sparse constant has no indices")
    vector = _VECTORS[code]()
    vector.Init(union.Bytes, union.Pos)
    return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1) if vector.ValuesLength() else np.empty(0, np.int64)


def _count(found: int) -> int:
    if found > _MOST_LEVELS:
        raise ModelError(f"a sparse constant of {found} levels is beyond the limit of {_MOST_LEVELS}")
    return found


def _damage(tensor: Tensor) -> ModelError:
    return damaged(f"tensor '{tensor.label}': the indices of its sparse values do not fit its shape")
