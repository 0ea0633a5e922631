"""What a plan must fit into: a budget, a chip; whether it does, and `diagmem plan --fit`, which tries until it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from diagmem.cli._models import naming_model
from diagmem.cli._work import working
from diagmem.model.errors import PlanError, shell_word
from diagmem.planning.options import AUTO, ROWS, Options

if TYPE_CHECKING:
    from diagmem.costs import Costs, Fit
    from diagmem.frontends.source import Source
    from diagmem.kernels import Library
    from diagmem.model.graph import Graph
    from diagmem.planning.planner import Planned
    from diagmem.targets import Chip, Core


WORK = (1.25, 2.0, 4.0)
"""Times the multiply-accumulates that recomputed rows may cost, one after the other."""

Missing = Callable[["Planned"], int]
"""By how many bytes a plan is too large."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What was asked for with --budget, --flash and --target."""

    budget: int | None
    flash: int | None
    chip: Chip | None

    @property
    def are_set(self) -> bool:
        return (self.budget, self.flash, self.chip) != (None, None, None)

    @property
    def ram_bytes(self) -> int | None:
        """The largest arena that is allowed."""
        return _least(self.budget, self.chip.arena_limit_bytes if self.chip else None)

    def verdict(self, source: Source, made: Planned) -> Verdict:
        """Whether a plan fits."""
        plan = made.plan
        missing = plan.pools.missing_bytes if plan.options.pools else None
        if self.chip is None and self.flash is None:
            return Verdict(self, made.arena_bytes, missing or 0)
        from diagmem import pipeline
        from diagmem.costs import Fit

        core, costs = plan.options.core or usual_core(plan.options.library), pipeline.costs_of(source, made)
        cost = costs.on(self.chip, core)
        fit = None if self.chip is None else Fit(self.chip, cost, missing)
        return Verdict(self, made.arena_bytes, missing or 0, cost.flash.total_bytes, fit, costs, core.name)


def usual_core(library: Library) -> Core:
    """A small core that runs these kernels: code is counted for it where none was named."""
    from diagmem.targets import core_named

    return core_named({"dsp": "cortex-m4", "mve": "cortex-m55"}.get(getattr(library.instructions, "value", ""), "m0+"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a plan fits. `pools_missing`: what its memories lack. `flash_bytes`: where flash was asked about; `fit`
    where a chip was named. `core_name`: whose code was counted."""

    limits: Limits
    arena_bytes: int
    pools_missing: int = 0
    flash_bytes: int | None = None
    fit: Fit | None = None
    costs: Costs | None = None
    core_name: str = ""

    @property
    def larger_chip(self) -> Chip | None:
        """The chip nearest by name, and then the smallest, with a like core, that holds what the target does not."""
        if self.fit is None or self.costs is None or self.fit.fits:
            return None
        from diagmem.costs import Fit
        from diagmem.targets import chips

        name, cpu = self.fit.chip.name, self.fit.chip.core.cpu
        alike = (chip for chip in chips() if chip.core.cpu == cpu and chip.core.refusal is None)
        fitting = [chip for chip in alike if Fit(chip, self.costs.on(chip)).fits]

        def nearness(chip: Chip) -> tuple[int, int, int]:
            shared = [a == b for a, b in zip(chip.name, name, strict=False)]
            return -[*shared, False].index(False), chip.sram_bytes, chip.flash_bytes

        return min(fitting, key=nearness, default=None)

    @property
    def missing(self) -> Mapping[str, int]:
        """What there is too little of, and by how many bytes."""
        found = {"RAM": self.pools_missing, "flash": 0, **dict(self.fit.missing() if self.fit else ())}
        for what, used, limit in (
            ("RAM", self.arena_bytes, self.limits.budget),
            ("flash", self.flash_bytes, self.limits.flash),
        ):
            if limit is not None and used is not None:
                found[what] = max(found[what], used - limit)
        return {what: size for what, size in found.items() if size}

    @property
    def fits(self) -> bool:
        return not self.missing

    def to_json(self) -> dict[str, Any]:
        if not self.limits.are_set:
            return {}
        told: dict[str, Any] = {"limit_bytes": self.limits.ram_bytes}
        if self.flash_bytes is not None:
            told |= {"flash_bytes": self.flash_bytes, "flash_limit_bytes": self.limits.flash}
        if self.fit is not None:
            told["limit_bytes"] = _least(self.limits.ram_bytes, self.fit.arena_limit_bytes)
            told["flash_limit_bytes"] = _least(self.limits.flash, self.fit.chip.flash_bytes or None)
            told |= {"ram_bytes": self.fit.ram_bytes, "not_counted": list(self.fit.cost.notes)}
        return {**told, "fits": self.fits}


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """`changes`: options of the plan besides those that were asked for. `made`: the plan, None where there is none for
    the `reason` given. `missing_bytes`: by how much it is too large."""

    changes: Mapping[str, Any]
    made: Planned | None = None
    missing_bytes: int = 0
    reason: str = ""

    @property
    def fits(self) -> bool:
        return self.made is not None and not self.missing_bytes


def attempts(graph: Graph, options: Options, missing: Missing, more_pools: Sequence[Any] = ()) -> Iterator[Attempt]:
    """Plans, cheapest option first, each with less RAM; the last one fits if any does: as it was asked for, row by row,
    with an input that comes row by row, with recomputed rows. Then the same in `more_pools`, memories that the
    chip has besides. At last, where pools were given, with the last of them as large as it must be."""
    smallest, first = None, None
    for changes in _changes(options, more_pools):
        if changes == {"schedule": ROWS} and first is not None and first.plan.runs_by_rows:
            continue  # As it was asked for, it runs row by row already.
        found = _tried(graph, options, changes, missing)
        yield found
        if found.fits:
            return
        first = first or found.made
        if found.made is not None and (smallest is None or found.missing_bytes < smallest.missing_bytes):
            smallest = found
    if smallest is not None and smallest.made is not None and smallest.made.plan.pools:
        larger = {**smallest.changes, "pools": smallest.made.plan.pools.own_enlarged}
        yield _tried(graph, options, larger, missing)


def _changes(options: Options, more_pools: Sequence[Any]) -> Iterator[dict[str, Any]]:
    rows = list(_ways(options))
    yield from rows
    if more_pools:
        yield from ({**way, "pools": tuple(more_pools)} for way in rows)


def _ways(asked: Options) -> Iterator[dict[str, Any]]:
    yield {}
    if not asked.library.is_own or asked.external_io:
        return
    if asked.schedule != ROWS:
        yield {"schedule": ROWS}
    # These are row by row unless another schedule is asked for.
    by_rows: dict[str, Any] = {} if asked.schedule in (AUTO, ROWS) else {"schedule": ROWS}
    streamed = {**by_rows, "input_rows": True}
    if not asked.input_rows:
        yield streamed
    for work in WORK:
        if work > asked.recompute:
            yield {**by_rows, "recompute": work}
            yield {**streamed, "recompute": work}


def _tried(graph: Graph, options: Options, changes: Mapping[str, Any], missing: Missing) -> Attempt:
    from diagmem.planning import planner

    try:
        made = planner.planned(graph, replace(options, **changes))
    except PlanError as error:
        return Attempt(changes, reason=str(error))
    return Attempt(changes, made, missing(made))


@dataclass(frozen=True, slots=True)
class Fitting:
    """What was tried until a plan fits; the last one does, if any does. `words`: those of the command line, of which
    --fit is one. `by_target`: more memories are those of the chip."""

    tried: Sequence[Attempt]
    words: Sequence[str]
    by_target: bool

    @classmethod
    def of(cls, source: Source, options: Options, limits: Limits, words: Sequence[str]) -> Fitting:
        if limits.ram_bytes is None and not options.pools:
            raise PlanError("--fit needs a limit: give --budget, --target or --pool")
        more = limits.chip.pools if limits.chip is not None and not options.pools else ()
        tried: list[Attempt] = []
        with naming_model(source.label), working("planning") as bar:
            graph = source.graph_for(limits.chip, options.needs_weights)

            def missing(made: Planned) -> int:
                return limits.verdict(source, made).missing.get("RAM", 0)

            for found in attempts(graph, options, missing, more if len(more) > 1 else ()):
                tried.append(found)
                bar.tell("making it fit", len(tried), len(tried) + 1)
        return cls(tried, words, bool(more))

    @property
    def best(self) -> tuple[Attempt, Planned]:
        """The one that fits, else the one that is short by least, and its plan."""
        planned = [(attempt, attempt.made) for attempt in self.tried if attempt.made is not None]
        if not planned:
            raise PlanError(self.tried[0].reason)
        return min(planned, key=lambda one: one[0].missing_bytes)

    @property
    def command(self) -> str | None:
        """What to type instead, if something fits."""
        best, _ = self.best
        if not best.fits:
            return None
        words = [word for word in self.words if word != "--fit"]
        if "pools" in best.changes and not self.by_target:
            words = list(_without_pools(words))
        return " ".join(["diagmem", *(shell_word(word) for word in words), *self.flags(best.changes)])

    def flags(self, changes: Mapping[str, Any]) -> Iterator[str]:
        for name, value in changes.items():
            flag = f"--{name.replace('_', '-')}"
            if name == "pools":
                yield from ["--all-memories"] if self.by_target else (f"--pool {pool}" for pool in value)
            else:
                yield flag if value is True else f"{flag} {value:g}" if isinstance(value, float) else f"{flag} {value}"

    def to_json(self) -> dict[str, Any]:
        tried = [
            {
                "options": list(self.flags(attempt.changes)),
                "arena_bytes": None if attempt.made is None else attempt.made.arena_bytes,
                "missing_bytes": None if attempt.made is None else attempt.missing_bytes,
            }
            for attempt in self.tried
        ]
        return {"fit": {"tried": tried, "command": self.command}}


def _without_pools(words: Sequence[str]) -> Iterator[str]:
    is_value = False
    for word in words:
        if not is_value and word != "--pool" and not word.startswith("--pool="):
            yield word
        is_value = word == "--pool"
