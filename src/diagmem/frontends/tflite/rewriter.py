"""Metadata and operator order of a .tflite file, changed without touching a byte of what was there.

A flatbuffer refers only forwards, so a table that replaces the root has to stand before everything it still uses. The
new file is therefore a block of new tables, a multiple of 64 bytes long, and behind it the old file, whole: no old
offset and no alignment changes, and the old file can be had back by cutting the block off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flatbuffers
import tflite

from diagmem.frontends.tflite.reader import DAMAGE
from diagmem.model.errors import ModelError

BLOCK_ALIGNMENT = 64
"""No kernel asks for more of its weights; TFLite itself asks for 16."""
PAYLOAD_ALIGNMENT = 16
MOST_ENTRIES = 1000
"""Files have a handful of metadata entries; a thousand is a sign of damage."""

_MODEL_VERSION, _MODEL_SUBGRAPHS, _MODEL_BUFFERS, _MODEL_METADATA, _MODEL_SLOTS = 0, 2, 4, 6, 8
_SUBGRAPH_OPERATORS, _SUBGRAPH_DEBUG_INDEX, _SUBGRAPH_SLOTS = 3, 5, 6


def block(data: bytes, name: str) -> bytes | None:
    """The metadata block of that name; of several the last, as TFLM sees it. None if the file has none."""
    try:
        model = tflite.Model.GetRootAs(data, 0)
        found = [entry for other, entry in _entries(model) if other == name]
        return _payload(model, found[-1], name) if found else None
    except DAMAGE as error:
        raise ModelError("the file's metadata are damaged") from error


def rewritten(data: bytes, blocks: Mapping[str, bytes], order: Sequence[int] | None = None) -> bytes:
    """The file with metadata `blocks` added, or put in the place of those of the same name, and with the operators of
    its first subgraph in `order` (given as indices of their present places). Those that it does not name come first:
    they hand out variables."""
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


def _payload(model: Any, entry: Any, name: str) -> bytes:
    if entry.Buffer() >= model.BuffersLength():
        raise ModelError(f"metadata '{name}': buffer {entry.Buffer()} does not exist; the file is damaged")
    buffer = model.Buffers(entry.Buffer())
    return bytes(buffer.DataAsNumpy()) if buffer.DataLength() else b""


def _refuse_absolute_places(model: Any) -> None:
    """Very large files hold data behind the flatbuffer, by absolute place; TFLM does not look for them there."""
    subgraphs = (model.Subgraphs(i) for i in range(model.SubgraphsLength()))
    operators = (s.Operators(i) for s in subgraphs for i in range(s.OperatorsLength()))
    buffers = (model.Buffers(i) for i in range(model.BuffersLength()))
    if any(b.Offset() > 1 for b in buffers) or any(o.LargeCustomOptionsOffset() > 1 for o in operators):
        raise ModelError(
            "the file holds data behind its flatbuffer, where TensorFlow Lite Micro does not look for them; "
            "convert the model with its weights inside"
        )


class _Continuation:
    """A builder that goes on from an old file. Builders work from the end to the front and count offsets from the
    end, so the old file enters as the first thing built, and its objects are then referred to like any others."""

    def __init__(self, data: bytes) -> None:
        self.old = tflite.Model.GetRootAs(data, 0)
        self.padding = -len(data) % BLOCK_ALIGNMENT
        self.end = len(data) + self.padding
        self.builder = flatbuffers.Builder(0)
        self.builder.Prep(BLOCK_ALIGNMENT, 0)
        self.builder.CreateByteVector(data + bytes(self.padding))

    def finish(self, blocks: Mapping[str, bytes], order: Sequence[int] | None) -> bytes:
        _refuse_absolute_places(self.old)
        buffers = [self.at(self.old.Buffers(i)._tab.Pos) for i in range(self.old.BuffersLength())]
        entries = [self.at(entry._tab.Pos) for name, entry in _entries(self.old) if name not in blocks]
        for name, payload in blocks.items():
            entries.append(self.metadata_entry(name, len(buffers)))
            buffers.append(self.payload_buffer(payload))
        replaced = {_MODEL_BUFFERS: self.vector(buffers), _MODEL_METADATA: self.vector(entries)}
        if order is not None:
            others = [self.at(self.old.Subgraphs(i)._tab.Pos) for i in range(1, self.old.SubgraphsLength())]
            replaced[_MODEL_SUBGRAPHS] = self.vector([self.subgraph(order), *others])
        root = self.table(self.old, _MODEL_SLOTS, {_MODEL_VERSION: self.old.Version()}, replaced)
        self.builder.Finish(root, file_identifier=b"TFL3")
        built = bytes(self.builder.Output())
        # The padding behind the old file only made its start aligned, counted from the end.
        return built[: len(built) - self.padding]

    def at(self, position: int) -> int:
        """The builder's name for an object of the old file."""
        return self.end - position

    def vector(self, targets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(targets), 4)
        for target in reversed(targets):
            self.builder.PrependUOffsetTRelative(target)
        return int(self.builder.EndVector())

    def metadata_entry(self, name: str, buffer: int) -> int:
        text = self.builder.CreateString(name)
        tflite.MetadataStart(self.builder)
        tflite.MetadataAddName(self.builder, text)
        tflite.MetadataAddBuffer(self.builder, buffer)
        return int(tflite.MetadataEnd(self.builder))

    def payload_buffer(self, payload: bytes) -> int:
        self.builder.Prep(PAYLOAD_ALIGNMENT, len(payload))
        content = self.builder.CreateByteVector(payload)
        tflite.BufferStart(self.builder)
        tflite.BufferAddData(self.builder, content)
        return int(tflite.BufferEnd(self.builder))

    def subgraph(self, order: Sequence[int]) -> int:
        old = self.old.Subgraphs(0)
        unnamed = sorted(set(range(old.OperatorsLength())) - set(order))
        if len(unnamed) + len(order) != old.OperatorsLength():
            raise ModelError(f"the new order does not name each of the {old.OperatorsLength()} operators once")
        operators = self.vector([self.at(old.Operators(i)._tab.Pos) for i in (*unnamed, *order)])
        numbers = {_SUBGRAPH_DEBUG_INDEX: old.DebugMetadataIndex()}
        return self.table(old, _SUBGRAPH_SLOTS, numbers, {_SUBGRAPH_OPERATORS: operators})

    def table(self, old: Any, slots: int, numbers: Mapping[int, int], replaced: Mapping[int, int]) -> int:
        """A copy of an old table: `numbers` by value, everything else by reference, but for what is `replaced`."""
        fields = (old._tab.Get(flatbuffers.number_types.VOffsetTFlags, self.vtable(old)) - 4) // 2
        if any(old._tab.Offset(4 + 2 * slot) for slot in range(slots, fields)):
            raise ModelError("the file uses fields of a newer TensorFlow Lite schema than diagmem knows")
        self.builder.StartObject(slots)
        for slot in range(slots):
            if slot in numbers:
                self.builder.PrependInt32Slot(slot, numbers[slot], None)
            elif slot in replaced:
                self.builder.PrependUOffsetTRelativeSlot(slot, replaced[slot], 0)
            elif offset := old._tab.Offset(4 + 2 * slot):
                self.builder.PrependUOffsetTRelativeSlot(slot, self.at(old._tab.Indirect(old._tab.Pos + offset)), 0)
        return int(self.builder.EndObject())

    @staticmethod
    def vtable(table: Any) -> int:
        position = table._tab.Pos
        return int(position - table._tab.Get(flatbuffers.number_types.SOffsetTFlags, position))
