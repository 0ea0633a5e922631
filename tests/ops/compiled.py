"""Runs kernels in C: many calls are compiled into one program, which is then run as often as wanted, wherever its
tensors lie."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.backends.c.kernels import joined
from diagmem.backends.c.literals import initialiser, numbers
from diagmem.model.graph import Node, Tensor
from diagmem.ops import kinds
from diagmem.ops.c_call import CArgument, CCall, CPointers, CScratch, CStruct, CTable
from diagmem.ops.numerics.quantised import TO_EVEN, rounds_to_even

Array = npt.NDArray[Any]

COMPILER = shutil.which("gcc") or shutil.which("clang")
FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-ffp-contract=off")
NO_COPIES = "-fno-inline"
"""Each kernel is compiled once, not once for each call: that takes a tenth of the time."""
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
WITHOUT_A_WORD = [
    "-fsanitize-undefined-trap-on-error",
    *(["--param", "asan-instrumentation-with-call-threshold=0"] if COMPILER and COMPILER.endswith("gcc") else []),
]
"""Checked all the same, and compiled in little more than half of the time. A program that fails is built again."""

ALIGN_BYTES = 8

SCRATCH = -1
"""Stands for a kernel's scratch among the offsets of a place."""

_TYPES = {
    **{f"i{size}": f"int{8 * size}_t" for size in (1, 2, 4, 8)},
    "u1": "uint8_t",
    "u2": "uint16_t",
    "b1": "uint8_t",
    "f4": "float",
}

_MAIN = """
int main(void) {
    static int32_t header[2 + MOST_TENSORS];
    while (fread(header, sizeof header, 1, stdin) == 1) {
        unsigned char *const arena = malloc((size_t)header[1]);
        if (arena == NULL || fread(arena, 1, (size_t)header[1], stdin) != (size_t)header[1]) {
            return 1;
        }
        run(header[0], arena, header + 2);
        fwrite(arena, 1, (size_t)header[1], stdout);
        free(arena);
    }
    return 0;
}
"""


@dataclass(frozen=True)
class Place:
    """Where the tensors of a node lie: the offsets of their first elements, in an arena of so many bytes."""

    offsets: Mapping[int, int]
    arena_bytes: int

    def seen(self, arena: Array, tensor: Tensor) -> Array:
        """The tensor's elements in an arena, where they can also be changed."""
        size, start = tensor.dtype.size_bytes, self.offsets[tensor.index]
        flat = arena[start : start + tensor.span_bytes].view(tensor.dtype.numpy)
        seen: Array = np.lib.stride_tricks.as_strided(flat, tensor.shape, [stride * size for stride in tensor.strides])
        return seen

    def filled(self, node: Node, inputs: Sequence[Array | None]) -> Array:
        """An arena with these inputs, and noise elsewhere."""
        arena = np.random.default_rng(self.arena_bytes).integers(0, 256, self.arena_bytes, np.uint8)
        for tensor, values in zip(node.inputs, inputs, strict=True):
            if tensor is not None and not tensor.is_constant:
                self.seen(arena, tensor)[...] = values
        return arena


Job = tuple[int, Place, Array]
"""A node's number, where its tensors lie, and the arena that it finds."""


@dataclass(frozen=True)
class Program:
    """A compiled program of calls, one for each node."""

    nodes: tuple[Node, ...]
    executable: Path
    most_tensors: int
    telling: tuple[str, ...]
    """The command that builds it so that it tells what is wrong."""

    def run(self, jobs: Sequence[Job]) -> list[Array]:
        """The arenas after each job."""
        sent = b"".join(self._message(*job) for job in jobs)
        done = subprocess.run([self.executable], input=sent, capture_output=True, check=False)
        if done.returncode:
            subprocess.run(self.telling, check=True)
            done = subprocess.run([self.executable], input=sent, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
        ends = np.cumsum([place.arena_bytes for _, place, _ in jobs])
        return np.split(np.frombuffer(done.stdout, np.uint8), ends[:-1])

    def _message(self, index: int, place: Place, arena: Array) -> bytes:
        offsets = [place.offsets.get(t, 0) for t in (*range(self.most_tensors - 1), SCRATCH)]
        return np.array([index, place.arena_bytes, *offsets], np.int32).tobytes() + arena.tobytes()


def disjoint(node: Node) -> Place:
    """All tensors one behind the other."""
    offsets, end = {}, 0
    for tensor in _in_ram(node):
        offsets[tensor.index] = end
        end += -(-max(1, tensor.span_bytes) // ALIGN_BYTES) * ALIGN_BYTES
    return Place(offsets, end)


def overlapped(node: Node, position: int, output: int, separation: int) -> Place:
    """An input so many bytes above an output, the others apart."""
    source, target = node.input(position), node.outputs[output]
    low = -(-max(0, -separation) // ALIGN_BYTES) * ALIGN_BYTES
    offsets = {target.index: low, source.index: low + separation}
    end = max(low + target.span_bytes, low + separation + source.span_bytes)
    for tensor in _in_ram(node):
        if tensor.index not in offsets:
            end = -(-end // ALIGN_BYTES) * ALIGN_BYTES
            offsets[tensor.index] = end
            end += tensor.span_bytes
    return Place(offsets, max(1, end))


def with_scratch(place: Place, size_bytes: int) -> Place:
    """The same with room for a kernel's scratch behind all tensors."""
    at = -(-place.arena_bytes // ALIGN_BYTES) * ALIGN_BYTES
    return Place({**place.offsets, SCRATCH: at}, at + size_bytes) if size_bytes else place


def _in_ram(node: Node) -> list[Tensor]:
    return [t for t in (*node.inputs, *node.outputs) if t is not None and not t.is_constant]


def compiled(
    nodes: Sequence[Node], directory: Path, optimised: bool = False, calls: Sequence[CCall] | None = None
) -> Program:
    """A program that can run each of these nodes, with sanitizers or `optimised`. `calls`: of the nodes, where they are
    not those in plain C."""
    most = 2 + max((t.index for node in nodes for t in (*node.inputs, *node.outputs) if t is not None), default=0)
    source = directory / "kernels.c"
    made = [kinds()[node.op.kind].c_call(node) for node in nodes] if calls is None else calls
    optional = {TO_EVEN: 1} if any(rounds_to_even(t) for node in nodes for t in node.outputs) else {}
    source.write_text("\n".join(_text(made, most, optional)))
    executable = directory / "kernels"
    assert COMPILER is not None
    kind = ["-O3"] if optimised else ["-O0", NO_COPIES, *SANITIZE]
    telling = (COMPILER, *FLAGS, *kind, str(source), "-o", str(executable), "-lm")
    command = telling if optimised else (*telling, *WITHOUT_A_WORD)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return Program(tuple(nodes), executable, most, telling)


def _text(calls: Sequence[CCall], most_tensors: int, optional: Mapping[str, int]) -> Iterator[str]:
    yield from (f"#include <{name}.h>" for name in ("stddef", "stdint", "stdio", "stdlib"))
    limits = dict(optional)
    for call in calls:
        for macro, value in call.limits.items():
            limits[macro] = max(value, limits.get(macro, 0))
    yield from (f"#define {macro} {value}" for macro, value in limits.items())
    yield f"#define MOST_TENSORS {most_tensors}"
    yield from joined(sorted({call.source for call in calls}), limits.keys())
    for index, call in enumerate(calls):
        yield from _case(index, call)
    yield "static void run(int32_t index, unsigned char *arena, const int32_t *at) {"
    yield "    switch (index) {"
    yield from (f"    case {i}: case_{i}(arena, at); break;" for i in range(len(calls)))
    yield "    default: break;\n    }\n}"
    yield _MAIN


def _case(index: int, call: CCall) -> Iterator[str]:
    names: dict[CTable, str] = {}
    for table in _tables(call.parameters):
        names[table] = f"t{index}_{len(names)}"
        yield from _array(names[table], table.data)
    for tensor in call.tensors:
        if tensor.is_constant:
            assert tensor.data is not None
            yield from _array(f"c{index}_{tensor.index}", tensor.data)
    yield f"static const {call.parameters.type} p{index} = {initialiser(call.parameters, names)};"
    arguments = ", ".join(_argument(index, a) for a in call.arguments)
    yield f"static void case_{index}(unsigned char *arena, const int32_t *at) {{"
    yield f"    (void)at;\n    {call.function}(&p{index}, {arguments});\n}}"


def _array(name: str, data: Array) -> Iterator[str]:
    yield f"static const {_TYPES[f'{data.dtype.kind}{data.dtype.itemsize}']} {name}[{max(1, data.size)}] = {{"
    yield from numbers(data) if data.size else ("0",)
    yield "};"


def _argument(index: int, argument: CArgument) -> str:
    if isinstance(argument, CPointers):
        constness = "" if argument.is_written else "const "
        return f"({constness}void *const[]){{{', '.join(_argument(index, t) for t in argument.tensors)}}}"
    if isinstance(argument, CScratch):
        return "(void *)(arena + at[MOST_TENSORS - 1])"
    assert isinstance(argument, Tensor), "only operations that run whole are run here"
    if argument.is_constant:
        return f"c{index}_{argument.index}"
    return f"(void *)(arena + at[{argument.index}])"


def _tables(struct: CStruct) -> Iterator[CTable]:
    for value in struct.fields.values():
        if isinstance(value, CTable):
            yield value
        elif isinstance(value, CStruct):
            yield from _tables(value)
