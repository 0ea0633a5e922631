"""A test that a model takes to its board: which inputs, what must come of them, and what the board has to say."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagmem.backends.c.program import Program
from diagmem.backends.c.selftest import Pattern, SelfTest, plan_mark, told_inputs
from diagmem.costs import Cost, Costs
from diagmem.model.errors import DiagmemError, PlanError, one_line
from diagmem.model.graph import DType, Node
from diagmem.ops import node_macs
from diagmem.ops.kind import Array
from diagmem.targets import Chip
from diagmem.verification.harness import held
from diagmem.verification.profile import profiled
from diagmem.verification.reference import runs
from diagmem.verification.tools import ToolError

CANDIDATES = [
    *(Pattern(seed, cell, 256) for seed in range(3) for cell in (0, 4, 8, 2, 6, 10)),
    *(Pattern(seed, 30, 256) for seed in (945, 541)),
    *(Pattern(0, cell, 48) for cell in (0, 4, 8)),
]
"""Plain noise and coarser one, one value that is the least or the largest, and weak noise."""

MOST_MACS = 500_000_000
"""Of all inputs that are tried: numpy takes some seconds for them."""

LEAST_STACK_BYTES, STACK_SLACK_BYTES, STACK_HELD_BYTES = 512, 256, 64
"""Painted at least, and beyond what is predicted; above that, what the test itself holds counts as used."""


def painted_bytes(stack_bytes: int | None) -> int:
    """Of the stack. `stack_bytes`: that a run is predicted to take."""
    return max(LEAST_STACK_BYTES, stack_bytes or 0) + STACK_SLACK_BYTES


def selftest_of(
    program: Program, count: int, stack_bytes: int | None, given: Sequence[Sequence[Array]] | None = None
) -> SelfTest:
    """`count`: how many inputs are drawn; `given`: somebody's own in their place. `stack_bytes`: that a run is
    predicted to take. Drawn inputs are chosen one after the other so that operations' outputs, from their least to
    their largest value, are covered as far as possible; with state they follow each other as they come."""
    if program.multicore is not None:
        raise PlanError("a self-test runs on one core: plan without --cores")
    if any(use.pool.is_external for use in program.pools.uses):
        raise PlanError("a self-test has memory of its own: leave out buffers in the firmware's")
    painted = painted_bytes(stack_bytes)
    if given is not None:
        data = b"".join(values.tobytes() for run in given for values in run)
        told = [(None, crcs(program, values), _ranges(program, values)) for values in runs(program.model, given)]
        return SelfTest(data, [crc for _, crc, _ in told], painted, _reach(program, told))
    tensors = [program.graph.tensors[t] for t in program.graph.inputs]
    macs = max(1, sum(map(node_macs, program.model.nodes)))
    tried = CANDIDATES[: max(count, min(len(CANDIDATES), MOST_MACS // macs))]
    tried += [Pattern(seed, 0, 256) for seed in range(100, 100 + count - len(tried))]
    inputs = [[pattern.values(tensor, n) for n, tensor in enumerate(tensors)] for pattern in tried]
    found = []
    again = () if program.states else range(len(inputs))
    for pattern, values in zip(tried, runs(program.model, inputs, again), strict=True):
        ranges = _ranges(program, values)
        if np.isfinite(ranges).all():
            found.append((pattern, crcs(program, values), ranges))
        elif program.states:
            break
    if not found:
        raise PlanError("no drawn input gives finite numbers everywhere; give one with --input")
    chosen = found[:count] if program.states else _covering(found, count)
    return SelfTest([p for p, *_ in chosen], [crc for _, crc, _ in chosen], painted, _reach(program, chosen))


def _ranges(program: Program, values: Mapping[int, Array]) -> Array:
    """The least and the largest value of each output of each op; NaN where one is NaN."""
    made = (values[t.index] for node in program.nodes for t in node.outputs)
    return np.array([(float(v.min()), float(v.max())) if v.size else (0.0, 0.0) for v in made])


def _reach(program: Program, found: Sequence[tuple[Any, list[int], Array]]) -> float | None:
    """How much of what their types hold outputs of 8 and 16 bits go through, on average; None where there are none."""
    ranges = np.stack([ranges for *_, ranges in found])
    tensors, stored = [t for n in program.nodes for t in n.outputs], (DType.INT8, DType.UINT8, DType.INT16)
    wide = ranges[:, :, 1].max(axis=0) - ranges[:, :, 0].min(axis=0)
    shares = [w / (2 ** (8 * t.dtype.size_bytes) - 1) for t, w in zip(tensors, wide, strict=True) if t.dtype in stored]
    return float(np.mean(shares)) if shares else None


def _covering(found: Sequence[tuple[Pattern, list[int], Array]], count: int) -> list[tuple[Pattern, list[int], Array]]:
    """Each the one that adds most to what is covered of the ranges that all of them reach."""
    left, chosen = list(found), list[tuple[Pattern, list[int], Array]]()
    widest = np.stack([ranges for *_, ranges in found])
    whole = np.maximum(1e-30, widest[:, :, 1].max(axis=0) - widest[:, :, 0].min(axis=0))
    low, high = np.full(len(whole), np.inf), np.full(len(whole), -np.inf)

    def covered(ranges: Array) -> float:
        return float(((np.maximum(high, ranges[:, 1]) - np.minimum(low, ranges[:, 0])) / whole).sum())

    while left and len(chosen) < count:
        best = max(left, key=lambda one: covered(one[2]))
        left.remove(best)
        chosen.append(best)
        low, high = np.minimum(low, best[2][:, 0]), np.maximum(high, best[2][:, 1])
    return chosen


def crcs(program: Program, values: Mapping[int, Array]) -> list[int]:
    """Of what each op must make, in the order of the plan. `values`: of all tensors, as numpy computes them."""
    found, place = [0] * len(program.order), {op: number for number, op in enumerate(program.order)}
    for written in program.written():
        tensor, at = written.tensor, place[written.node.op.index]
        own = held(values[tensor.index], tensor)
        if written.row is not None and tensor.rows > 1:
            own = own.reshape(tensor.rows, -1)[written.row]
        found[at] = zlib.crc32(own.astype(own.dtype.newbyteorder("<")).tobytes(), found[at])
    return found


class LogError(DiagmemError):
    """A log that cannot be judged."""


@dataclass(frozen=True, slots=True)
class BoardOp:
    """An op as a board ran it: `cycles`: the median of its runs, None where nothing counted them; `predicted_cycles`:
    None where there is no estimate. `equal`: in all runs to what it must make."""

    node: Node
    cycles: int | None
    predicted_cycles: int | None
    equal: bool


@dataclass(frozen=True, slots=True)
class BoardReport:
    """What a board has said in its self-test. `failure`: why the answer is no; None if it is yes. `arena_bytes`,
    `stack_bytes`: that were written to. `chip`: what it was made for."""

    model: str
    chip: Chip | None
    cost: Cost
    runs: int
    ops: tuple[BoardOp, ...]
    arena_bytes: int
    stack_bytes: int | None
    failure: str | None

    @property
    def ok(self) -> bool:
        return self.failure is None

    @property
    def is_stack_full(self) -> bool:
        """All that was painted was written to: it may be more."""
        return (self.stack_bytes or 0) >= painted_bytes(self.cost.ram.stack_bytes) + STACK_HELD_BYTES

    @property
    def cycles(self) -> int | None:
        return sum(op.cycles or 0 for op in self.ops) or None

    @property
    def predicted_cycles(self) -> int | None:
        return sum(op.predicted_cycles or 0 for op in self.ops) or None

    @property
    def calibration(self) -> dict[str, Any]:
        """Measured cycles over predicted ones, and by how many percent ops then are off, each by its share."""
        if self.chip is None:
            raise PlanError("a calibration is for a chip: name it with --target")
        ops = [(op.node.op.number, op.cycles, op.predicted_cycles) for op in self.ops if op.cycles]
        both = [(got, want) for _, got, want in ops if got and want]
        if not both:
            why = f"there is no estimate for {self.chip.name}" if ops else "the board counted no cycles"
            raise PlanError(f"there is nothing to calibrate: {why}")
        total = sum(got for got, _ in both)
        factor = total / sum(want for _, want in both)
        percent = 100 * sum(abs(got - factor * want) for got, want in both) / total
        told = {"chip": self.chip.name, "core": self.chip.core.key, "mhz": self.chip.mhz, "model": self.model}
        return {**told, "factor": round(factor, 4), "error_percent": round(percent, 1), "ops": ops}

    def to_json(self) -> dict[str, Any]:
        of_all = ("model", "ok", "failure", "runs", "arena_bytes", "stack_bytes", "cycles", "predicted_cycles")
        of_op = ("cycles", "predicted_cycles", "equal")
        ops = [(op.node.op, {name: getattr(op, name) for name in of_op}) for op in self.ops]
        told = [{"index": op.number, "kind": op.kind, **found} for op, found in ops]
        return {**{name: getattr(self, name) for name in of_all}, "cost": self.cost.to_json(), "ops": told}


LARGEST_LOG_BYTES, LONGEST_LINE = 2**24, 4096

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BEGIN = r"diagmem selftest 1 [A-Za-z0-9_]+"
LINE = re.compile(
    rf"(?:^|\s)({BEGIN}|plan [0-9a-f]{{8}} inputs [0-9a-z:,]+"
    r"|op \d{1,9} \d{1,9} [0-9a-f]{8} \d{1,10} (?:ok|DIFFERS)"
    r"|arena \d{1,10}|stack \d{1,10}|guards (?:ok|BROKEN)|result (?:ok|FAILED) [0-9a-f]{8})$"
)
"""A line of a report. Terminals put the time before it, or a colour."""


def is_whole(lines: Sequence[str]) -> bool:
    """Whether these lines are a report from its first to its last one, each as it was sent."""
    *before, last = lines
    result, _, crc = last.rpartition(" ")
    sent = "".join(f"{line}\n" for line in before) + result + " "
    return result.startswith("result") and f"{zlib.crc32(sent.encode()):08x}" == crc


def last_report(log: str) -> list[str]:
    """The lines of the last whole report in what came over a serial port."""
    begun: list[list[str]] = []
    texts = (ANSI.sub("", text).rstrip() for text in log.splitlines() if len(text) <= LONGEST_LINE)
    for line in (found[1] for found in map(LINE.search, texts) if found is not None):
        if re.fullmatch(BEGIN, line):
            begun.append([])
        if begun and not (begun[-1] and begun[-1][-1].startswith("result")):
            begun[-1].append(line)
    for lines in reversed(begun):
        if is_whole(lines):
            return lines
    ends = any(lines[-1].startswith("result") for lines in begun)
    why = "text was lost or garbled on its way" if ends else "it begins, and does not come to its end"
    raise LogError(
        f"there is no whole report of a self-test: {why if begun else 'no line is `diagmem selftest 1 NAME`'}"
    )


def reported(costs: Costs, log: str, test: SelfTest | None = None) -> BoardReport:
    """The last whole report in what came over a serial port, judged by what numpy computes: not by what the board says
    of itself. `test`: what the board was given, if its inputs were not drawn."""
    program, lines = costs.firmware, last_report(log)
    head = [line.split() for line in lines if line.startswith("plan ")]
    if len(head) != 1:
        raise LogError("the report names no plan, or several")
    ((_, mark, _, inputs),) = head
    if mark != plan_mark(program):
        raise LogError(
            f"the board runs another plan ({mark}; this one is {plan_mark(program)}): give the options or the --plan "
            "with which the C was emitted"
        )
    return _judged(costs, lines, _wanted(program, inputs, test))


def _predicted(costs: Costs) -> Mapping[int, int]:
    """Op, by its index in the file -> cycles that are predicted for it, where its core is emulated here."""
    core = costs.plan.options.core
    try:
        found = profiled(costs, core.cpu if core else "").ops
    except (PlanError, ToolError):
        return {}
    return {op.node.op.number: op.cycles for op in found if op.cycles is not None}


def _wanted(program: Program, told: str, test: SelfTest | None) -> Sequence[Sequence[int]]:
    """The CRCs of each run, from the inputs that a report names."""
    if told.startswith("data:"):
        if test is None:
            raise LogError("the board ran inputs of your own: give them with --input")
        if told_inputs(test) != told:
            raise LogError(f"the board ran other inputs ({told}) than these ({told_inputs(test)})")
        return test.expected
    drawn = [re.fullmatch(r"(\d{1,3}):(\d{1,2}):(\d{1,3})", one) for one in told.split(",")]
    patterns = [Pattern(*map(int, found.groups())) for found in drawn if found is not None]
    if len(patterns) != len(drawn) or not all(p.cell < 32 and p.contrast <= 256 for p in patterns):
        raise LogError(f"'{one_line(told)}' names no inputs")
    tensors = [program.graph.tensors[t] for t in program.graph.inputs]
    inputs = [[pattern.values(tensor, n) for n, tensor in enumerate(tensors)] for pattern in patterns]
    return [crcs(program, values) for values in runs(program.model, inputs)]


def _judged(costs: Costs, lines: Sequence[str], wanted: Sequence[Sequence[int]]) -> BoardReport:
    program = costs.firmware
    said: dict[tuple[int, int], list[str]] = {}
    for _, run, op, *rest in (line.split() for line in lines if line.startswith("op ")):
        if (int(run), int(op)) in said:
            raise LogError(f"the report has op {op} of run {run} twice")
        said[int(run), int(op)] = rest
    numbers = {name: int(rest[0]) for name, *rest in map(str.split, lines) if name in ("arena", "stack")}
    every = {(run, node.op.number) for run in range(len(wanted)) for node in program.nodes}
    if said.keys() != every or len(numbers) != 2:
        missing = min(every - said.keys(), default=None)
        told = "lines of its own" if missing is None else f"no line for op {missing[1]} in run {missing[0]}"
        raise LogError(f"the report has {told}: was text lost?")
    wrong: dict[int, int] = {}
    ops, predicted = [], _predicted(costs) if any(int(rest[1]) for rest in said.values()) else {}
    for place, node in enumerate(program.nodes):
        of_runs = [said[run, node.op.number] for run in range(len(wanted))]
        bad = [run for run, (crc, *_) in enumerate(of_runs) if int(crc, 16) != wanted[run][place]]
        if bad:
            wrong[place] = bad[0]
        # Interrupts come now and then, and the first run finds caches empty.
        cycles = sorted(int(cycles) for _, cycles, _ in of_runs)[len(of_runs) // 2]
        ops.append(BoardOp(node, cycles or None, predicted.get(node.op.number), not bad))
    failure = None
    if wrong:
        place = min(wrong, key=lambda place: (wrong[place], place))
        failure = f"{program.nodes[place].label} is the first that differs, in run {wrong[place]}"
    elif "guards ok" not in lines:
        failure = "something wrote beyond the arena"
    whose = program.model.name, costs.plan.options.chip, costs.on(), len(wanted)
    return BoardReport(*whose, tuple(ops), numbers["arena"], numbers["stack"] or None, failure)
