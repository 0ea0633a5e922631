"""Our own generated C, traced: a whole model, or one operation of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from diagmem.backends import c as c_backend
from diagmem.backends.c.program import Program as Layout
from diagmem.backends.inputs import sample_inputs
from diagmem.errors import ModelError
from diagmem.graph import ABSENT, Graph, Node, Op, Tensor
from diagmem.ops import Unsupported, kind_of
from diagmem.plans import Plan
from diagmem.tracing import cortex_m, native
from diagmem.tracing.calls import Buffer, Call, Role
from diagmem.tracing.elf import Elf
from diagmem.tracing.harness import AFTER_OP, harness
from diagmem.tracing.run import Program

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


@dataclass(frozen=True, slots=True)
class TracedModel:
    """A program that runs a layout; the traced space is its arena."""

    layout: Layout
    program: Program

    def contents(self, seed: int) -> Sequence[bytes]:
        """An arena with random bytes in it, and inputs at their places."""
        arena = np.frombuffer(np.random.default_rng(seed).bytes(self.layout.arena_bytes), dtype=np.uint8).copy()
        graph = self.layout.graph
        # The first samples are edge cases: not random enough to tell data apart.
        for index, values in zip(graph.inputs, sample_inputs(graph, 5 + seed, seed)[-1], strict=True):
            data = np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8)
            arena[self.layout.offsets[index] : self.layout.offsets[index] + len(data)] = data
        return (arena.tobytes(),)

    def place(self, tensor: int) -> range:
        """Where a tensor lies in the traced space, from its first element to its last."""
        begin = self.layout.offsets[tensor]
        return range(begin, begin + self.layout.graph.tensors[tensor].span_bytes)


def apart(plan: Plan) -> Layout:
    """The plan's order with every buffer in a place of its own, so that each touch tells whose it is."""
    offsets: dict[int, int] = {}
    end = 0
    for buffer in plan.buffers:
        offsets |= {tensor: end + plan.graph.tensors[tensor].offset_bytes for tensor in buffer.tensors}
        end += _whole(buffer.size_bytes)
    return Layout(plan.graph, plan.schedule.ops, offsets, end, None)


def alone(node: Node) -> Layout:
    """One operation as a model of its own: outputs lowest, then inputs, each in a place of its own."""
    return side_by_side((node,))


def side_by_side(nodes: Sequence[Node]) -> Layout:
    """Operations that have nothing to do with each other, as one model: op i is nodes[i]. All tensors lie apart."""
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
    made = {t for op in ops for t in op.outputs}
    given = tuple(t for t in offsets if t not in made)
    graph = Graph("side by side", tuple(tensors), tuple(ops), given, tuple(t for t in offsets if t in made))
    return Layout(graph, tuple(range(len(ops))), offsets, end, None)


def _whole(size_bytes: int) -> int:
    return math.ceil(size_bytes / APART_BYTES) * APART_BYTES


def has_kernel(node: Node) -> bool:
    """Whether C code can run the operation. A reshape is not run: its output stays where the input is."""
    kind = kind_of(node.op.kind)
    try:
        return kind is not None and not kind.is_alias and kind.c_call(node) is not None
    except (Unsupported, ModelError):
        return False


def build_model(layout: Layout, on: str, place: Path) -> TracedModel:
    """Emits the layout as C into the directory `place` and compiles it for `on`: x86 or a core."""
    files = c_backend.emit(layout, NAME)
    for path, content in files.items():
        (place / path).write_bytes(content)
    sources = [place / path for path in files if path.endswith((".c", ".S"))]
    marks = place / "marks.h"
    marks.write_text(f"void {AFTER_OP}(int op);\n#define {NAME.upper()}_AFTER_OP(op) {AFTER_OP}(op)\n")
    call = Call(f"{NAME}_invoke_in", (Buffer(Role.SCRATCH, "uint8", (max(1, layout.arena_bytes),)),))
    flags = (*FLAGS, f"-D{NAME.upper()}_NO_STATIC_ARENA", f"-I{place}", "-include", str(marks))
    if on in cortex_m.CORES:
        program = _for_core(call, layout, cortex_m.CORES[on], (*flags, *map(str, sources)), place)
    else:
        program = _for_this_machine(call, layout, (*flags, *map(str, sources)), place)
    return TracedModel(layout, program)


def _for_this_machine(call: Call, layout: Layout, parts: Sequence[str], place: Path) -> Program:
    (place / "harness.c").write_text(harness(call, len(layout.order)))
    native.compile_program((*parts, place / "harness.c"), place / NAME, "the model's C")
    return native.NativeProgram(place / NAME, call.space_bytes)


_CORE_MARKS = """\
void {name}(int op) {{
    static int done;
    volatile unsigned *const marks = (volatile unsigned *){address:#x};
    marks[1] = (unsigned)op;
    if (++done < {ops}) marks[0] = 0;
}}
"""


def _for_core(call: Call, layout: Layout, core: cortex_m.Core, parts: Sequence[str], place: Path) -> Program:
    marks, executable = place / "core_marks.c", place / f"{NAME}.elf"
    marks.write_text(_CORE_MARKS.format(name=AFTER_OP, address=cortex_m.MARKS_AT, ops=len(layout.order)))
    cortex_m.link((*parts, marks), call.function, core, core.float_flags, executable)
    return cortex_m.CortexMProgram(Elf.read(executable), call, core, marks_ops=True)
