"""Every kind that has a row kernel makes each row right: rows anywhere, or over the rows that they are made of."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from diagmem.backends.c.program import Program
from diagmem.kernels import library
from diagmem.kernels.rows import RowOp, row_graph
from diagmem.model.graph import Graph, Node, Tensor
from diagmem.model.schedule import Schedule, Step
from diagmem.ops import OpKind, kinds
from diagmem.ops.c_call import QUANTISED_OR_FLOAT, CPointers, CRow, CRows
from diagmem.planning.plan import Storage
from diagmem.verification import reference
from diagmem.verification.harness import differences, spans
from diagmem.verification.host import Machine, trace_on_host
from tests.ops.deep_nodes import KINDS, REAL, TALL, deep_nodes, tall_nodes
from tests.ops.drawing import CASES, runnable
from tests.ops.fitting import input_values
from tests.profiles import some
from tests.row_networks import UNOPTIMISED, side_by_side

ALIGN_BYTES = 8


def alone(node: Node, name: str) -> Graph:
    """A graph of one operation, if it runs row by row."""
    used = {t.index: t for t in (*node.inputs, *node.outputs) if t is not None}
    given = dict.fromkeys(t.index for _, t in node.activations())
    assert sorted(used) == list(range(len(used)))
    return Graph(name, tuple(used[n] for n in range(len(used))), (node.op,), tuple(given), node.op.outputs)


def row_op(graph: Graph, kernels: str = "diagmem") -> RowOp:
    (op,) = row_graph(graph, library(kernels)).ops
    return op


def has_row_kernels(kind: OpKind) -> bool:
    """Whether it says so itself, or takes rows into sums."""
    own, base = type(kind), OpKind
    return own.has_row_kernel is not base.has_row_kernel or own.accumulator_bytes is not base.accumulator_bytes


BY_ROWS = [case for case, kind in CASES.items() if has_row_kernels(kind)]


def by_rows(case: str, count: int) -> list[Node]:
    """The first of the drawn nodes that run row by row, each with an input in RAM and more than one row."""
    drawn = (node for node in runnable(case) if next(node.activations(), None))
    return list(itertools.islice((node for node in drawn if not row_op(alone(node, "")).is_whole), count))


def test_kinds_that_run_by_rows_are_found() -> None:
    """Those whose kernels are written for rows are among them."""
    assert {"conv_2d", "depthwise_conv_2d", "pool_2d", "binary", "softmax", "resize", "reduce", "pad"} <= {*BY_ROWS}


@pytest.mark.parametrize("case", BY_ROWS)
def test_row_calls_read_what_accesses_say(case: str) -> None:
    """At each turn a row call gets the rows that the turn needs, no more and no less."""
    for node in by_rows(case, 60):
        op = row_op(alone(node, ""))
        needed = {need.tensor: need for need in op.needs}
        for tensor, rows in rows_by_turn(node, op.turns):
            need = needed[tensor]
            for turn, found in enumerate(rows):
                if case == "resize":
                    # What compilers may round differently counts as needed too.
                    assert need.first[turn] <= min(found) <= max(found) < need.end[turn]
                elif need.first[turn] < need.end[turn] or not found:
                    # A window whose columns all lie outside gets its rows, and reads nothing of them.
                    assert (need.first[turn], need.end[turn]) == ((min(found), max(found) + 1) if found else (0, 0))


def rows_by_turn(node: Node, turns: int) -> Iterator[tuple[int, list[list[int]]]]:
    """For each input of which the row call gets rows, those that it gets at each turn."""
    found: dict[int, list[list[int]]] = {}
    outputs = {t.index for t in node.outputs}
    for argument in kinds()[node.op.kind].c_row_call(node).arguments:
        for one in argument.tensors if isinstance(argument, CPointers) else (argument,):
            if isinstance(one, CRow | CRows) and one.tensor.index not in outputs:
                turn_rows = found.setdefault(one.tensor.index, [[] for _ in range(turns)])
                for turn in range(turns):
                    turn_rows[turn] += [row for row in _rows(one, turn) if 0 <= row < one.tensor.rows]
    return iter(found.items())


def _rows(argument: CRow | CRows, turn: int) -> Iterator[int]:
    if isinstance(argument, CRow) and argument.rows:
        yield argument.rows[turn]
    elif isinstance(argument, CRow):
        yield argument.first + turn * argument.step
    elif argument.is_transposed:
        w = argument.window
        reached = (turn + w.pad_before - k for k in range(w.kernel))
        yield from (place // w.stride for place in reached if place % w.stride == 0)
    else:
        w = argument.window
        yield from (turn * w.stride - w.pad_before + k * w.dilation for k in range(w.kernel))


@pytest.mark.parametrize("case", BY_ROWS)
def test_each_row_is_right(case: str) -> None:
    """Output rows in any order in the arena, and as low over dying input rows as the separation allows."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    programs = check_rows(by_rows(case, some(40)))
    assert any(map(is_overlapped, programs)) or case in ("reduce", "widened_sum", "concatenation", "fully_connected")


@pytest.mark.parametrize("kernels", ["diagmem-dsp", "diagmem-dsp/all"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("FULLY_CONNECTED")])
def test_each_row_is_right_of_kernels_for_more_than_plain_c(kind: str, kernels: str) -> None:
    """The same for the fastest kernels, and for those without scratch."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    nodes = [node for node in deep_nodes(kind, 50) if not row_op(alone(node, ""), kernels).is_whole]
    assert len(nodes) > 5
    assert any(map(is_overlapped, check_rows(nodes, kernels)))


@pytest.mark.parametrize("kind", [*TALL, *(kind + REAL for kind in TALL)])
def test_rows_are_summed_up_right_by_kernels_for_more_than_plain_c(kind: str) -> None:
    """Where one row of windows covers the image: packed weights, and those that cannot be packed; single precision."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    nodes = [node for node in deep_nodes(kind, 40) if not row_op(alone(node, ""), "diagmem-dsp").is_whole]
    assert len(nodes) > 20
    check_rows(nodes, "diagmem-dsp")


@pytest.mark.parametrize("kind", TALL)
def test_rows_are_summed_up_right(kind: str) -> None:
    """The same in plain C, for all types of numbers."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    nodes = tall_nodes(kind, 60)
    assert {node.input(0).dtype for node in nodes} == {*QUANTISED_OR_FLOAT}
    check_rows(nodes)


def check_rows(nodes: Sequence[Node], kernels: str = "diagmem") -> list[Program]:
    """Runs the nodes row by row, each in two places, and compares. Returns how they lay."""
    programs: list[Program] = []
    values = []
    for number, node in enumerate(nodes):
        found = zip(node.op.inputs, input_values(node, np.random.default_rng(number)), strict=True)
        given = {index: value for index, value in found if value is not None}
        for place in (anywhere, overlapped):
            programs.append(place(alone(node, f"{place.__name__} {number}"), kernels))
            values += [given[index] for index in programs[-1].graph.inputs]
    program = side_by_side(programs)
    sent, complaint = trace_on_host(program, [values], Machine(flags=UNOPTIMISED))
    assert not complaint
    wrong = differences(spans(program, is_traced=True), reference.run(program.graph, values), sent)
    assert [text for text in wrong if not text.startswith("output ")] == []
    return programs


def anywhere(graph: Graph, kernels: str) -> Program:
    """Output rows above all inputs, in any order."""
    offsets, end = one_behind_the_other(graph, 0)
    pitch, count = _aligned(output_of(graph).row_bytes), output_of(graph).rows
    order = np.random.default_rng(count).permutation(count)
    return placed(graph, kernels, offsets, [end + int(n) * pitch for n in order], end + count * pitch)


def overlapped(graph: Graph, kernels: str) -> Program:
    """Each output row over a row of the first input that dies, if it does not reach into one that lives on."""
    op, target = row_op(graph, kernels), output_of(graph)
    pitch, count = _aligned(target.row_bytes), target.rows
    offsets, end = one_behind_the_other(graph, 2 * pitch)
    rows = [end + y * pitch for y in range(count)]
    need, source = op.needs[0], graph.tensors[op.needs[0].tensor]
    start, size = offsets[source.index], source.row_bytes
    unit = max(source.dtype.size_bytes, target.dtype.size_bytes)
    later = [first if first < end else source.rows for first, end in zip(need.first, need.end, strict=True)]
    for y in range(0 if op.accumulator_bytes else count):
        row, lives_on = need.first[y], min(later[y + 1 :], default=source.rows)
        if row < need.end[y] and row < lives_on:
            at = (start + row * size - (need.apart[y][0] if need.apart[y] else 0)) // unit * unit
            rows[y] = at if at + target.row_bytes <= start + lives_on * size else rows[y]
    return placed(graph, kernels, offsets, rows, end + count * pitch)


def is_overlapped(program: Program) -> bool:
    """Whether a row of the output shares bytes with the first input."""
    graph = program.graph
    source, target = graph.tensors[graph.inputs[0]], output_of(graph)
    low = program.offsets[source.index]
    rows = program.storage[target.index].offsets
    return any(row < low + source.size_bytes and row + target.row_bytes > low for row in rows)


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


def output_of(graph: Graph) -> Tensor:
    return graph.tensors[graph.outputs[0]]


def one_behind_the_other(graph: Graph, gap: int) -> tuple[dict[int, int], int]:
    """Where inputs lie from `gap` on, so far apart, and where the last one ends."""
    offsets, end = {}, gap
    for index in graph.inputs:
        offsets[index] = end
        end += _aligned(graph.tensors[index].size_bytes) + gap
    return offsets, end


def placed(graph: Graph, kernels: str, offsets: dict[int, int], rows: list[int], end: int) -> Program:
    """A caller who looks for the output in one piece, from its first row on, does not find it there: only its rows are
    compared."""
    op, whole = row_op(graph, kernels), output_of(graph)
    given = {t: Storage.linear(at, graph.tensors[t].rows, graph.tensors[t].row_bytes) for t, at in offsets.items()}
    storage = {**given, whole.index: Storage(len(rows), 0, 1, 0, tuple(rows))}
    held_bytes = op.accumulator_bytes or library(kernels).scratch_bytes(graph.nodes[0])
    arena_bytes = _aligned(end + held_bytes) + whole.size_bytes
    steps = Schedule(tuple(Step(0, turn) for turn in range(op.turns)))
    return Program(graph, steps, storage, {0: end} if held_bytes else {}, arena_bytes, kernels=kernels)
