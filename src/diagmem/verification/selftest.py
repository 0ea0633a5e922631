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
from diagmem.model.graph import Node
from diagmem.ops import node_macs
from diagmem.ops.kind import Array
from diagmem.verification.harness import held
from diagmem.verification.reference import runs

CANDIDATES = [Pattern(seed, cell, contrast) for seed in range(4) for cell in (0, 4, 30) for contrast in (256, 48)]
"""Plain noise, coarse noise and one value, each strong and weak."""

MOST_MACS = 500_000_000
"""Of all inputs that are tried: numpy takes some seconds for them."""

LEAST_STACK_BYTES, STACK_SLACK_BYTES = 512, 256
"""Painted at least, and beyond what is predicted."""


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
    painted = max(LEAST_STACK_BYTES, stack_bytes or 0) + STACK_SLACK_BYTES
    if given is not None:
        data = b"".join(values.tobytes() for run in given for values in run)
        return SelfTest(data, [crcs(program, values) for values in runs(program.model, given)], painted)
    tensors = [program.graph.tensors[t] for t in program.graph.inputs]
    macs = max(1, sum(map(node_macs, program.model.nodes)))
    tried = CANDIDATES[: max(count, min(len(CANDIDATES), MOST_MACS // macs))]
    inputs = [[pattern.values(tensor, n) for n, tensor in enumerate(tensors)] for pattern in tried]
    found = []
    again = () if program.states else range(len(inputs))
    for pattern, values in zip(tried, runs(program.model, inputs, again), strict=True):
        made = [values[t.index] for node in program.nodes for t in node.outputs]
        if all(np.isfinite(v).all() for v in made):
            ranges = np.array([(float(v.min(initial=0)), float(v.max(initial=0))) for v in made])
            found.append((pattern, crcs(program, values), ranges))
        elif program.states:
            break
    if not found:
        raise PlanError("no drawn input gives finite numbers everywhere; give one with --input")
    chosen = found[:count] if program.states else _covering(found, count)
    return SelfTest([pattern for pattern, *_ in chosen], [expected for _, expected, _ in chosen], painted)


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
    """An op as a board ran it: `cycles` of the last run, None where nothing counted them. `is_right` in all runs."""

    node: Node
    cycles: int | None
    is_right: bool


@dataclass(frozen=True, slots=True)
class BoardReport:
    """What a board has said in its self-test. `failure`: why the answer is no; None if it is yes. `arena_bytes`,
    `stack_bytes`: that were written to."""

    model: str
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
    def cycles(self) -> int | None:
        found = [op.cycles for op in self.ops if op.cycles is not None]
        return sum(found) if found else None

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "ok": self.ok,
            "failure": self.failure,
            "runs": self.runs,
            "arena_bytes": self.arena_bytes,
            "stack_bytes": self.stack_bytes,
            "cycles": self.cycles,
            "cost": self.cost.to_json(),
            "ops": [
                {"index": op.node.op.number, "kind": op.node.op.kind, "cycles": op.cycles, "is_right": op.is_right}
                for op in self.ops
            ],
        }


LARGEST_LOG_BYTES = 2**24


def reported(costs: Costs, log: str, test: SelfTest | None = None) -> BoardReport:
    """The last whole report in what came over a serial port, judged by what numpy computes: not by what the board says
    of itself. `test`: what the board was given, if its inputs were not drawn."""
    program = costs.firmware
    begins = [found.start() for found in re.finditer(r"^diagmem selftest 1 ", log, re.MULTILINE)]
    whole = [log[at:end] for at, end in zip(begins, [*begins, len(log)][1:], strict=True)]
    whole = [text for text in whole if re.search(r"^result (?:ok|FAILED)\s*$", text, re.MULTILINE)]
    if not whole:
        why = "it begins, and does not come to its end" if begins else "no line begins with `diagmem selftest 1`"
        raise LogError(f"there is no whole report of a self-test: {why}")
    lines = whole[-1].splitlines()
    head = re.fullmatch(r"plan ([0-9a-f]{8}) inputs (\S+)", lines[1].strip()) if len(lines) > 1 else None
    if head is None:
        raise LogError(f"the second line of the report is no plan: '{one_line(lines[1] if lines[1:] else '')}'")
    if head[1] != plan_mark(program):
        raise LogError(
            f"the board runs another plan ({head[1]}; this one is {plan_mark(program)}): give the options or the "
            "--plan with which the C was emitted"
        )
    wanted = _wanted(program, head[2], test)
    return _judged(costs, lines, wanted)


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
    said: dict[tuple[int, int], tuple[int, int]] = {}
    for line in lines:
        found = re.fullmatch(r"op (\d{1,9}) (\d{1,9}) ([0-9a-f]{8}) (\d{1,10}) (?:ok|DIFFERS)", line.strip())
        if found:
            said[int(found[1]), int(found[2])] = int(found[3], 16), int(found[4])
    numbers = {
        name: int(count) for name, count in re.findall(r"^(arena|stack) (\d{1,10})\s*$", "\n".join(lines), re.MULTILINE)
    }
    wrong: dict[int, int] = {}
    ops = []
    for place, node in enumerate(program.nodes):
        of_runs = [said.get((run, node.op.number)) for run in range(len(wanted))]
        if None in of_runs:
            raise LogError(f"the report has no line for {node.label} in run {of_runs.index(None)}; was text lost?")
        bad = [run for run, found in enumerate(of_runs) if found and found[0] != wanted[run][place]]
        if bad:
            wrong[place] = bad[0]
        last = of_runs[-1]
        ops.append(BoardOp(node, last[1] if last and last[1] else None, not bad))
    failure = None
    if wrong:
        place = min(wrong, key=lambda place: (wrong[place], place))
        failure = f"{program.nodes[place].label} is the first that differs, in run {wrong[place]}"
    elif not any(line.strip() == "guards ok" for line in lines):
        failure = "something wrote beyond the arena"
    cost = costs.on()
    return BoardReport(
        program.model.name,
        cost,
        len(wanted),
        tuple(ops),
        numbers.get("arena", 0),
        numbers.get("stack") or None,
        failure,
    )
