"""What the harness and the host say to each other, inputs one way and outputs the other, and what a run has shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.model.errors import one_line
from diagmem.model.graph import DType, Shape, Tensor, places
from diagmem.transforms.narrow_types import quantised_values
from diagmem.verification import reference
from diagmem.verification.reference import differing, restarts
from diagmem.verification.tools import write_firmware


@dataclass(frozen=True, slots=True)
class Run:
    """`failure`: why the answer is no; None if it is yes. `instructions`: the most that any input took, on one core.
    `critical_instructions`: of the core that had most to do between each two barriers, and for these.
    `stack_bytes`: the most that any core takes; `core_stacks_bytes`: what each of several does. What the place does not
    tell is None."""

    on: str
    inputs: int
    failure: str | None
    arena_bytes: int
    stack_bytes: int | None = None
    static_bytes: int | None = None
    code_bytes: int | None = None
    weights_bytes: int | None = None
    instructions: int | None = None
    cores: int | None = None
    barriers: int | None = None
    critical_instructions: int | None = None
    core_stacks_bytes: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        return self.failure is None

    def failed(self, reason: str) -> Run:
        """The same with a reason why the answer is no, unless there is one already."""
        return replace(self, failure=self.failure or reason)

    def to_json(self) -> dict[str, Any]:
        of_cores = {
            "cores": self.cores,
            "stack_bytes_by_core": list(self.core_stacks_bytes) or None,
            "barriers": self.barriers,
            "critical_instructions": self.critical_instructions,
            "speedup": None if self.speedup is None else round(self.speedup, 4),
        }
        return {
            "on": self.on,
            "ok": self.ok,
            "inputs": self.inputs,
            "arena_bytes": self.arena_bytes,
            "stack_bytes": self.stack_bytes,
            "static_bytes": self.static_bytes,
            "code_bytes": self.code_bytes,
            "weights_bytes": self.weights_bytes,
            "instructions": self.instructions,
            "failure": self.failure,
            **(of_cores if self.cores is not None else {}),
        }

    @property
    def speedup(self) -> float | None:
        """How much faster several cores are than one."""
        if not self.instructions or not self.critical_instructions:
            return None
        return self.instructions / self.critical_instructions


MOST_TEXT_BYTES = 2**16
"""Above so many bytes of weights, compiling them as text would take most of the time."""

ByteOrder = Literal["<", ">"]
"""Of the bytes in a number, as numpy calls it: the low one first, or the high one."""

Inputs = Sequence[Sequence[npt.NDArray[Any]]]
"""For each run, the values of each graph input."""


@dataclass(frozen=True, slots=True)
class Span:
    """A tensor as the harness sends it, first element to last, or one row of it. `source`: `op 3 'name' (ADD)` or
    `output 0` made it."""

    source: str
    tensor: Tensor
    row: int | None = None

    @property
    def size_bytes(self) -> int:
        return self.tensor.span_bytes if self.row is None else self.tensor.row_span_bytes

    @property
    def shape(self) -> Shape:
        return self.tensor.shape if self.row is None or self.tensor.rows == 1 else (1, 1, *self.tensor.shape[2:])


def spans(program: Program, is_traced: bool) -> list[Span]:
    """What the harness sends for each run, in its order."""
    made = [Span(written.node.label, written.tensor, written.row) for written in program.written()] if is_traced else []
    outputs = (program.graph.tensors[t] for t in program.graph.outputs)
    return [*made, *(Span(f"output {n}", tensor) for n, tensor in enumerate(outputs))]


def header(program: Program, runs: int, again: Sequence[int] | None = None) -> str:
    """The harness's own knowledge of the model, as C. `again`: before which runs state begins anew; by default
    half-way."""
    graph = program.graph
    again = restarts(graph, runs) if again is None else again
    rows = [f"    {{{w.step}, {_place(program, w.offset)}, {w.size_bytes}}}," for w in program.written()]
    lines = [
        "#include <stddef.h>",
        f"#define HARNESS_RUNS {runs}",
        f"#define HARNESS_SPANS {len(rows)}",
        f"#define HARNESS_POOLS {max(1, len(program.pools.uses))}",
        # There is one arena if there are no pools.
        _sizes("pool", [use.used_bytes for use in program.pools.uses] or [max(1, program.arena_bytes)]),
        *_state(program, again),
        _sizes("input", [graph.tensors[t].size_bytes for t in graph.inputs]),
        _sizes("output", [graph.tensors[t].size_bytes for t in graph.outputs]),
        "#ifdef HARNESS_TRACE",
        "static const struct { int step, pool; size_t offset, bytes; } harness_spans[] = {",
        *rows,
        "};",
        "#endif",
    ]
    return "".join(f"{line}\n" for line in lines)


def _place(program: Program, address: int) -> str:
    """The number of a pool, and the offset in it."""
    number = program.pools.number_at(address)
    return f"0, {address}" if number is None else f"{number}, {address - program.pools.uses[number].start}"


def _state(program: Program, again: Sequence[int]) -> Iterator[str]:
    """Where the state lies, and before which runs it is set to its first value."""
    if program.states:
        places = ", ".join(f"{{{_place(program, program.offsets[t.index])}, {t.size_bytes}}}" for t in program.states)
        resets = " || ".join(f"(run) == {run}" for run in (0, *again))
        yield f"#define HARNESS_STATES {len(program.states)}"
        yield f"#define HARNESS_IS_RESET(run) ({resets})"
        yield f"static const struct {{ int pool; size_t offset, bytes; }} harness_states[] = {{{places}}};"


def write_model(program: Program, runs: int, directory: Path, again: Sequence[int] | None = None) -> str:
    """Writes the model as C, and the harness for it. Returns the file that holds the weights."""
    files = emit(program, "model", most_text_bytes=MOST_TEXT_BYTES)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    (directory / "harness_model.h").write_text(header(program, runs, again))
    write_firmware(directory, "harness.c", "harness.h")
    return "model_weights.S" if "model_weights.S" in files else "model_weights.c"


def _sizes(what: str, sizes_bytes: Sequence[int]) -> str:
    return f"static const size_t harness_{what}_bytes[] = {{{', '.join(map(str, sizes_bytes)) or '0'}}};"


def encoded(inputs: Inputs, order: ByteOrder = "<") -> bytes:
    """All values, one behind the other."""
    return b"".join(values.astype(values.dtype.newbyteorder(order)).tobytes() for run in inputs for values in run)


def first_difference(
    program: Program, inputs: Inputs, sent: bytes, is_traced: bool, order: ByteOrder = "<"
) -> str | None:
    """What is wrong with the bytes that the harness sent, in one line; None if they are what numpy computes."""
    expected = spans(program, is_traced)
    size_bytes = sum(span.size_bytes for span in expected)
    wanted = reference.runs(program.model, inputs, restarts(program.model, len(inputs)))
    for run, values in enumerate(wanted):
        wrong = next(differences(expected, values, sent[run * size_bytes : (run + 1) * size_bytes], order), None)
        if wrong is not None:
            return f"input {run}: {wrong}"
    return None


def decoded(
    expected: Sequence[Span], received: bytes, order: ByteOrder = "<"
) -> Iterator[tuple[Span, npt.NDArray[Any]]]:
    """The elements of each span, in one row."""
    offset = 0
    for span in expected:
        tensor = span.tensor
        span_elems = span.size_bytes // tensor.dtype.size_bytes
        sent = np.frombuffer(received, np.dtype(tensor.dtype.numpy).newbyteorder(order), span_elems, offset)
        yield span, sent.astype(tensor.dtype.numpy)[places(span.shape, tensor.strides)].reshape(-1)
        offset += span.size_bytes


def differences(
    expected: Sequence[Span], values: Mapping[int, npt.NDArray[Any]], received: bytes, order: ByteOrder = "<"
) -> Iterator[str]:
    """For each span that is not what it should be, its first element that is wrong; or that some are not there."""
    if len(received) != sum(span.size_bytes for span in expected):
        yield "the program stopped early"
        return
    for span, got in decoded(expected, received, order):
        tensor, first = span.tensor, 0 if span.row is None else span.row
        want = held(values[tensor.index], tensor).reshape(-1)[first * len(got) : (first + 1) * len(got)]
        wrong = np.flatnonzero(differing(got, want))
        if wrong.size:
            at = int(wrong[0])
            index = ", ".join(str(i) for i in np.unravel_index(first * len(got) + at, tensor.shape))
            yield (
                f"{span.source}: element [{index}] of '{one_line(tensor.name)}' is {got[at]}, and should be {want[at]}"
            )


def held(values: npt.NDArray[Any], tensor: Tensor) -> npt.NDArray[Any]:
    """Of the values of a tensor of the model, what a narrower one holds: some channels; integers, where it holds
    quantised values."""
    if values.dtype == np.float32 and tensor.dtype is not DType.FLOAT32:
        values = quantised_values(values, tensor)
    kept = values if tensor.channels is None else values[..., list(tensor.channels)]
    return kept.astype(tensor.dtype.numpy)
