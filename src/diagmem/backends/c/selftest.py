"""What a model carries to a board to test itself: inputs, and the CRC-32 of what each operation must make of them.

Inputs are drawn by a few lines of C, or are somebody's own. What operations have made lies where the plan says, a row
at a time where they run so; a CRC takes it up right after the step that made it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.backends.c.program import C_TYPES, Program, Written
from diagmem.model.graph import DType, Tensor, places
from diagmem.model.schedule import PUSH

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """How an input is drawn: from a hash of the number of its cell, stretched by `contrast` of 256 about the middle."""

    seed: int
    cell: int
    contrast: int

    def values(self, tensor: Tensor, number: int) -> Array:
        """`number`: the place of the tensor among the inputs."""
        cells = (np.arange(tensor.elems, dtype=np.uint64) >> np.uint64(self.cell)).astype(np.uint32)
        drawn = _mixed(cells + np.uint32(self.first(number))) >> np.uint32(16)
        wide = (drawn.astype(np.int64) * self.contrast + 32768 * (256 - self.contrast)) >> 8
        return _typed(wide, tensor.dtype).reshape(tensor.shape)

    def first(self, number: int) -> int:
        """What the hash of the first cell is taken of."""
        return self.seed * 0x10001 + number * 0x1000003 + 1 & 0xFFFFFFFF


def _mixed(x: Array) -> Array:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    return x


def _typed(wide: Array, dtype: DType) -> Array:
    """16 bits as a value of a type: all of the range of 8 and 16 bits, -4 to 4, or 0 and 1 for indices."""
    if dtype is DType.FLOAT32:
        return ((wide - 32768) / 8192).astype(np.float32)
    if dtype in (DType.INT8, DType.UINT8):
        return np.asarray((wide >> 8) - (128 if dtype is DType.INT8 else 0), dtype.numpy)
    return np.asarray(wide - 32768 if dtype is DType.INT16 else wide >> 15, dtype.numpy)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of the arena, `count` times `size_bytes`, so far apart. `step`: after which one; `place`: of the op."""

    step: int
    place: int
    pool: int
    offset: int
    size_bytes: int
    count: int
    pitch_bytes: int

    @property
    def kind(self) -> tuple[int, int, int, int, int]:
        """All but where and when."""
        return self.place, self.pool, self.size_bytes, self.count, self.pitch_bytes


def parts(program: Program) -> Iterator[Part]:
    """What steps write, in their order."""
    place = {op: number for number, op in enumerate(program.order)}
    for written in program.written():
        pool = program.pools.number_at(written.offset)
        start = written.offset - (0 if pool is None else program.pools.uses[pool].start)
        for offset, size, count, pitch in _pieces(written):
            yield Part(written.step, place[written.node.op.index], pool or 0, start + offset, size, count, pitch)


def _pieces(written: Written) -> Iterator[tuple[int, int, int, int]]:
    """Offset, bytes, count and pitch of what belongs to the tensor, in the order of its elements: what lies between
    belongs to others."""
    tensor = written.tensor
    shape = tensor.shape if written.row is None or tensor.rows == 1 else (1, 1, *tensor.shape[2:])
    at = np.asarray(places(shape, tensor.strides)).reshape(-1) * tensor.dtype.size_bytes
    if not at.size:
        return
    breaks = np.flatnonzero(np.diff(at) != tensor.dtype.size_bytes) + 1
    starts, ends = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(at)]))
    rows = [(int(at[a]), int(b - a) * tensor.dtype.size_bytes) for a, b in zip(starts, ends, strict=True)]
    while rows:
        (first, size), count = rows[0], 1
        pitch = rows[1][0] - first if len(rows) > 1 else 0
        while count < len(rows) and rows[count] == (first + count * pitch, size):
            count += 1
        yield first, size, count, pitch if count > 1 else 0
        rows = rows[count:]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """`inputs`: for each run the pattern by which its inputs are drawn, or their bytes. `expected`: for each run the
    CRC of each op. `stack_bytes`: what the run may take, which is painted. `reach`: how much of what their types hold
    outputs of 8 and 16 bits go through, on average."""

    inputs: Sequence[Pattern] | bytes
    expected: Sequence[Sequence[int]]
    stack_bytes: int
    reach: float | None = None


def selftest_files(program: Program, test: SelfTest, name: str) -> dict[str, str]:
    """The test as C. It runs on one core, in memory of its own."""
    from diagmem.backends.c.text import rendered

    found = list(parts(program))
    kinds = list(dict.fromkeys(part.kind for part in found))
    number = {kind: n for n, kind in enumerate(kinds)}
    steps = [step.op for step in program.steps if step.op != PUSH]
    place = {op: n for n, op in enumerate(program.order)}
    tensors = [program.graph.tensors[t] for t in program.graph.inputs]
    given: dict[str, Any] = {
        "count": len(test.expected),
        "stack_bytes": test.stack_bytes,
        "plan": plan_mark(program),
        "told_inputs": told_inputs(test),
        "ops": np.array([node.op.number for node in program.nodes]),
        "op_type": "uint8_t" if len(place) <= 256 else "uint16_t",
        "step_ops": np.array([place[op] for op in steps]) if program.visits else None,
        "steps": np.bincount([part.step for part in found], minlength=len(steps)),
        "expected": [np.array(run, np.uint32) for run in test.expected],
        "kinds": kinds,
        "kind_of": np.array([number[part.kind] for part in found]),
        "kind_type": "uint8_t" if len(kinds) <= 256 else "uint16_t",
        "offsets": np.array([part.offset for part in found]),
        "offset_type": f"uint{8 * program.offset_bytes}_t",
        "given": np.frombuffer(test.inputs, np.uint8) if isinstance(test.inputs, bytes) else None,
        "patterns": [(p, [p.first(n) for n in range(len(tensors))]) for p in test.inputs if isinstance(p, Pattern)],
        "input_bytes": sum(tensor.size_bytes for tensor in tensors),
        "inputs": [
            {"drawn": _DRAWN.get(tensor.dtype, "wide >> 15").format(C_TYPES[tensor.dtype])} for tensor in tensors
        ],
    }
    return {f"{name}_selftest.{end}": rendered(f"selftest.{end}.j2", program, name, **given) for end in ("h", "c")}


_DRAWN = {
    DType.FLOAT32: "((float)wide - 32768.0f) / 8192.0f",
    DType.INT8: "(int8_t)((int32_t)(wide >> 8) - 128)",
    DType.UINT8: "(uint8_t)(wide >> 8)",
    DType.INT16: "(int16_t)((int32_t)wide - 32768)",
}
"""16 bits as a value of a type, in C; `_typed` is the same in numpy."""


def selftest_bytes(program: Program, test: SelfTest) -> int:
    """Of constants, beside the code."""
    found, ops = list(parts(program)), len(program.order)
    steps = sum(step.op != PUSH for step in program.steps)
    # A pattern takes 8 bytes in C, a kind 16.
    drawn = len(test.expected) * (8 + 4 * len(program.graph.inputs))
    return (
        (len(test.inputs) if isinstance(test.inputs, bytes) else drawn)
        + (4 * len(test.expected) + 2) * ops
        + steps * (2 if program.visits else 1)
        + len(found) * (1 + program.offset_bytes)
        + 16 * len({part.kind for part in found})
    )


def plan_mark(program: Program) -> str:
    """Tells plans of a model apart: a log must come from the plan that it is compared with."""
    told = repr((program.graph.name, program.kernels, program.arena_bytes, program.steps, list(parts(program))))
    return f"{zlib.crc32(told.encode()):08x}"


def told_inputs(test: SelfTest) -> str:
    """Which inputs a report is about: how each is drawn, or the CRC of what was given."""
    if isinstance(test.inputs, bytes):
        return f"data:{zlib.crc32(test.inputs):08x}"
    return ",".join(f"{pattern.seed}:{pattern.cell}:{pattern.contrast}" for pattern in test.inputs)
