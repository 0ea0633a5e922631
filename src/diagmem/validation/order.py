"""Whether a schedule runs every op, each of its turns, in an order that an op can be run in, and not too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from diagmem.kernels import Library
from diagmem.model.graph import Graph
from diagmem.model.schedule import PUSH, Schedule, Step
from diagmem.ops.state import changed_variables
from diagmem.validation.findings import Fault, Finding
from diagmem.validation.kernel import Kernel

_ROUNDING = Fraction(1, 20_000)
"""Plans state how much is computed again to four decimals."""


def faults_of_order(graph: Graph, kernels: Sequence[Kernel], schedule: Schedule, recompute: float) -> Iterator[Finding]:
    """All that can be said without looking at what is read and written."""
    order = _Order(graph, kernels)
    for at, step in enumerate(schedule.steps):
        yield from order.step(at, step)
    yield from order.end()
    once = sum(kernel.macs for kernel in kernels)
    if order.work() > once * (Fraction(recompute) + _ROUNDING) + 1:
        yield Finding(Fault.TOO_MUCH_WORK)


class _Order:
    def __init__(self, graph: Graph, kernels: Sequence[Kernel]) -> None:
        self.graph, self.kernels = graph, kernels
        self.done: Counter[int] = Counter()
        self.whole: set[int] = set()
        self.last_effect = -1
        self.versions = _Versions(graph)
        self.turned: Counter[int] = Counter()

    def step(self, at: int, step: Step) -> Iterator[Finding]:
        op, turn = step.op, step.turn
        if not PUSH <= op < len(self.graph.ops) or (op == PUSH and not self.graph.inputs):
            yield Finding(Fault.OP_UNKNOWN, at, op)
            return
        fault = self._fault_of(op, turn)
        if fault is not None:
            yield self._finding(fault, at, op)
            return
        if turn is None:
            self.whole.add(op)
        else:
            self.done[op] = max(self.done[op], turn + 1)
            self.turned[op] += 1
        if op != PUSH:
            yield from self._effects(at, op)

    def _fault_of(self, op: int, turn: int | None) -> Fault | None:
        if turn is None and op != PUSH:
            return Fault.OP_REPEATED if op in self.whole else Fault.TURNS_MIXED if self.done[op] else None
        if op in self.whole:
            return Fault.TURNS_MIXED
        turns = self._turns(op)
        if not turns:
            return Fault.NO_TURNS
        if turn is None or not 0 <= turn < turns:
            return Fault.TURN_UNKNOWN
        if turn > self.done[op]:
            return Fault.TURN_TOO_EARLY
        if turn < self.done[op] and (op == PUSH or self.kernels[op].sums_bytes):
            return Fault.OP_REPEATED
        return None

    def _effects(self, at: int, op: int) -> Iterator[Finding]:
        early = self.versions.early(op)
        if early is None and not self.graph.nodes[op].outputs:
            early = self.last_effect if op < self.last_effect else None
            self.last_effect = max(op, self.last_effect)
        if early is not None:
            yield self._finding(Fault.EFFECT_TOO_EARLY, at, early)

    def work(self) -> Fraction:
        """Multiply-accumulates of the whole run; each turn of an op does as many."""
        whole = sum(self.kernels[op].macs for op in self.whole)
        turned = (
            Fraction(self.kernels[op].macs * count, self._turns(op)) for op, count in self.turned.items() if op != PUSH
        )
        return sum(turned, Fraction(whole))

    def end(self) -> Iterator[Finding]:
        """After the last step."""
        for op in range(len(self.graph.ops)):
            if op not in self.whole and not 0 < self._turns(op) == self.done[op]:
                yield self._finding(Fault.OP_MISSING, None, op)
        if self.done[PUSH] and self.done[PUSH] != self._turns(PUSH):
            yield self._finding(Fault.OP_MISSING, None, PUSH)

    def _turns(self, op: int) -> int:
        return self.graph.tensors[self.graph.inputs[0]].rows if op == PUSH else self.kernels[op].turns

    def _finding(self, fault: Fault, at: int | None, op: int) -> Finding:
        return Finding(fault, at, op, number=None if op == PUSH else self.graph.ops[op].number)


class _Versions:
    """How often each variable has been changed. An op must find it as often changed as in the model's order."""

    def __init__(self, graph: Graph) -> None:
        self.changed_by = [changed_variables(node) for node in graph.nodes] if graph.variables else []
        self.now: Counter[int] = Counter()
        self.last_change: dict[int, int] = {}
        self.wanted: list[dict[int, int]] = []
        count: Counter[int] = Counter()
        for node, changed in zip(graph.nodes, self.changed_by, strict=False):
            touched = {v for t in (*node.op.inputs, *node.op.outputs) for v in graph.variables_in(t)}
            self.wanted.append({v: count[v] for v in sorted(touched)})
            count.update(changed)

    def early(self, op: int) -> int | None:
        """Notes that an op runs. Which op has run too early by then: the one that last changed what it touches, or it
        itself; None if all is in order."""
        if not self.wanted:
            return None
        found = None
        for variable, wanted in self.wanted[op].items():
            if self.now[variable] != wanted:
                found = self.last_change[variable] if self.now[variable] > wanted else op
        for variable in self.changed_by[op]:
            self.now[variable] += 1
            self.last_change[variable] = op
        return found


def faults_of_views(graph: Graph, library: Library, kernels: Sequence[Kernel]) -> Iterator[Finding]:
    """Views that reach out of what they are part of, and kernels that cannot address them."""
    for tensor in graph.tensors:
        if tensor.offset_bytes + tensor.span_bytes > graph.tensors[tensor.base].size_bytes or tensor.offset_bytes < 0:
            yield Finding(Fault.VIEW_ASTRAY, tensor=tensor.label)
    for kernel in kernels:
        node = kernel.node
        if all(t.is_in_one_piece for t in (*(t for _, t in node.activations()), *node.outputs)):
            continue
        if kernel.kind is None or not library.addresses_views or not kernel.kind.can_address(node):
            yield Finding(Fault.UNADDRESSABLE, op=node.op.index, number=node.op.number)
