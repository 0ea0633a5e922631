"""What a change does to a model's cost: two plans side by side, in sum and operation by operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from typing import Any

from diagmem.backends.json import LARGEST_TEXT_BYTES
from diagmem.costs import Costs, most_live
from diagmem.model.errors import PlanError, content_of, one_line
from diagmem.model.notebook import ShownAsTable
from diagmem.model.pools import parsed_size
from diagmem.reports.pages import filled
from diagmem.verification.profile import Profile

FIGURES = {
    "arena_bytes": ("ram", "RAM: arena"),
    "stack_bytes": ("ram", "RAM: stack, up to"),
    "weights_bytes": ("flash", "flash: weights"),
    "tables_bytes": ("flash", "flash: tables"),
    "code_bytes": ("flash", "flash: code, about"),
    "macs": ("", "multiply-accumulates"),
    "instructions": ("", "instructions"),
    "cycles": ("", "cycles, about"),
}
"""What is compared in sum: its name in a cost's JSON, the part it stands in, and what it is called."""

OP_FIGURES = {
    "live_bytes": "live RAM",
    "weights_bytes": "weights",
    "macs": "MACs",
    "instructions": "instructions",
    "cycles": "cycles",
}

Values = Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Op:
    """An op of either side; of a plan that was read, neither kind nor name is known. `values`: by OP_FIGURES."""

    index: int
    kind: str
    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class Side:
    """A model, or a plan of one, and what it costs, as JSON has it."""

    name: str
    cost: Mapping[str, Any] = field(repr=False)
    ops: tuple[Op, ...] = field(repr=False)

    @property
    def arena_bytes(self) -> int:
        return int(self.cost["ram"]["arena_bytes"])

    @property
    def flash_bytes(self) -> int | None:
        """None where the weights are not known."""
        flash = self.cost["flash"]
        return None if flash["weights_bytes"] is None else flash["total_bytes"]

    @property
    def values(self) -> Values:
        """By FIGURES; what is not known is None."""
        return {figure: (self.cost[part] if part else self.cost)[figure] for figure, (part, _) in FIGURES.items()}


@dataclass(frozen=True, slots=True)
class Pair:
    """An op before and after; None where there is none."""

    before: Op | None
    after: Op | None

    @property
    def has_changed(self) -> bool:
        return self.before is None or self.after is None or self.before.values != self.after.values

    @property
    def known(self) -> Op:
        """The op after, or before where it is gone."""
        found = self.after or self.before
        assert found is not None
        return found

    def figures(self) -> Iterator[tuple[str, int | None, int | None]]:
        """What is known of at least one side."""
        for figure in OP_FIGURES:
            old, new = (None if op is None else op.values[figure] for op in (self.before, self.after))
            if (old, new) != (None, None):
                yield figure, old, new

    def values(self, figures: Iterable[str]) -> list[tuple[int | None, int | None]]:
        """Before and after, by the figure."""
        known = {figure: (old, new) for figure, old, new in self.figures()}
        return [known.get(figure, (None, None)) for figure in figures]


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
    ops: tuple[Pair, ...] = field(repr=False)

    @property
    def changed(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.ops if pair.has_changed)

    def figures(self) -> Iterator[tuple[str, int | None, int | None]]:
        """What at least one side has."""
        before, after = self.before.values, self.after.values
        for figure in FIGURES:
            if before[figure] or after[figure]:
                yield figure, before[figure], after[figure]

    @property
    def op_figures(self) -> list[str]:
        """What is known of at least one op that has changed."""
        known = {figure for pair in self.changed for figure, *_ in pair.figures()}
        return [figure for figure in OP_FIGURES if figure in known]

    def grown(self, most: Growth) -> list[str]:
        """The figures that grow by more than that. Parts of flash count only if flash in all grows by more."""
        before, after = self.before.flash_bytes, self.after.flash_bytes
        has_room = before is None or after is None or most.allows("flash_bytes", before, after)
        return [
            figure
            for figure, old, new in self.figures()
            if old is not None and new is not None and not most.allows(figure, old, new)
            if FIGURES[figure][0] != "flash" or not has_room
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before.name,
            "after": self.after.name,
            "cost": {"before": self.before.cost, "after": self.after.cost},
            **{figure: {"before": old, "after": new} for figure, old, new in self.figures()},
            "ops": [_pair_json(pair) for pair in self.changed],
        }


def planned_side(name: str, costs: Costs, profile: Profile | None = None) -> Side:
    """`profile`: a run of this plan, where instructions are to be compared."""
    counted = {op.node.op.number: op.instructions for op in profile.ops} if profile else None
    layers = [(layer, layer.to_json()) for layer in costs.layers(counted)]
    ops = (Op(one.index, one.kind, one.name, {figure: told[figure] for figure in OP_FIGURES}) for one, told in layers)
    return Side(name, (profile.cost if profile else costs.on()).to_json(), tuple(ops))


def read_side(path: Path) -> Side:
    """A plan that was written as JSON."""
    name = one_line(str(path))
    text = content_of(path, LARGEST_TEXT_BYTES)
    try:
        plan: Any = json.loads(text)
        cost, steps = plan["cost"], list(zip(plan["schedule"], plan["pressure"], strict=True))
        side = Side(name, cost, ())
        numbers = (*(value or 0 for value in side.values.values()), *chain.from_iterable(steps))
        if not all(isinstance(number, int) for number in numbers):
            raise TypeError
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PlanError(
            f"{name}: not a plan: it needs cost, schedule and pressure, as `diagmem plan --json` writes them"
        ) from error
    unknown = dict.fromkeys(OP_FIGURES)
    ops = (Op(op, "", "", {**unknown, "live_bytes": held}) for op, held in sorted(most_live(steps).items()))
    return replace(side, ops=tuple(ops))


def difference(before: Side, after: Side) -> Difference:
    return Difference(before, after, tuple(_pairs(before.ops, after.ops)))


def _pairs(before: tuple[Op, ...], after: tuple[Op, ...]) -> Iterator[Pair]:
    """Ops of the same name and kind, in order; of the same kind where names have nothing in common; of the same index
    where neither is known."""
    keys = [[(op.kind, op.name) for op in side] for side in (before, after)]
    if any(not op.kind for op in (*before, *after)):
        keys = [[(str(op.index), "") for op in side] for side in (before, after)]
    elif 2 * len({*keys[0]} & {*keys[1]}) < min(len(before), len(after)):
        keys = [[(op.kind, "") for op in side] for side in (before, after)]
    for tag, a, a_end, b, b_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (Pair(*pair) for pair in zip(before[a:a_end], after[b:b_end], strict=True))
            continue
        yield from (Pair(op, None) for op in before[a:a_end])
        yield from (Pair(None, op) for op in after[b:b_end])


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "kind": pair.known.kind,
        "name": pair.known.name,
        "before": pair.before and pair.before.index,
        "after": pair.after and pair.after.index,
        **{figure: {"before": old, "after": new} for figure, old, new in pair.figures()},
    }


def change_text(before: int | None, after: int | None) -> str:
    """`+1,024 (+3.1 %)`; nothing where there is nothing to compare."""
    if before is None or after is None or before == after:
        return "" if before != after or before is None else "="
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    return f"{after - before:+,}{share}"


def markdown(found: Difference) -> str:
    """For a pull request: the sums, and below them what ops have changed, folded."""
    names = {"figures": FIGURES, "op_figures": OP_FIGURES, "change_text": change_text, "index_text": index_text}
    return filled("difference.md", found=found, **names)


def index_text(pair: Pair) -> str:
    """`3`, `3 → 4`, `3 → gone`, `new 4`."""
    if pair.before is None or pair.after is None:
        return f"{pair.before.index} → gone" if pair.before else f"new {pair.after.index if pair.after else ''}"
    same = pair.before.index == pair.after.index
    return f"{pair.before.index}" if same else f"{pair.before.index} → {pair.after.index}"
