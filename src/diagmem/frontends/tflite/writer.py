"""Writes .tflite files: zoo models with random weights; copies, field by field, with narrower tensors and fewer
operators; and files with other metadata or another operator order, in which no byte that was there changes.

A flatbuffer refers only forwards, so a table that replaces the root has to stand before everything it still uses. Where
the old file stays whole, the new one is therefore a block of new tables, a multiple of 64 bytes long, and behind it the
old file: no old offset and no alignment changes, and the old file can be had back by cutting the block off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

from diagmem.frontends.tflite.reader import DAMAGE, raw_builtin_code
from diagmem.frontends.zoo.weights import Weights, draw, quantise
from diagmem.model.errors import ModelError, damaged
from diagmem.model.graph import ABSENT, DType, Graph, Op, Quantisation, Shape, Tensor
from diagmem.ops import kinds
from diagmem.ops.options import CUSTOM, CustomOptions, Options
from diagmem.ops.state import tensors_in_file

ALIGNMENT = 16
"""Bytes; runtimes that map the file use the weights where they lie."""

Fields = dict[str, Any]


class FlatTables:
    """One flatbuffer, written back to front: what is referred to is written first."""

    def __init__(self, size_bytes: int = 1024) -> None:
        self.flat = flatbuffers.Builder(size_bytes)

    def table(self, name: str, /, **fields: Any) -> int:
        """A table of the schema; its vectors, strings and tables are given by their offsets."""
        getattr(tflite, f"{name}Start")(self.flat)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(self.flat, value)
        return int(getattr(tflite, f"{name}End")(self.flat))

    def ints(self, values: Sequence[int]) -> int:
        return int(self.flat.CreateNumpyVector(np.array(values, np.int32)))

    def numbers(self, values: Sequence[float]) -> int:
        """A vector of integers, or of float32 if one of them is."""
        if any(isinstance(value, float) for value in values):
            return int(self.flat.CreateNumpyVector(np.array(values, np.float32)))
        return self.ints([int(value) for value in values])

    def offsets(self, tables: Sequence[int]) -> int:
        self.flat.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self.flat.PrependUOffsetTRelative(table)
        return int(self.flat.EndVector())

    def data(self, values: npt.NDArray[Any]) -> int:
        """A vector of bytes, aligned; otherwise as the builder's own CreateByteVector does it."""
        raw = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        self.flat.StartVector(1, len(raw), ALIGNMENT)
        self.flat.head -= len(raw)
        self.flat.Bytes[self.flat.head : self.flat.head + len(raw)] = raw
        return int(self.flat.EndVector())

    def tensor(
        self, name: str, shape: Shape, dtype: DType, buffer: int, quantisation: Quantisation | None, **more: Any
    ) -> int:
        fields: Fields = {
            "Shape": self.ints(shape),
            "Type": getattr(tflite.TensorType, dtype.name),
            "Buffer": buffer,
            "Name": self.flat.CreateString(name),
            **more,
        }
        if quantisation is not None:
            fields["Quantization"] = self.scales(quantisation)
        return self.table("Tensor", **fields)

    def scales(self, quantisation: Quantisation) -> int:
        return self.table(
            "QuantizationParameters",
            Scale=self.flat.CreateNumpyVector(np.array(quantisation.scales, np.float32)),
            ZeroPoint=self.flat.CreateNumpyVector(np.array(quantisation.zero_points, np.int64)),
            QuantizedDimension=quantisation.axis,
        )

    def operator(self, code: int, inputs: Sequence[int], outputs: Sequence[int], options: Options) -> int:
        """`code`: its place in the list of operator codes."""
        fields: Fields = {"OpcodeIndex": code, "Inputs": self.ints(inputs), "Outputs": self.ints(outputs)}
        if isinstance(options, CustomOptions):
            fields["CustomOptions"] = self.flat.CreateByteVector(custom_options_bytes(options.fields))
        elif options is not None:
            name, values = options
            vectors = {key: self.numbers(v) if isinstance(v, tuple) else v for key, v in values.items()}
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, name)
            fields["BuiltinOptions"] = self.table(name, **vectors)
        return self.table("Operator", **fields)

    def operator_code(self, kind: str, version: int) -> int:
        if kind.startswith(CUSTOM):
            custom, code = self.flat.CreateString(kind[len(CUSTOM) :]), tflite.BuiltinOperator.CUSTOM
            return self.table("OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, CustomCode=custom)
        number = getattr(tflite.BuiltinOperator, kind)
        return self.table("OperatorCode", DeprecatedBuiltinCode=min(number, 127), BuiltinCode=number, Version=version)


def custom_options_bytes(fields: Mapping[str, float]) -> bytes:
    """A flexbuffer that holds a map."""
    from flatbuffers import flexbuffers

    builder = flexbuffers.Builder()
    builder.MapFromElements(dict(fields))
    return bytes(builder.Finish())


SCHEMA_VERSION = 3


def to_tflite(graph: Graph, seed: int = 0) -> bytes:
    """The file's bytes: seeded weights, and for int8 a quantisation that fits them. Same seed, same bytes."""
    weights = draw(graph, seed)
    return _File(graph, weights, quantise(graph, weights)).content()


class _File(FlatTables):
    def __init__(self, graph: Graph, weights: Weights, quantisation: dict[int, Quantisation]) -> None:
        self.graph = graph
        self.weights = weights
        self.quantisation = quantisation
        constants_bytes = sum(t.size_bytes + 2 * ALIGNMENT for t in graph.tensors if t.is_constant)
        scales_bytes = sum(16 * len(q.scales) for q in quantisation.values())
        # Large enough from the start: growing would copy all weights and briefly hold them twice.
        super().__init__(constants_bytes + scales_bytes + 512 * (len(graph.tensors) + len(graph.ops)))

    def content(self) -> bytes:
        buffers, place = self.buffers()
        codes = sorted({op.kind for op in self.graph.ops})
        tensors = self.offsets([self.tensor_at(t, place.get(t.index, 0)) for t in self.graph.tensors])
        operators = self.offsets(
            [
                self.operator(
                    codes.index(node.op.kind), node.op.inputs, node.op.outputs, kinds()[node.op.kind].encode(node)
                )
                for node in self.graph.nodes
            ]
        )
        subgraph = self.table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self.ints(self.graph.inputs),
            Outputs=self.ints(self.graph.outputs),
            Operators=operators,
            Name=self.flat.CreateString("main"),
        )
        model = self.table(
            "Model",
            Version=SCHEMA_VERSION,
            OperatorCodes=self.offsets([self.operator_code(kind, self.version(kind)) for kind in codes]),
            Subgraphs=self.offsets([subgraph]),
            Description=self.flat.CreateString(f"{self.graph.name}, written by diagmem with random weights"),
            Buffers=buffers,
        )
        self.flat.Finish(model, file_identifier=b"TFL3")
        return bytes(memoryview(self.flat.Bytes)[self.flat.Head() :])

    def buffers(self) -> tuple[int, dict[int, int]]:
        """The vector of buffers, and which one each constant has. Buffer 0 is empty, by TFLite's convention."""
        constants = [t for t in self.graph.tensors if t.is_constant]
        filled = [self.table("Buffer", Data=self.data(self.values(t))) for t in constants]
        return self.offsets([self.table("Buffer"), *filled]), {t.index: i for i, t in enumerate(constants, 1)}

    def values(self, tensor: Tensor) -> npt.NDArray[Any]:
        """What a constant holds, as stored."""
        if tensor.data is not None:
            return tensor.data
        if tensor.index in self.weights.filters:
            filters = self.weights.filters[tensor.index]
            return filters.integers() if tensor.dtype is DType.INT8 else filters.real()
        vector = self.weights.vectors[tensor.index]
        if tensor.dtype is DType.FLOAT32:
            return vector.astype(np.float32)
        stored: npt.NDArray[np.float64] = np.round(vector / np.array(self.quantisation[tensor.index].scales))
        return stored.astype(tensor.dtype.numpy)

    def tensor_at(self, t: Tensor, buffer: int) -> int:
        scales = self.quantisation.get(t.index)
        return self.tensor(t.name, t.shape, t.dtype, buffer, scales, IsVariable=t.is_variable)

    def version(self, kind: str) -> int:
        is_int8 = any(t.dtype is DType.INT8 for t in self.graph.tensors)
        return kinds()[kind].int8_version if is_int8 else 1


def copied(data: bytes, before: Graph, after: Graph) -> bytes:
    """The file of the graph `before`, as that of `after`: a graph made from it whose ops are some of its own, with
    other constants, other sizes of tensors and other new shapes of reshapes. Tensors that nobody uses are left out, so
    that numbers change."""
    try:
        return _Copy(data, before, after).content()
    except DAMAGE as error:
        raise ModelError("the file's tables are damaged") from error


def can_copy(data: bytes, graph: Graph) -> bool:
    """Whether the file's operators and tensors are the graph's, one by one: not if it has several subgraphs, or if
    operators remember what is in no tensor."""
    if tensors_in_file(graph) != len(graph.tensors):
        return False
    try:
        model = tflite.Model.GetRootAs(data, 0)
        return bool(model.SubgraphsLength() == 1 and model.Subgraphs(0).OperatorsLength() == len(graph.ops))
    except DAMAGE:
        return False


class _Copy(FlatTables):
    def __init__(self, data: bytes, before: Graph, after: Graph) -> None:
        super().__init__(len(data))
        self.file = data
        self.old = tflite.Model.GetRootAs(data, 0)
        self.before, self.after = before, after
        self.subgraph = self.old.Subgraphs(0)
        self.buffers: list[int] = [self.table("Buffer")]
        self.by_old_buffer: dict[int, int] = {0: 0}

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Tensors that are used -> their numbers in the new file."""
        graph = self.after
        used = {t for op in graph.ops for t in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
        used |= {t for op in graph.ops for t in self.intermediates(op)}
        return {ABSENT: ABSENT, **{t: n for n, t in enumerate(sorted(used - {ABSENT}))}}

    def intermediates(self, op: Op) -> list[int]:
        """Tensors that an operator uses without their being among its inputs and outputs."""
        old = self.subgraph.Operators(op.number)
        return [int(old.Intermediates(n)) for n in range(old.IntermediatesLength())]

    def content(self) -> bytes:
        tensors = self.offsets([self.tensor_of(t) for t in self.places if t != ABSENT])
        codes = sorted({self.subgraph.Operators(op.number).OpcodeIndex() for op in self.after.ops})
        operators = self.offsets([self.operator_of(op, codes) for op in self.after.ops])
        graph = {"Tensors": tensors, "Operators": operators, "Name": self.text(self.subgraph.Name())}
        graph |= {"Inputs": self.mapped(self.after.inputs), "Outputs": self.mapped(self.after.outputs)}
        metadata = self.metadata()
        signatures = self.signatures()
        fields: dict[str, Any] = {
            "OperatorCodes": self.offsets([self.code_of(code) for code in codes]),
            "Subgraphs": self.offsets([self.table("SubGraph", **_given(graph))]),
            "Description": self.text(self.old.Description()),
            "Buffers": self.offsets(self.buffers),
            "Metadata": self.offsets(metadata) if metadata else None,
            "SignatureDefs": self.offsets(signatures) if signatures else None,
        }
        self.flat.Finish(self.table("Model", Version=self.old.Version(), **_given(fields)), file_identifier=b"TFL3")
        return bytes(memoryview(self.flat.Bytes)[self.flat.Head() :])

    def text(self, raw: bytes | None) -> int | None:
        return None if raw is None else int(self.flat.CreateString(raw))

    def mapped(self, tensors: Any) -> int:
        return self.ints([self.places[int(t)] for t in tensors])

    def buffer_of(self, index: int) -> int:
        """The number of a buffer of the old file, which is copied once."""
        if index not in self.by_old_buffer:
            old = self.old.Buffers(index)
            raw = old.DataAsNumpy() if old.DataLength() else np.empty(0, np.uint8)
            if old.Offset() > 1:
                raw = np.frombuffer(self.file, np.uint8, old.Size(), old.Offset())
            self.by_old_buffer[index] = self.added(raw)
        return self.by_old_buffer[index]

    def added(self, values: Any) -> int:
        """The number of a new buffer; one without bytes says nothing but that its tensor is no constant."""
        self.buffers.append(self.table("Buffer", Data=self.data(values)) if values.size else self.table("Buffer"))
        return len(self.buffers) - 1

    def tensor_of(self, index: int) -> int:
        new = self.after.tensors[index]
        if index >= len(self.before.tensors):
            return self.tensor(new.name, new.shape, new.dtype, self.added(new.data), new.quantisation)
        old, table = self.before.tensors[index], self.subgraph.Tensors(index)
        is_same = new.data is old.data
        buffer = self.buffer_of(table.Buffer()) if is_same or new.data is None else self.added(new.data)
        if new.shape == old.shape and new.quantisation == old.quantisation:
            return self.copy(table, "Tensor", Buffer=buffer)
        own = {"Shape": self.ints(new.shape), "Quantization": self.scales_of(table, old, new)}
        if table.ShapeSignatureLength():
            own["ShapeSignature"] = self.ints(new.shape)
        return self.copy(table, "Tensor", Buffer=buffer, **_given(own))

    def scales_of(self, table: Any, old: Tensor, new: Tensor) -> int | None:
        found = table.Quantization()
        if found is None:
            return None
        if new.quantisation is None or new.quantisation == old.quantisation:
            return self.copy(found, "QuantizationParameters")
        return self.scales(new.quantisation)

    def operator_of(self, op: Op, codes: list[int]) -> int:
        old = self.subgraph.Operators(op.number)
        own: dict[str, Any] = {"OpcodeIndex": codes.index(old.OpcodeIndex())}
        own |= {"Inputs": self.mapped(op.inputs), "Outputs": self.mapped(op.outputs)}
        own |= {"Intermediates": self.mapped(self.intermediates(op))} if old.IntermediatesLength() else {}
        for field, union in (("BuiltinOptions", tflite.BuiltinOptions), ("BuiltinOptions2", tflite.BuiltinOptions2)):
            options = getattr(old, field)()
            kind = getattr(old, f"{field}Type")()
            if options is not None and kind:
                name = next(name for name, number in vars(union).items() if number == kind)
                own[field] = self.options_of(options, name, op)
        return self.copy(old, "Operator", **own)

    def options_of(self, union: Any, name: str, op: Op) -> int:
        options = getattr(tflite, name)()
        options.Init(union.Bytes, union.Pos)
        if name == "ReshapeOptions" and op.attributes is not None and op.attributes.new_shape is not None:
            return self.table(name, NewShape=self.ints(op.attributes.new_shape))
        return self.copy(options, name)

    def code_of(self, index: int) -> int:
        code = self.old.OperatorCodes(index)
        return self.copy(code, "OperatorCode", BuiltinCode=raw_builtin_code(code))

    def metadata(self) -> list[int]:
        found = [self.old.Metadata(n) for n in range(self.old.MetadataLength())]
        return [self.copy(entry, "Metadata", Buffer=self.buffer_of(entry.Buffer())) for entry in found]

    def signatures(self) -> list[int]:
        found = [self.old.SignatureDefs(n) for n in range(self.old.SignatureDefsLength())]
        return [
            self.copy(
                one,
                "SignatureDef",
                Inputs=self.offsets([self.map_of(one.Inputs(n)) for n in range(one.InputsLength())]),
                Outputs=self.offsets([self.map_of(one.Outputs(n)) for n in range(one.OutputsLength())]),
            )
            for one in found
        ]

    def map_of(self, entry: Any) -> int:
        return self.copy(entry, "TensorMap", TensorIndex=self.places[entry.TensorIndex()])

    def copy(self, old: Any, name: str, **own: Any) -> int:
        """A table of the schema with all its fields, but for those given."""
        fields = {}
        for function in dir(tflite):
            field = function.removeprefix(f"{name}Add")
            if function.startswith(f"{name}Add") and field not in own and hasattr(old, field):
                value = self.field_of(old, field)
                if value is not None:
                    fields[field] = value
        return self.table(name, **fields, **own)

    def field_of(self, old: Any, field: str) -> Any:
        """A number as it is; vectors, texts and tables copied; None if it is not there."""
        if hasattr(old, f"{field}Length"):
            if not getattr(old, f"{field}Length")():
                return None
            if hasattr(old, f"{field}AsNumpy"):
                return int(self.flat.CreateNumpyVector(getattr(old, f"{field}AsNumpy")()))
            raise ModelError(f"the file has {field}, which is not copied")
        value = getattr(old, field)()
        if isinstance(value, bytes):
            return self.text(value)
        if hasattr(value, "Init"):
            return self.copy(value, type(value).__name__)
        if hasattr(value, "Bytes"):
            raise ModelError(f"the file has {field}, which is not copied")
        return value


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


BLOCK_ALIGNMENT = 64
"""No kernel asks for more of its weights; TFLite itself asks for 16."""
MOST_ENTRIES = 1000
"""Files have a handful of metadata entries; a thousand is a sign of damage."""

_MODEL_VERSION, _MODEL_SUBGRAPHS, _MODEL_BUFFERS, _MODEL_METADATA, _MODEL_SLOTS = 0, 2, 4, 6, 8
_SUBGRAPH_OPERATORS, _SUBGRAPH_DEBUG_INDEX, _SUBGRAPH_SLOTS = 3, 5, 6


def block(data: bytes, name: str) -> bytes | None:
    """The metadata block of that name; of several the last, as TFLM sees it. None if the file has none."""
    try:
        model = tflite.Model.GetRootAs(data, 0)
        found = [entry for other, entry in _entries(model) if other == name]
        if not found:
            return None
        index = found[-1].Buffer()
        if index >= model.BuffersLength():
            raise damaged(f"metadata '{name}': buffer {index} does not exist")
        return bytes(model.Buffers(index).DataAsNumpy()) if model.Buffers(index).DataLength() else b""
    except DAMAGE as error:
        raise ModelError("the file's metadata are damaged") from error


def rewritten(data: bytes, blocks: Mapping[str, bytes], order: Sequence[int] | None = None) -> bytes:
    """The file with metadata `blocks` added, replacing those of the same name, and with the operators of its first
    subgraph in `order` (as indices of their present places). Those that it does not name come first: they hand out
    variables."""
    try:
        return _Continuation(data).finish(blocks, order)
    except DAMAGE as error:
        raise ModelError("the file's tables are damaged") from error


def tensors_of_first(data: bytes) -> int:
    """How many tensors the file has in its first subgraph."""
    return int(tflite.Model.GetRootAs(data, 0).Subgraphs(0).TensorsLength())


def tensors_of_others(data: bytes) -> int:
    """How many tensors the file has in subgraphs other than the first."""
    try:
        model = tflite.Model.GetRootAs(data, 0)
        return sum(model.Subgraphs(i).TensorsLength() for i in range(1, model.SubgraphsLength()))
    except DAMAGE as error:
        raise ModelError("the file's tables are damaged") from error


def _entries(model: Any) -> Iterator[tuple[str, Any]]:
    if model.MetadataLength() > MOST_ENTRIES:
        raise ModelError(f"{model.MetadataLength()} metadata entries are beyond the limit of {MOST_ENTRIES}")
    for i in range(model.MetadataLength()):
        entry = model.Metadata(i)
        yield (entry.Name() or b"").decode("utf-8", errors="replace"), entry


def _refuse_absolute_places(model: Any) -> None:
    """Very large files hold data behind the flatbuffer, at absolute offsets; TFLM does not look there."""
    subgraphs = (model.Subgraphs(i) for i in range(model.SubgraphsLength()))
    operators = (s.Operators(i) for s in subgraphs for i in range(s.OperatorsLength()))
    buffers = (model.Buffers(i) for i in range(model.BuffersLength()))
    if any(b.Offset() > 1 for b in buffers) or any(o.LargeCustomOptionsOffset() > 1 for o in operators):
        raise ModelError(
            "the file holds data behind its flatbuffer, where TensorFlow Lite Micro does not look; convert the model "
            "with its weights inside"
        )


class _Continuation(FlatTables):
    """A builder that continues an old file. Builders work from the end to the front and count offsets from the end, so
    the old file is the first thing built, and its objects are then referred to like any others."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self.old = tflite.Model.GetRootAs(data, 0)
        self.padding = -len(data) % BLOCK_ALIGNMENT
        self.end = len(data) + self.padding
        self.flat.Prep(BLOCK_ALIGNMENT, 0)
        self.flat.CreateByteVector(data + bytes(self.padding))

    def finish(self, blocks: Mapping[str, bytes], order: Sequence[int] | None) -> bytes:
        _refuse_absolute_places(self.old)
        buffers = [self.at(self.old.Buffers(i)._tab.Pos) for i in range(self.old.BuffersLength())]
        entries = [self.at(entry._tab.Pos) for name, entry in _entries(self.old) if name not in blocks]
        for name, payload in blocks.items():
            entries.append(self.table("Metadata", Name=self.flat.CreateString(name), Buffer=len(buffers)))
            buffers.append(self.table("Buffer", Data=self.data(np.frombuffer(payload, np.uint8))))
        replaced = {_MODEL_BUFFERS: self.offsets(buffers), _MODEL_METADATA: self.offsets(entries)}
        if order is not None:
            others = [self.at(self.old.Subgraphs(i)._tab.Pos) for i in range(1, self.old.SubgraphsLength())]
            replaced[_MODEL_SUBGRAPHS] = self.offsets([self.subgraph(order), *others])
        root = self.replaced(self.old, _MODEL_SLOTS, {_MODEL_VERSION: self.old.Version()}, replaced)
        self.flat.Finish(root, file_identifier=b"TFL3")
        built = bytes(self.flat.Output())
        # The padding behind the old file only made its start aligned, counted from the end.
        return built[: len(built) - self.padding]

    def at(self, position: int) -> int:
        """The builder's name for an object of the old file."""
        return self.end - position

    def subgraph(self, order: Sequence[int]) -> int:
        old = self.old.Subgraphs(0)
        unnamed = sorted(set(range(old.OperatorsLength())) - set(order))
        if len(unnamed) + len(order) != old.OperatorsLength():
            raise ModelError(f"the new order does not name each of the {old.OperatorsLength()} operators once")
        operators = self.offsets([self.at(old.Operators(i)._tab.Pos) for i in (*unnamed, *order)])
        numbers = {_SUBGRAPH_DEBUG_INDEX: old.DebugMetadataIndex()}
        return self.replaced(old, _SUBGRAPH_SLOTS, numbers, {_SUBGRAPH_OPERATORS: operators})

    def replaced(self, old: Any, slots: int, numbers: Mapping[int, int], replaced: Mapping[int, int]) -> int:
        """A copy of an old table: `numbers` by value, everything else by reference, but for what is `replaced`."""
        position = old._tab.Pos
        vtable = int(position - old._tab.Get(flatbuffers.number_types.SOffsetTFlags, position))
        fields = (old._tab.Get(flatbuffers.number_types.VOffsetTFlags, vtable) - 4) // 2
        if any(old._tab.Offset(4 + 2 * slot) for slot in range(slots, fields)):
            raise ModelError("the file uses fields of a newer TensorFlow Lite schema than diagmem knows")
        self.flat.StartObject(slots)
        for slot in range(slots):
            if slot in numbers:
                self.flat.PrependInt32Slot(slot, numbers[slot], None)
            elif slot in replaced:
                self.flat.PrependUOffsetTRelativeSlot(slot, replaced[slot], 0)
            elif offset := old._tab.Offset(4 + 2 * slot):
                self.flat.PrependUOffsetTRelativeSlot(slot, self.at(old._tab.Indirect(old._tab.Pos + offset)), 0)
        return int(self.flat.EndObject())
