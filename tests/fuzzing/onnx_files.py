"""Random ONNX files, most of them with a field missing, doubled or changed, data cut off, or bytes flipped. Each is
refused in one line, or is a model whose C computes what numpy does; one that is not spoiled is never refused, and
computes what onnxruntime does where that is installed."""

from __future__ import annotations

import importlib.util
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.proto import BYTES, FIXED32, VARINT, Message
from diagmem.frontends.source import Source
from diagmem.verification import oracles, reference
from diagmem.verification.reference import sample_inputs
from tests.frontends.onnx import making
from tests.frontends.tflite.test_hostile import corrupted
from tests.fuzzing import batches
from tests.fuzzing.attempts import attempted
from tests.fuzzing.files import job_of

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Fields: TypeAlias = list[tuple[int, int, Any]]
"""Number, wire type and value of each field; the value of one that is a message is its fields."""

SOUND_SHARE = 0.15

HAS_RUNTIME = importlib.util.find_spec("onnxruntime") is not None

SCALE = 0.05

ROUNDED_BY = 0.5
"""What a step of rounding, of `SCALE`, may grow to by the operations behind it."""

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 16, 127, 255, -1, -2, 2**15, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))

_DIM: dict[int, Any] = {}
_TYPE: dict[int, Any] = {1: {2: {1: _DIM}}}
_TENSOR: dict[int, Any] = {}
_NODE: dict[int, Any] = {5: {5: _TENSOR}}
_GRAPH: dict[int, Any] = {1: _NODE, 5: _TENSOR, 11: {2: _TYPE}, 12: {2: _TYPE}}
_MODEL: dict[int, Any] = {7: _GRAPH, 8: {}}
"""Which fields of a message are messages."""


class _Growing:
    """A model to which a node is added at a time. `shape`: of the last output, `shape[1]` are channels."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shape: Shape = (1, chance.choice((1, 2, 3, 4, 8)), chance.randint(3, 8), chance.randint(3, 8))
        self.input_shape = self.shape
        self.nodes: list[bytes] = []
        self.constants: dict[str, Array] = {}
        self.last = "x"

    def add(
        self, kind: str, shape: Shape, operands: Sequence[Any] = (), domain: str = "", /, **attributes: Any
    ) -> None:
        """A node that reads the last output first; an operand that is an array becomes an initializer."""
        names = [self.last]
        for value in operands:
            name = value if isinstance(value, str) else f"c{len(self.constants)}"
            if not isinstance(value, str):
                self.constants[name] = value
            names.append(name)
        self.last = f"t{len(self.nodes)}"
        self.nodes.append(making.node(kind, names, [self.last], domain, **attributes))
        self.shape = shape

    def reals(self, *shape: int) -> Array:
        return np.random.default_rng(self.chance.randrange(1 << 30)).normal(0, 0.5, shape).astype(np.float32)

    def content(self) -> bytes:
        inputs, outputs = {"x": self.input_shape}, {self.last: self.shape}
        return making.model(self.nodes, inputs, outputs, self.constants, self.chance.choice((11, 13, 17)))


def _conv(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    taps, count = it.chance.choice((1, 3)), it.chance.choice((1, 2, 4, 6))
    group = channels if it.chance.random() < 0.3 else 1
    count = channels if group > 1 else count
    operands = [it.reals(count, channels // group, taps, taps), it.reals(count)][: it.chance.choice((1, 2))]
    it.add("Conv", (n, count, rows, cols), operands, pads=[taps // 2] * 4, group=group, kernel_shape=[taps, taps])


def _pool(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    kind = it.chance.choice(("MaxPool", "AveragePool"))
    pads = [1 if min(rows, cols) < 2 else it.chance.randint(0, 1) for _ in range(4)]
    shape = (n, channels, (rows + pads[0] + pads[2] - 2) // 2 + 1, (cols + pads[1] + pads[3] - 2) // 2 + 1)
    it.add(kind, shape, kernel_shape=[2, 2], strides=[2, 2], pads=pads)


def _unary(it: _Growing) -> None:
    kind = it.chance.choice(
        ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Abs", "Neg", "HardSigmoid", "Exp", "Identity")
    )
    it.add(kind, it.shape)


def _binary(it: _Growing) -> None:
    other: Any = it.chance.choice((it.last, it.reals(*it.shape), it.reals(it.shape[1], 1, 1), it.reals(1)))
    it.add(it.chance.choice(("Add", "Mul", "Sub")), it.shape, [other])


def _norm(it: _Growing) -> None:
    count = it.shape[1]
    it.add("BatchNormalization", it.shape, [*(it.reals(count) for _ in range(3)), np.abs(it.reals(count)) + 1])


def _transpose(it: _Growing) -> None:
    order = it.chance.sample(range(4), 4)
    it.add("Transpose", tuple(it.shape[axis] for axis in order), perm=order)


def _reshape(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    shape = it.chance.choice(((n, channels * rows, cols, 1), (n, 1, channels, rows * cols), (n, channels, cols, rows)))
    it.add("Reshape", shape, [np.array(shape, np.int64)])


def _slice(it: _Growing) -> None:
    axis = it.chance.randrange(1, 4)
    size = it.shape[axis]
    first = it.chance.randrange(size)
    shape = tuple(size - first if place == axis else other for place, other in enumerate(it.shape))
    it.add("Slice", shape, [np.array([value], np.int64) for value in (first, 1 << 40, axis)])


def _concat(it: _Growing) -> None:
    axis = it.chance.randrange(1, 4)
    it.add("Concat", tuple(v * (1 + (place == axis)) for place, v in enumerate(it.shape)), [it.last], axis=axis)


def _reduce(it: _Growing) -> None:
    n, channels, _, _ = it.shape
    if it.chance.random() < 0.5:
        it.add("GlobalAveragePool", (n, channels, 1, 1))
    else:
        it.add("ReduceMax", (n, channels, 1, 1), axes=[2, 3], keepdims=1)


def _softmax(it: _Growing) -> None:
    """Of one value alone there is no kernel on integers."""
    axis = 1 if it.shape[1] > 1 else -1
    if it.shape[axis] > 1:
        it.add("Softmax", it.shape, axis=axis)


def _rounded(it: _Growing) -> None:
    scale, zero = np.array(SCALE, np.float32), np.array(it.chance.choice((0, 3, -7)), np.int8)
    it.add("QuantizeLinear", it.shape, [scale, zero])
    it.add("DequantizeLinear", it.shape, [scale, zero])


def _dense(it: _Growing) -> None:
    n, count = it.shape[0], int(np.prod(it.shape[1:]))
    wide = it.chance.randint(1, 6)
    it.add("Flatten", (n, count))
    if it.chance.random() < 0.5:
        it.add("Gemm", (n, wide), [it.reals(wide, count), it.reals(wide)], transB=1)
    else:
        it.add("MatMul", (n, wide), [it.reals(count, wide)])
    it.add("Reshape", (n, wide, 1, 1), [np.array([n, -1, 1, 1], np.int64)])


def _pad(it: _Growing) -> None:
    pads = [0, *(it.chance.randint(0, 2) for _ in range(3)), 0, *(it.chance.randint(0, 2) for _ in range(3))]
    shape = tuple(size + pads[axis] + pads[axis + 4] for axis, size in enumerate(it.shape))
    it.add("Pad", shape, [np.array(pads, np.int64), np.array(0.5, np.float32)])


def _resize(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    shape = (n, channels, rows * 2, cols * 2)
    sizes = [np.zeros(0, np.float32), np.zeros(0, np.float32), np.array(shape, np.int64)]
    it.add("Resize", shape, sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _upward(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    count, taps = it.chance.randint(1, 4), it.chance.randint(2, 3)
    shape = (n, count, (rows - 1) * 2 + taps, (cols - 1) * 2 + taps)
    it.add("ConvTranspose", shape, [it.reals(channels, count, taps, taps), it.reals(count)], strides=[2, 2])


def _bounded(it: _Growing) -> None:
    kind = it.chance.choice(("Clip", "Max", "Min", "PRelu"))
    operands = {"Clip": [np.array(-0.5, np.float32), np.array(0.5, np.float32)], "PRelu": [it.reals(it.shape[1], 1, 1)]}
    it.add(kind, it.shape, operands.get(kind, [np.array(0.25, np.float32)]))


def _gather(it: _Growing) -> None:
    axis = it.chance.randrange(1, 4)
    places = np.array([it.chance.randrange(it.shape[axis]) for _ in range(it.chance.randint(1, 3))], np.int64)
    it.add("Gather", (*it.shape[:axis], len(places), *it.shape[axis + 1 :]), [places], axis=axis)


def _depth(it: _Growing) -> None:
    n, channels, rows, cols = it.shape
    if channels % 4 == 0:
        it.add(
            "DepthToSpace", (n, channels // 4, rows * 2, cols * 2), blocksize=2, mode=it.chance.choice(("DCR", "CRD"))
        )
    elif rows % 2 == cols % 2 == 0:
        it.add("SpaceToDepth", (n, channels * 4, rows // 2, cols // 2), blocksize=2)


def _moments(it: _Growing) -> None:
    count = it.shape[1]
    if it.chance.random() < 0.5:
        it.add("InstanceNormalization", it.shape, [it.reals(count), it.reals(count)])
    else:
        it.add("ReduceMean", (it.shape[0], 1, *it.shape[2:]), axes=[1], keepdims=1)


TEMPLATES: tuple[Callable[[_Growing], None], ...] = (_conv, _pool, _unary, _binary, _norm, _transpose, _reshape)
TEMPLATES += (_slice, _concat, _reduce, _softmax, _rounded, _dense, _pad, _resize, _upward, _bounded, _gather)
TEMPLATES += (_depth, _moments)


def sound_file(seed: int) -> bytes:
    """A file as an exporter writes it."""
    chance = random.Random(f"onnx {seed}")
    growing = _Growing(chance)
    for _ in range(chance.randint(1, 5)):
        chance.choice(TEMPLATES)(growing)
    if not growing.nodes:
        _unary(growing)
    return growing.content()


def spoiled_file(seed: int) -> bytes:
    """The same file, with something about it that no exporter writes."""
    chance = random.Random(f"spoiled onnx {seed}")
    content = sound_file(seed)
    if chance.random() < 0.2:
        ((_, found),) = corrupted(content, 1, seed)
        return found
    fields = _parsed(Message(memoryview(content), 0, len(content), "a file"), _MODEL)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _spoil(chance.choice([*_all(fields)]), chance)
    return _written(fields)


def _parsed(message: Message, inner: Mapping[int, Any]) -> Fields:
    found: Fields = []
    for field in message.fields():
        value: Any = field.value
        if field.number in inner and field.wire == BYTES:
            value = _parsed(message.message(field, "a part"), inner[field.number])
        elif field.wire != VARINT:
            value = bytes(message.content[field.start : field.end])
        found.append((field.number, field.wire, value))
    return found


def _written(fields: Fields) -> bytes:
    found = b""
    for number, wire, value in fields:
        content: Any = _written(value) if isinstance(value, list) else value
        head = making.varint(number << 3 | wire)
        body = making.varint(content) if wire == VARINT else content
        found += head + (making.varint(len(content)) if wire == BYTES else b"") + body
    return found


def _all(fields: Fields) -> Iterator[Fields]:
    """Every message that has a field."""
    if fields:
        yield fields
    for _, _, value in fields:
        if isinstance(value, list):
            yield from _all(value)


def _spoil(fields: Fields, chance: random.Random) -> None:
    at = chance.randrange(len(fields))
    number, wire, value = fields[at]
    way = chance.choice(("change", "change", "change", "change", "drop", "double", "renumber", "swap"))
    if way == "drop":
        del fields[at]
    elif way == "double":
        fields.insert(chance.randrange(len(fields) + 1), fields[at])
    elif way == "renumber":
        fields[at] = (chance.randint(1, 25), wire, value)
    elif way == "swap":
        other = chance.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    else:
        fields[at] = (number, wire, _other(wire, value, chance))


def _other(wire: int, value: Any, chance: random.Random) -> Any:
    if wire == VARINT:
        return chance.choice((*_NUMBERS, value + 1, value - 1))
    if wire == FIXED32:
        return struct.pack("<f", chance.choice((0.0, -1.0, 1e38, float("inf"), float("nan"), 1e-45)))
    if isinstance(value, list):
        return [*reversed(value)]
    noise = chance.randbytes(len(value))
    return chance.choice((b"", value[: len(value) // 2], value + value[:5], noise, b"x", b"c0", b"t0"))


def faults(seeds: Sequence[int], count: Counter[str]) -> Iterator[str]:
    """What is wrong with how the files of these seeds ended."""
    jobs: list[batches.Job] = []
    for seed in seeds:
        is_sound = random.Random(f"sound {seed}").random() < SOUND_SHARE
        count["sound ONNX files" if is_sound else "spoiled ONNX files"] += 1
        ending = attempted(partial(_job, seed, is_sound, count))
        if ending.fault is not None:
            yield f"onnx {seed}: {ending.fault}"
        elif is_sound and ending.is_refused:
            yield f"onnx {seed}: nothing is wrong with it, and it is refused"
        elif is_sound and HAS_RUNTIME:
            yield from _differences(seed, count)
        count["  ONNX files refused in one line"] += ending.is_refused
        jobs += [] if ending.result is None else [ending.result]
    count["  ONNX files built, run and compared"] += len(jobs)
    yield from batches.faults(jobs, batches.compiler())


def _differences(seed: int, count: Counter[str]) -> Iterator[str]:
    """From onnxruntime. Floats may differ by the order of sums, and by one step where they are rounded."""
    source = Source(sound_file(seed))
    graph = source.runnable
    inputs = sample_inputs(graph, 1, seed)
    [theirs] = oracles.outputs_of(source, inputs)
    with np.errstate(all="ignore"):
        found = reference.run(graph, inputs[0])
    count["  sound ONNX files compared with onnxruntime"] += 1
    for number, (t, wanted) in enumerate(zip(graph.outputs, theirs, strict=True)):
        ours = found[t].reshape(wanted.shape)
        if not np.allclose(ours, wanted, rtol=1e-3, atol=ROUNDED_BY if b"QuantizeLinear" in source.content else 1e-3):
            yield f"onnx {seed}: output {number} is not what onnxruntime makes"


def _job(seed: int, is_sound: bool, count: Counter[str]) -> batches.Job | None:
    return job_of(sound_file(seed) if is_sound else spoiled_file(seed), seed, count, "ONNX file")
