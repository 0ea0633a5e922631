"""What a change does to a model's cost: two plans side by side, in sum and operation by operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from typing import Any

from diagmem.backends.json import LARGEST_TEXT_BYTES
from diagmem.model.errors import PlanError, one_line, reading
from diagmem.model.notebook import ShownAsTable
from diagmem.model.pools import parsed_size
from diagmem.model.schedule import PUSH
from diagmem.planning.planner import Planned
from diagmem.reports.inspection import inspect
from diagmem.verification.profile import Profile

FIGURES = {
    "arena_bytes": "RAM: arena",
    "weights_bytes": "flash: weights",
    "macs": "multiply-accumulates",
    "instructions": "instructions",
}
"""What is compared in sum, and what it is called."""

OP_FIGURES = {"needed_bytes": "bytes needed", "macs": "MACs", "instructions": "instructions"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one op. What is not known is None. `needed_bytes`: the most that must be held while it runs."""

    index: int
    kind: str
    name: str
    needed_bytes: int
    macs: int | None = None
    instructions: int | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """A model, or a plan of one, and what it costs. A plan alone does not tell its weights."""

    name: str
    arena_bytes: int
    ops: tuple[Cost, ...]
    weights_bytes: int | None = None
    macs: int | None = None
    instructions: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """An op before and after; None where there is none."""

    before: Cost | None
    after: Cost | None

    @property
    def has_changed(self) -> bool:
        if self.before is None or self.after is None:
            return True
        return any(getattr(self.before, figure) != getattr(self.after, figure) for figure in OP_FIGURES)


@dataclass(frozen=True, slots=True)
class Growth:
    """How much more is allowed: a share of each figure, or so many bytes of those that are bytes."""

    text: str
    percent: float | None
    size_bytes: int = 0

    @classmethod
    def parsed(cls, text: str) -> Growth:
        """`2%`, `512B`, `1K`, `0`."""
        share = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*%", text.strip())
        size = 0 if re.fullmatch(r"0+\s*[bB]?", text.strip()) else parsed_size(text)
        if share is None and size is None:
            raise PlanError(
                f"growth '{one_line(text, 40)}' is neither a share nor a number of bytes: such as 2% or 512B"
            )
        return cls(text.strip(), float(share[1]) if share else None, size or 0)

    def allows(self, figure: str, before: int, after: int) -> bool:
        if self.percent is not None:
            return 100 * (after - before) <= self.percent * before
        return not figure.endswith("_bytes") or after - before <= self.size_bytes


@dataclass(frozen=True, slots=True)
class Difference(ShownAsTable):
    before: Side
    after: Side
    ops: tuple[Pair, ...]

    @property
    def changed(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.ops if pair.has_changed)

    def figures(self) -> Iterator[tuple[str, int | None, int | None]]:
        """What is known of at least one side."""
        for figure in FIGURES:
            values = getattr(self.before, figure), getattr(self.after, figure)
            if values != (None, None):
                yield figure, *values

    def grown(self, most: Growth) -> list[str]:
        """The figures that grow by more than that."""
        return [
            figure
            for figure, old, new in self.figures()
            if old is not None and new is not None and not most.allows(figure, old, new)
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before.name,
            "after": self.after.name,
            **{figure: {"before": old, "after": new} for figure, old, new in self.figures()},
            "ops": [_pair_json(pair) for pair in self.changed],
        }


def planned_side(name: str, made: Planned, profile: Profile | None = None) -> Side:
    """`profile`: a run of this plan, where instructions are to be compared."""
    plan, found = made.plan, inspect(made.model)
    counted = {op.node.op.number: op.instructions for op in profile.ops} if profile else {}
    numbers = (op if op == PUSH else plan.graph.ops[op].number for op in plan.schedule.ops)
    needed = _needed(zip(numbers, plan.pressure, strict=True))
    macs = inspect(plan.graph).macs
    costs = tuple(
        Cost(
            node.op.number,
            node.op.kind,
            node.outputs[0].name if node.outputs else "",
            needed.get(node.op.number, 0),
            macs[node.op.index],
            counted.get(node.op.number),
        )
        for node in plan.graph.nodes
    )
    total = profile.instructions if profile else None
    return Side(name, plan.arena_bytes, costs, found.weights_bytes, sum(macs), total)


def _needed(steps: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Op -> the most bytes that one of its steps needs."""
    found: dict[int, int] = {}
    for number, size_bytes in steps:
        if number != PUSH:
            found[number] = max(found.get(number, 0), size_bytes)
    return found


def read_side(path: Path) -> Side:
    """A plan that was written as JSON."""
    name = one_line(str(path))
    with reading(), path.open("rb") as file:
        text = file.read(LARGEST_TEXT_BYTES + 1)
    try:
        plan: Any = json.loads(text)
        arena, schedule, pressure = plan["arena_bytes"], plan["schedule"], plan["pressure"]
        steps = list(zip(schedule, pressure, strict=True))
        if not all(isinstance(number, int) for number in (arena, *schedule, *pressure)):
            raise TypeError
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PlanError(
            f"{name}: not a plan: it needs arena_bytes, schedule and pressure, as `diagmem plan --json` writes them"
        ) from error
    needed = _needed(steps)
    return Side(name, arena, tuple(Cost(number, "", "", needed[number]) for number in sorted(needed)))


def difference(before: Side, after: Side) -> Difference:
    return Difference(before, after, tuple(_pairs(before.ops, after.ops)))


def _pairs(before: tuple[Cost, ...], after: tuple[Cost, ...]) -> Iterator[Pair]:
    """Ops of the same name and kind, in order; of the same kind where names have nothing in common; of the same index
    where neither is known."""
    keys = [[(cost.kind, cost.name) for cost in side] for side in (before, after)]
    if any(not cost.kind for cost in (*before, *after)):
        keys = [[(str(cost.index), "") for cost in side] for side in (before, after)]
    elif 2 * len({*keys[0]} & {*keys[1]}) < min(len(before), len(after)):
        keys = [[(cost.kind, "") for cost in side] for side in (before, after)]
    for tag, a, a_end, b, b_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Pair(*pair) for pair in zip(before[a:a_end], after[b:b_end], strict=True))
            continue
        yield from (Pair(cost, None) for cost in before[a:a_end])
        yield from (Pair(None, cost) for cost in after[b:b_end])


def _pair_json(pair: Pair) -> dict[str, Any]:
    known = pair.after or pair.before
    values = {
        figure: {"before": getattr(pair.before, figure, None), "after": getattr(pair.after, figure, None)}
        for figure in OP_FIGURES
    }
    return {
        "kind": getattr(known, "kind", ""),
        "name": getattr(known, "name", ""),
        "before": getattr(pair.before, "index", None),
        "after": getattr(pair.after, "index", None),
        **{figure: value for figure, value in values.items() if {*value.values()} != {None}},
    }


def change_text(before: int | None, after: int | None) -> str:
    """`+1,024 (+3.1 %)`; nothing where there is nothing to compare."""
    if before is None or after is None or before == after:
        return "" if before != after or before is None else "="
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    return f"{after - before:+,}{share}"


def markdown(found: Difference) -> str:
    """For a pull request: the sums, and below them what ops have changed, folded."""
    lines = [
        f"**{_escaped(found.before.name)}** → **{_escaped(found.after.name)}**",
        "",
        "| | before | after | change |",
        "|---|---:|---:|---:|",
        *(
            f"| {FIGURES[figure]} | {_count(old)} | {_count(new)} | {change_text(old, new)} |"
            for figure, old, new in found.figures()
        ),
        "",
    ]
    if not found.changed:
        return "\n".join([*lines, "No op has changed.", ""])
    shown = [figure for figure in OP_FIGURES if any(figure in _pair_json(pair) for pair in found.changed)]
    headings = "".join(f" {OP_FIGURES[figure]} before | after |" for figure in shown)
    lines += [f"<details><summary>{len(found.changed)} of {len(found.ops)} ops have changed</summary>", ""]
    lines += [f"| op | kind |{headings}", f"|---|---|{'---:|---:|' * len(shown)}"]
    for pair in found.changed:
        known = pair.after or pair.before
        cells = "".join(
            f" {_count(getattr(pair.before, figure, None))} | {_count(getattr(pair.after, figure, None))} |"
            for figure in shown
        )
        lines.append(f"| {index_text(pair)} | {_escaped(getattr(known, 'kind', ''))} |{cells}")
    return "\n".join([*lines, "", "</details>", ""])


def index_text(pair: Pair) -> str:
    """`3`, `3 → 4`, `3 → gone`, `new 4`."""
    if pair.before is None or pair.after is None:
        return f"{pair.before.index} → gone" if pair.before else f"new {pair.after.index if pair.after else ''}"
    same = pair.before.index == pair.after.index
    return f"{pair.before.index}" if same else f"{pair.before.index} → {pair.after.index}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _escaped(text: str) -> str:
    """Text that Markdown takes for nothing but text."""
    return escape("".join(f"\\{c}" if c in "\\`*_{}[]#+!|~" else c for c in one_line(text)))
