"""Arena plans inside .tflite files: what stock TensorFlow Lite Micro obeys, written and read.

TFLM looks for a metadata entry `OfflineMemoryAllocation`: 32-bit words `version, subgraphs, count`, then one offset for
each tensor, -1 for those that it shall place itself. It checks the count and nothing else, so this module checks the
rest. A second entry, `diagmem`, says in JSON who made the plan, for which kernel library and which model.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from diagmem import __version__
from diagmem.backends.tflm import PLAN_ENTRY as PLAN_ENTRY
from diagmem.backends.tflm.greedy import ONLINE
from diagmem.frontends import tflite
from diagmem.frontends.tflite import writer as flatbuffer
from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph
from diagmem.ops.state import tensors_in_file

ORIGIN_ENTRY = "diagmem"

_HEADER = struct.Struct("<3i")
_VERSION = 1
_READABLE_VERSIONS = (0, 1)
"""TFLM does not look at the version; Arm's Vela writes 0, TFLM's own tests 1, and both mean the same."""
_READABLE_SUBGRAPHS = (0, 1)
"""A count to some writers, an index to others; there is one subgraph."""
_LARGEST_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Who made a plan. `model_sha256`: see that function. `source_bytes`: the size of the file that the plan was added
    to, which stands whole at the end of the new one."""

    tool: str
    version: str
    kernels: str
    model_sha256: str
    source_bytes: int


def with_plan(
    data: bytes, graph: Graph, offsets: Sequence[int], kernels: str, order: Sequence[int] | None = None
) -> bytes:
    """The file, whose graph is given, with a plan inside, in the place of any that it carries. Nothing else changes,
    but for the operators' order where one is given. `offsets`: one for each tensor, ONLINE for what is left to
    TFLM."""
    count = tensors_in_file(graph)
    if count != flatbuffer.tensors_of_first(data):
        raise ModelError(
            "the plan is for the model with its branches and loops unrolled, and TensorFlow Lite Micro runs them as "
            "the file has them: use `diagmem emit c`"
        )
    # TFLM wants offsets for the tensors of other subgraphs too, and places none of them: they are handles.
    others = flatbuffer.tensors_of_others(data)
    encoded = encode([*offsets[:count], *[ONLINE] * others])
    decode(encoded, graph, others)
    origin = Origin("diagmem", __version__, kernels, model_sha256(graph), len(data))
    note = json.dumps(asdict(origin)).encode()
    is_new_order = order is not None and list(order) != sorted(order)
    return flatbuffer.rewritten(data, {PLAN_ENTRY: encoded, ORIGIN_ENTRY: note}, order if is_new_order else None)


def without_plan(data: bytes) -> bytes:
    """The file that diagmem added a plan to; the file itself if it did not, or if that cannot be told any more."""
    try:
        note = origin(data)
        source = data[-note.source_bytes :] if note is not None and 0 < note.source_bytes < len(data) else data
        is_source = note is not None and model_sha256(tflite.parse(source, "model")) == note.model_sha256
    except ModelError:
        return data
    return source if is_source else data


def left_to_tflm(data: bytes) -> bytes:
    """The file as TFLM alone plans it, whatever plan it carries and whoever made that."""
    source = without_plan(data)
    if flatbuffer.block(source, PLAN_ENTRY) is None:
        return source
    nothing = encode([ONLINE] * (flatbuffer.tensors_of_first(source) + flatbuffer.tensors_of_others(source)))
    return flatbuffer.rewritten(source, {PLAN_ENTRY: nothing})


def offsets_in(data: bytes, graph: Graph) -> tuple[int, ...] | None:
    """The plan that a file carries, one offset for each tensor; None if it carries none. The graph is the file's."""
    block = flatbuffer.block(data, PLAN_ENTRY)
    if block is None:
        return None
    note = origin(data)
    if note is not None and note.model_sha256 != model_sha256(graph):
        raise ModelError(
            f"metadata '{PLAN_ENTRY}': the plan was made for another model; make one with `diagmem emit tflm`"
        )
    return decode(block, graph, flatbuffer.tensors_of_others(data))


def origin(data: bytes) -> Origin | None:
    """Who made the plan that a file carries; None where it does not say."""
    note = flatbuffer.block(data, ORIGIN_ENTRY)
    if note is None:
        return None
    try:
        fields = json.loads(note)
        found = Origin(**{name: fields[name] for name in Origin.__slots__})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"metadata '{ORIGIN_ENTRY}': it is damaged") from error
    if not all(isinstance(v, int if name == "source_bytes" else str) for name, v in asdict(found).items()):
        raise ModelError(f"metadata '{ORIGIN_ENTRY}': it is damaged")
    return found


def model_sha256(graph: Graph) -> str:
    """A hash of what a model computes with: operations and their wiring, shapes, types, constants. It is the same
    however the file is laid out and the operations are ordered, and does not depend on diagmem's version."""
    digest = hashlib.sha256()
    for t in graph.tensors:
        digest.update(f"{t.shape} {t.dtype.value} {t.is_constant} {t.is_variable}\n".encode())
        digest.update(b"".join(values.tobytes() for values in (t.data, t.initial) if values is not None))
    ops = sorted((op.outputs, op.inputs, op.kind) for op in graph.ops)
    digest.update(repr((ops, graph.inputs, graph.outputs)).encode())
    return digest.hexdigest()


def encode(offsets: Sequence[int]) -> bytes:
    """TFLM's form of a plan."""
    return _HEADER.pack(_VERSION, 1, len(offsets)) + struct.pack(f"<{len(offsets)}i", *offsets)


def decode(block: bytes, graph: Graph, others: int = 0) -> tuple[int, ...]:
    """The offsets in TFLM's form of a plan; ONLINE for constants, whose entries TFLM does not look at. `others`: how
    many tensors the file has in other subgraphs than the graph's."""
    where = f"metadata '{PLAN_ENTRY}'"
    if len(block) < _HEADER.size or len(block) % 4:
        raise ModelError(f"{where}: {len(block)} bytes cannot hold a plan; it is damaged")
    version, subgraphs, count = _HEADER.unpack_from(block)
    if version not in _READABLE_VERSIONS:
        raise ModelError(f"{where}: version {version} is not known; known: 0 and 1")
    if subgraphs not in _READABLE_SUBGRAPHS:
        raise ModelError(f"{where}: it is for {subgraphs} subgraphs, the file has one; it is damaged")
    tensors = tensors_in_file(graph)
    if count != tensors + others:
        raise ModelError(
            f"{where}: it has {count} offsets, the model {tensors + others} tensors; it is damaged or for another model"
        )
    if len(block) != _HEADER.size + 4 * count:
        raise ModelError(f"{where}: {len(block)} bytes do not hold {count} offsets; it is truncated or damaged")
    raw = struct.unpack_from(f"<{count}i", block, _HEADER.size)
    in_file = [_checked(t.index, raw[t.index], graph) for t in graph.tensors[:tensors]]
    return (*in_file, *[ONLINE] * (len(graph.tensors) - tensors))


def _checked(tensor: int, offset: int, graph: Graph) -> int:
    found = graph.tensors[tensor]
    if offset < ONLINE or offset + found.size_bytes > _LARGEST_OFFSET:
        raise ModelError(
            f"metadata '{PLAN_ENTRY}': tensor {tensor} '{found.label}' has offset {offset}, which is neither -1 nor "
            "a place in an arena; TFLM would crash"
        )
    return ONLINE if found.is_constant else offset
