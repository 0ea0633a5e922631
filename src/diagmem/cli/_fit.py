"""What `diagmem plan` says of a chip or a budget: what is left of RAM and flash, or missing; and of C code at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from diagmem.cli._shared import size_text
from diagmem.model.errors import PlanError

if TYPE_CHECKING:
    from diagmem.frontends.source import Source
    from diagmem.model.graph import Graph
    from diagmem.planning.planner import Planned
    from diagmem.reports.memory import Fit, Need
    from diagmem.targets import Chip

MOST_KINDS = 6
"""That a line lists."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What was asked for with --budget and --target."""

    budget: int | None
    chip: Chip | None

    @classmethod
    def of(cls, budget: int | None, target_name: str | None) -> Limits:
        if not target_name:
            return cls(budget, None)
        from diagmem.targets import chip_named

        return cls(budget, chip_named(target_name))

    @property
    def ram_bytes(self) -> int | None:
        """The largest arena that is allowed."""
        limits = (self.budget, self.chip.arena_limit_bytes if self.chip else None)
        return min((limit for limit in limits if limit is not None), default=None)

    def memories(self, pools: Sequence[str], all_memories: bool, weights_pool: str) -> dict[str, Any]:
        """As options of a plan: the chip's memories, if these are asked for, and then the given ones; and where weights
        are copied to, with what a byte of the chip's flash costs, unless another cost is given."""
        if all_memories and self.chip is None:
            raise PlanError("--all-memories are those of a chip: name one with --target, or give each with --pool")
        chip = self.chip.pools if self.chip is not None and all_memories else ()
        if self.chip is not None and self.chip.flash_cost and weights_pool and ":" not in weights_pool:
            weights_pool = f"{weights_pool}:{self.chip.flash_cost:g}"
        return {"pools": (*chip, *pools), "weights_pool": weights_pool}

    def graph(self, source: Source, options: Mapping[str, Any]) -> Graph:
        """What is planned."""
        return source.graph_for(self.chip, options.get("weights_pool"))

    def verdict(self, source: Source, made: Planned) -> Verdict:
        """How a plan stands to them."""
        if self.chip is None:
            return Verdict(self, made.arena_bytes, None)
        from diagmem import pipeline
        from diagmem.reports.memory import Fit

        need = pipeline.needs_of(source, made, self.chip.core.name)
        missing = made.plan.pools.missing_bytes if made.plan.options.pools else None
        return Verdict(self, made.arena_bytes, Fit(self.chip, need, missing))

    def missing_bytes(self, made: Planned) -> int:
        """Of RAM: by how much the plan is too large."""
        if made.plan.options.pools:
            over = 0 if self.budget is None else made.arena_bytes - self.budget
            return max(0, over, made.plan.pools.missing_bytes)
        limit = self.ram_bytes
        return 0 if limit is None else max(0, made.arena_bytes - limit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a plan fits; `fit` where a chip was named."""

    limits: Limits
    arena_bytes: int
    fit: Fit | None

    @property
    def fits(self) -> bool:
        budget = self.limits.budget
        return (budget is None or self.arena_bytes <= budget) and (self.fit is None or self.fit.fits)

    def to_json(self) -> dict[str, Any]:
        if self.limits.ram_bytes is None:
            return {}
        flash: dict[str, Any] = {}
        if self.fit is not None:
            needed, chip = self.fit.need, self.fit.target
            flash = {"target": chip.name, "ram_bytes": needed.ram_bytes, "flash_bytes": needed.flash_bytes}
            flash |= {"flash_limit_bytes": chip.flash_bytes or None, "not_counted": list(needed.notes)}
        return {"limit_bytes": self.limits.ram_bytes, **flash, "fits": self.fits}

    def short(self) -> str:
        """In a word or two, for a table."""
        if self.limits.ram_bytes is None:
            return ""
        missing = list(self.fit.missing()) if self.fit else []
        if not missing and not self.fits:
            missing = [("RAM", self.arena_bytes - (self.limits.budget or 0))]
        return ", ".join(f"{what} short by {size} B" for what, size in missing) or "fits"

    def lines(self) -> Iterator[str]:
        if self.limits.budget is not None:
            left = self.limits.budget - self.arena_bytes
            yield (
                f"fits         the budget: {size_text(left)} left"
                if left >= 0
                else (f"too large    for the budget: short by {size_text(-left)}")
            )
        if self.fit is not None:
            yield from _chip_lines(self.fit)


def _chip_lines(fit: Fit) -> Iterator[str]:
    chip, need = fit.target, fit.need
    region, size = chip.largest_region
    yield f"{'fits         ' if fit.fits else 'too large    for '}{chip.name} ({chip.core.name})"
    if fit.pools_missing is not None:
        rest = f"short by {size_text(fit.pools_missing)}" if fit.pools_missing else "all within its memories"
    elif fit.ram_left_bytes >= 0:
        rest = f"{size_text(fit.ram_left_bytes + fit.ram_kept_bytes)} left for stack, data and the rest"
    else:
        kept = size_text(fit.ram_kept_bytes)
        rest = f"short by {size_text(-fit.ram_left_bytes)} ({kept} must stay free for stack and data)"
    where = f"{size // 1024} KB {region}" if fit.pools_missing is None else f"{chip.sram_bytes // 1024} KB"
    yield f"  RAM        {size_text(need.ram_bytes)} of {where}: {rest}"
    left = fit.flash_left_bytes
    of = f" of {chip.flash_bytes // 1024} KB" if chip.flash_bytes else ""
    rest = "" if left is None else f": {size_text(left)} left" if left >= 0 else f": short by {size_text(-left)}"
    outside = "; the board's own flash chip must hold them" if left is None else ""
    yield f"  flash      about {size_text(need.flash_bytes)}{of}{rest} ({_parts(need)}){outside}"
    for note in need.notes:
        yield f"             without {note}"


def _parts(need: Need) -> str:
    return ", ".join(f"{name} {size} B" for name, size in need.flash.items())


def c_lines(source: Source, made: Planned) -> Iterator[str]:
    """Says so if the model cannot be emitted as C; one of the zoo can."""
    plan = made.plan
    if not plan.options.library.is_own or plan.options.external_io or source.is_from_zoo or plan.pools.missing_bytes:
        return
    from diagmem.backends.c.program import Program

    program = Program.of(made)
    if program.refused_ops:
        refused = Counter(program.graph.ops[op].kind for op in program.refused_ops)
        names = [f"{kind} ({count})" if count > 1 else kind for kind, count in refused.most_common()]
        more = f" and {len(names) - MOST_KINDS} kinds more" if len(names) > MOST_KINDS else ""
        shown = ", ".join(names[:MOST_KINDS])
        yield f"C            {len(program.refused_ops)} of {len(program.nodes)} ops have no kernel: {shown}{more}"
    elif program.refused_tensors:
        yield f"C            cannot be emitted: {program.refused_tensors[0]}"
