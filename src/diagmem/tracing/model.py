"""Our own generated C, traced: a whole model, run op by op or row by row, or one operation of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from diagmem.backends import c as c_backend
from diagmem.backends.c.program import Program
from diagmem.kernels import library
from diagmem.model.errors import ModelError
from diagmem.model.graph import ABSENT, Graph, Node, Op, Tensor
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.ops import Unsupported, kind_of
from diagmem.planning.plan import Plan, Storage
from diagmem.tracing import cortex_m, native, toolchain
from diagmem.tracing.calls import Call, MemoryArgument, Role
from diagmem.tracing.native import AFTER_OP, harness
from diagmem.tracing.recording import Executable
from diagmem.tracing.toolchain import Elf
from diagmem.verification.reference import sample_inputs

NAME = "net"
APART_BYTES = 16
"""Alignment of tensors that are laid out to be traced."""

FLAGS = (
    *("-std=c99", "-O2", "-ffp-contract=off", "-w"),
    *("-fno-inline", "-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns"),
)
"""Optimised, but every touch as the source says. Where a compiler sees from the addresses that input and output do not
overlap, it may load earlier and store later, in vectors or by calling memcpy. It sees that here, where they lie apart
to be traced, but not in the plan that the trace is for."""


@dataclass(frozen=True)
class TracedModel:
    """A program with the executable that runs it; the traced space is its arena."""

    program: Program
    executable: Executable

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """What is traced, one operation or row after the other. Rows that the caller pushes belong to the step behind
        them, or to a last one of their own."""
        return _traced_steps(self.program)

    def label(self, number: int) -> str:
        """A step's name in messages."""
        step = self.steps[number]
        if step.op == PUSH:
            return "the rows pushed last"
        row = "" if step.turn is None else f", row {step.turn}"
        return f"{self.program.graph.nodes[step.op].label}{row}"

    def contents(self, seed: int) -> Sequence[bytes]:
        """An arena of random bytes with the inputs in their places, or with the input that is pushed beside it."""
        arena = np.frombuffer(np.random.default_rng(seed).bytes(self.program.arena_bytes), dtype=np.uint8).copy()
        graph = self.program.graph
        # The first samples are edge cases: not random enough to tell data apart.
        values = [np.ascontiguousarray(values).tobytes() for values in sample_inputs(graph, 5 + seed, seed)[-1]]
        if self.program.input_rows:
            return (arena.tobytes(), *values)
        for index, data in zip(graph.inputs, values, strict=True):
            begin = self.program.offsets[index]
            arena[begin : begin + len(data)] = np.frombuffer(data, dtype=np.uint8)
        return (arena.tobytes(),)

    def place(self, tensor: int) -> range:
        """Where a tensor lies in the traced space, from its first element to its last."""
        begin = self.program.offsets[tensor]
        return range(begin, begin + self.program.graph.tensors[tensor].span_bytes)


def offsets_apart(plan: Plan) -> tuple[int, ...]:
    """A place of its own for every buffer of the plan, and the end of the last one."""
    return tuple(itertools.accumulate((_whole(buffer.size_bytes) for buffer in plan.buffers), initial=0))


def apart(plan: Plan) -> Program:
    """The plan's order with every buffer in a place of its own, so that each access shows its buffer."""
    *offsets, end = offsets_apart(plan)
    moved = plan.with_buffers(plan.buffers, offsets)
    return Program(
        plan.graph,
        plan.schedule,
        moved.storage,
        moved.scratch,
        end,
        kernels=plan.options.kernels,
        weight_copies=moved.weight_copies,
        copies_ahead=plan.copies_ahead,
    )


def side_by_side(nodes: Sequence[Node], kernels: str = "diagmem") -> Program:
    """Unrelated operations as one model: op i is nodes[i]. No tensors share addresses."""
    scratch: dict[int, int] = {}
    tensors: list[Tensor] = []
    ops: list[Op] = []
    offsets: dict[int, int] = {}
    end = 0
    for number, node in enumerate(nodes):
        own = {t.index: t for t in (*node.inputs, *node.outputs) if t is not None}
        index = {old: len(tensors) + place for place, old in enumerate(own)}
        tensors += [replace(t, index=index[old]) for old, t in own.items()]
        inputs = tuple(ABSENT if t is None else index[t.index] for t in node.inputs)
        ops.append(replace(node.op, index=number, inputs=inputs, outputs=tuple(index[t.index] for t in node.outputs)))
        for tensor in dict.fromkeys((*node.outputs, *(t for _, t in node.activations()))):
            offsets[index[tensor.index]] = end
            end += _whole(tensor.size_bytes)
        scratch_bytes = library(kernels).scratch_bytes(replace(node, op=ops[-1]))
        if scratch_bytes:
            scratch[number] = end
            end += _whole(scratch_bytes)
    made = {t for op in ops for t in op.outputs}
    given = tuple(t for t in offsets if t not in made)
    graph = Graph("side by side", tuple(tensors), tuple(ops), given, tuple(t for t in offsets if t in made))
    storage = {t: Storage.linear(at, tensors[t].rows, tensors[t].row_bytes) for t, at in offsets.items()}
    return Program(graph, Schedule.whole(range(len(ops))), storage, scratch, end, kernels=kernels)


def _whole(size_bytes: int) -> int:
    return math.ceil(size_bytes / APART_BYTES) * APART_BYTES


def has_kernel(node: Node) -> bool:
    """Whether C code can run the operation. A reshape is not run: its output stays where the input is. Nor is one with
    a variable, which emitted C does not keep."""
    kind = kind_of(node.op.kind)
    if kind is None or kind.is_alias or any(t is not None and t.is_variable for t in node.inputs):
        return False
    try:
        return kind.c_call(node) is not None
    except (Unsupported, ModelError):
        return False


def build_model(program: Program, on: str, place: Path) -> TracedModel:
    """Emits the program as C into the directory `place` and compiles it for `on`: x86 or a core."""
    files = c_backend.emit(program, NAME)
    for path, content in files.items():
        (place / path).write_bytes(content)
    sources = [place / path for path in files if path.endswith((".c", ".S"))]
    arena = MemoryArgument(Role.SCRATCH, "uint8", (max(1, program.arena_bytes),))
    call = Call(f"{NAME}_invoke_in", (arena,))
    if program.input_rows:
        given = program.graph.tensors[program.graph.inputs[0]]
        call = Call(f"{NAME}_push_all", (arena, MemoryArgument(Role.CONSTANT, "uint8", (given.size_bytes,))))
        sources.append(place / "caller.c")
        sources[-1].write_text(
            toolchain.filled("caller.c.in", name=NAME, after=AFTER_OP, rows=given.rows, row_bytes=given.row_bytes)
        )
    marks = place / "marks.h"
    marks.write_text(f"void {AFTER_OP}(int op);\n#define {NAME.upper()}_AFTER_OP(op) {AFTER_OP}(op)\n")
    flags = (*FLAGS, f"-D{NAME.upper()}_NO_STATIC_ARENA", f"-I{place}", "-include", str(marks))
    return TracedModel(program, _executable(call, len(_traced_steps(program)), on, (*flags, *sources), place))


def _executable(call: Call, steps: int, on: str, parts: Sequence[str | Path], place: Path) -> Executable:
    """Compiles and links what makes the call and marks each of its steps."""
    if on not in cortex_m.CORES:
        (place / "harness.c").write_text(harness(call, steps))
        native.compile_program((*parts, place / "harness.c"), place / NAME, "the model's C")
        return native.NativeProgram(place / NAME, call.space_bytes)
    core, marks, executable = cortex_m.CORES[on], place / "core_marks.c", place / f"{NAME}.elf"
    marks.write_text(toolchain.filled("core_marks.c.in", name=AFTER_OP, address=hex(cortex_m.MARKS_AT), ops=steps))
    cortex_m.link((*parts, marks), call.function, core, core.float_flags, executable)
    return cortex_m.CortexMProgram(Elf.read(executable), call, core, marks_ops=True)


def _traced_steps(program: Program) -> tuple[Step, ...]:
    run = tuple(step for step in program.steps if step.op != PUSH)
    return (*run, Step(PUSH)) if program.input_rows else run
