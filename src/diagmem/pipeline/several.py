"""Several models: in one arena, wired to each other, or planned one by one in a sweep on any executor."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from diagmem import pipeline
from diagmem.frontends.model_chain import Wire, Wired, groups
from diagmem.frontends.source import Source
from diagmem.model.errors import DiagmemError, ModelError, PlanError, one_line
from diagmem.pipeline import EmittedC, Model, asked_for, planned, source_of
from diagmem.planning import planner
from diagmem.planning.memory.caller import in_own_arena, in_shared_pools, kept_bytes
from diagmem.planning.options import KEEP_OUTPUTS, ONE_AT_A_TIME, Options
from diagmem.planning.plan import Planned

if TYPE_CHECKING:
    from diagmem.backends.c import FileLayout
    from diagmem.backends.c.program import Program
    from diagmem.costs import Cost
    from diagmem.targets import Core
    from diagmem.verification.places import CVerdict


@dataclass(frozen=True)
class Together:
    """Plans of models of which one runs at a time, each in the memory that all share or in its own. `apart_bytes`: what
    the best plans of the models alone take in sum; None if the memories do not hold them beside each other."""

    plans: tuple[Planned, ...]
    apart_bytes: int | None
    mode: str

    @classmethod
    def of(cls, plans: Sequence[Planned], alone: Sequence[Planned]) -> Together:
        """The least that these plans take, all made with the same option `together`, or those made `alone`: without the
        option, state may share addresses with other tensors."""
        modes = {made.plan.options.together for made in plans}
        mode = modes.pop()
        if modes or not mode:
            raise PlanError("only models planned with the same `together` can share an arena")
        both = list(zip(plans, alone, strict=True))
        apart = cls(_beside_each_other(both, frozenset()), None, mode)
        apart_bytes = None if apart.missing_bytes else apart.total_bytes
        chosen = dict.fromkeys((frozenset(range(len(plans))), _least(both)))
        shared = [_beside_each_other(both, sharing) for sharing in chosen if sharing]
        found = [cls(one, apart_bytes, mode) for one in (*shared, apart.plans)]
        return min(found, key=lambda one: (one.missing_bytes, one.total_bytes))

    @property
    def pools_bytes(self) -> Mapping[str, int]:
        """What models share in each memory: as much as any of them needs."""
        return _shared_bytes(self.plans)

    @property
    def shared_bytes(self) -> int:
        """The arena: what the largest needs."""
        return sum(self.pools_bytes.values())

    @property
    def kept_bytes(self) -> int:
        """What lies beside it, of all models: what must outlive the runs of the others, and arenas of their own."""
        return sum(kept_bytes(made.plan) for made in self.plans)

    @property
    def own_arenas(self) -> tuple[Planned, ...]:
        """Those that share nothing, since that takes less."""
        return tuple(made for made in self.plans if not made.plan.options.together)

    @property
    def total_bytes(self) -> int:
        return self.shared_bytes + self.kept_bytes

    def cost(self, programs: Sequence[Program | None] = (), core: Core | None = None) -> Cost:
        """What all take, with the kernels that they share, on what they were planned for; if that is no core, on
        that given. `programs`: the plans as C, where they are there already."""
        from diagmem.costs import Costs, cost_together

        emitted = programs or [None] * len(self.plans)
        costs = [Costs(made.plan, made.model, emitted=own) for made, own in zip(self.plans, emitted, strict=True)]
        options = self.plans[0].plan.options
        return cost_together(costs, self.total_bytes, options.chip, options.core or core)

    @property
    def missing_bytes(self) -> int:
        """What is used beyond the memories, each model's beside that of the others."""
        return sum(made.plan.pools.missing_bytes for made in self.plans)


def _shared_bytes(plans: Sequence[Planned]) -> dict[str, int]:
    found: dict[str, int] = {}
    for use in (use for made in plans for use in made.plan.pools.uses):
        if not (use.pool.is_kept or use.pool.is_external):
            found[use.pool.name] = max(use.used_bytes, found.get(use.pool.name, 0))
    return found


def _least(both: Sequence[tuple[Planned, Planned]]) -> frozenset[int]:
    """Which models share, and which have an arena of their own, so that it takes least in all. Whatever the size of the
    shared arena, a model that fits into it shares it if that takes no more than an arena of its own."""
    sizes = [_shared_bytes([made]) for made, _ in both]
    kept = [kept_bytes(made.plan) for made, _ in both]

    def sharing(arena: Mapping[str, int]) -> frozenset[int]:
        fitting = (n for n, size in enumerate(sizes) if all(size[pool] <= arena.get(pool, 0) for pool in size))
        return frozenset(n for n in fitting if kept[n] <= both[n][1].arena_bytes)

    def total(shared: frozenset[int]) -> int:
        beside = (kept[n] if n in shared else own.arena_bytes for n, (_, own) in enumerate(both))
        return sum(_shared_bytes([both[n][0] for n in shared]).values()) + sum(beside)

    largest = _shared_bytes([made for made, _ in both])
    return min(map(sharing, sorted((largest, *sizes, {}), key=lambda size: -sum(size.values()))), key=total)


def _beside_each_other(both: Sequence[tuple[Planned, Planned]], sharing: frozenset[int]) -> tuple[Planned, ...]:
    """For each model the plan that shares, or the one alone. In several memories these are placed again as far as they
    must: those that share leave room for what all of them keep, the others take what is left."""
    kept = sum(kept_bytes(both[n][0].plan) for n in sharing)
    pools, found = both[0][0].plan.options.pools, dict[int, Planned]()
    for n in sorted(sharing):
        made = both[n][0]
        is_less = pools and kept > kept_bytes(made.plan)
        found[n] = in_shared_pools(made, {pools[-1].name: kept}) if is_less else made
    taken = Counter(_shared_bytes([*found.values()]))
    taken.update({pools[-1].name: kept} if pools else {})
    for n in sorted({*range(len(both))} - sharing):
        own = both[n][1]
        if any(taken[use.pool.name] + use.used_bytes > use.pool.capacity_bytes for use in own.plan.pools.uses):
            own = in_shared_pools(own, taken) if pools else own
        taken.update(_shared_bytes([own]))
        found[n] = in_own_arena(own)
    return tuple(found[n] for n in range(len(both)))


def alone(made: Planned, plan: Callable[[Options], Planned], asked: Options) -> Planned:
    """The best plan of a model that shares its arena with no other: that which shares it, where nothing lies beside.
    `plan`: plans the same model."""
    return plan(replace(asked, together="")) if kept_bytes(made.plan) else made


def _sources(models: Mapping[str, Model]) -> dict[str, Source]:
    if not isinstance(models, Mapping):
        raise PlanError("models need names: give a mapping such as {'ears': 'ears.tflite', 'eyes': 'eyes.tflite'}")
    return {name: source_of(model) for name, model in models.items()}


def wired(models: Mapping[str, Model], wires: Sequence[str]) -> Source:
    """Models of which one's output is another's input, as one that `plan`, `emit_c`, `verify` and all others take. They
    are planned as one graph: what is wired is a tensor like any other, and nothing copies it. Types, quantisation, and
    shapes but for sizes of 1, must be the same on both sides.

    >>> twice = diagmem.wired({"a": "zoo:autoencoder_int8", "b": "zoo:autoencoder_int8"}, ["a:0=b:0"])
    >>> diagmem.plan(twice).arena_bytes
    768
    """
    found = groups(_sources(models), [Wire.parsed(wire) for wire in wires])
    if len(found) != 1 or not isinstance(found[0], Wired):
        raise ModelError("the models are not one: wire them all to one another")
    return found[0]


def emit_c_together(
    models: Mapping[str, Model],
    *,
    name: str = "models",
    layout: FileLayout = "plain",
    options: Options | None = None,
    **changes: Any,
) -> EmittedC:
    """Several models, by the name that each gets in C, as one library: a header for each, one arena for all, of which
    one runs at a time, and every kernel once. `layout` is that of `emit_c`.

    >>> emitted = diagmem.emit_c_together({"kws": "zoo:kws_dscnn_int8", "vww": "zoo:vww_96_int8"}, name="ears_eyes")
    >>> emitted.arena_bytes
    27750
    """
    from diagmem.backends.c.program import Program
    from diagmem.backends.c.several import emit_several

    found = _together(_sources(models), options, changes)
    programs = {own: Program.of(made) for own, made in zip(models, found.plans, strict=True)}
    return EmittedC(emit_several(programs, name, layout), found.total_bytes, found.cost([*programs.values()]))


def _together(sources: Mapping[str, Source], options: Options | None, changes: Mapping[str, Any]) -> Together:
    usual = {"together": ONE_AT_A_TIME} if options is None or not options.together else {}
    asked = asked_for(options, {**usual, **changes})
    graphs = [source.runnable for source in sources.values()]
    plans = [planner.planned(graph, asked) for graph in graphs]
    made = zip(graphs, plans, strict=True)
    return Together.of(plans, [alone(shared, partial(planner.planned, graph), asked) for graph, shared in made])


def verify_together(
    models: Mapping[str, Model],
    *,
    inputs: int = 50,
    seed: int = 0,
    options: Options | None = None,
    **changes: Any,
) -> dict[str, CVerdict]:
    """Builds the library that `emit_c_together` writes, and runs its models by turns on the host, in memory that they
    share: each must compute bit for bit what it computes alone, its state must outlive the runs of the others, and so
    must its outputs where they are kept.

    >>> found = diagmem.verify_together({"a": "zoo:kws_dscnn_int8", "b": "zoo:autoencoder_int8"}, inputs=2)
    >>> [verdict.ok for verdict in found.values()]
    [True, True]
    """
    from diagmem.verification.host import run_by_turns
    from diagmem.verification.places import Verification

    sources = _sources(models)
    together = _together(sources, options, changes)
    plans = zip(sources.items(), together.plans, strict=True)
    found = {own: Verification(source, inputs, seed, made) for (own, source), made in plans}
    programs, samples = {o: v.program for o, v in found.items()}, {o: v.samples for o, v in found.items()}
    runs = run_by_turns(programs, samples, together.mode == KEEP_OUTPUTS, seed)
    return {own: verification.judged(runs[own]) for own, verification in found.items()}


@dataclass(frozen=True, slots=True)
class Failed:
    """A model that could not be planned, and why."""

    model: Model
    error: DiagmemError


def plan_many(
    models: Iterable[Model], executor: Executor | None = None, **options: Any
) -> Iterator[pipeline.Planned | Failed]:
    """Plans of many models, in their order, with the same options; on a process pool, or any executor that maps. A
    model that cannot be planned gives its error, and the others go on.

    >>> [made.arena_bytes for made in diagmem.plan_many(["zoo:vww_96_int8", "zoo:resnet8_int8"])]
    [27750, 10008]
    """
    return (executor.map if executor else map)(partial(_planned_or_failed, options=Options.of(options)), models)


def _planned_or_failed(model: Model, options: Options) -> pipeline.Planned | Failed:
    try:
        return planned(source_of(model), options)
    except DiagmemError as error:
        return Failed(model, error)


Record = dict[str, Any]
"""What is known of one model: a line of a sweep's file."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of a sweep: its bytes, so that a worker need not have its file, or the name of a built-in one."""

    label: str
    model: str | bytes

    @property
    def key(self) -> tuple[str, str]:
        """The same for the same model under the same name."""
        content = self.model if isinstance(self.model, bytes) else self.model.encode()
        return self.label, hashlib.sha256(content).hexdigest()[:16]


def swept(candidates: Iterable[Candidate], executor: Executor, at_once: int, options: Options) -> Iterator[Record]:
    """A record for each candidate, the first to be done first. No more than `at_once` are handed out at a time, so that
    candidates may be made, or read, as they are needed."""
    waiting: set[Future[Record]] = set()
    for candidate in candidates:
        waiting.add(executor.submit(record_of, candidate, options))
        if len(waiting) >= at_once:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def record_of(candidate: Candidate, options: Options) -> Record:
    """What a plan of the candidate takes, or why there is none."""
    label, digest = candidate.key
    known = {"model": label, "sha256": digest, "options": options_text(options)}
    begin = time.process_time()
    try:
        made = planned(source_of(candidate.model), options)
        seconds, cost = time.process_time() - begin, made.costs.on()
    except DiagmemError as error:
        return {**known, "error": str(error)}
    except Exception as error:  # One model that shows a bug must not end a sweep of thousands.
        return {**known, "error": one_line(f"a bug, please report it: {type(error).__name__}: {error}", 400)}
    return {
        **known,
        "arena_bytes": made.arena_bytes,
        "baseline_bytes": made.baseline_bytes,
        "lower_bound_bytes": made.lower_bound_bytes,
        "optimal": made.optimal,
        "is_bounded": made.plan.is_bounded,
        "weights_bytes": cost.flash.weights_bytes,
        "macs": cost.macs,
        "ops": len(made.model.ops),
        "seconds": round(seconds, 4),
    }


def options_text(options: Options) -> str:
    """What differs from the default options, as a line: two sweeps that ask for the same have the same."""
    values = {field.name: getattr(options, field.name) for field in fields(Options)}
    usual = Options()
    return json.dumps({name: value for name, value in values.items() if value != getattr(usual, name)}, default=str)


def keys_of(text: str, options: Options) -> set[tuple[str, str]]:
    """The candidates that a sweep's file has records of, for these options."""
    found, asked = set(), options_text(options)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            record = json.loads(line)
            key, made_with = (str(record["model"]), str(record["sha256"])), record["options"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DiagmemError(f"line {number} is no record of a sweep; give another file with --out") from error
        if made_with == asked:
            found.add(key)
    return found
