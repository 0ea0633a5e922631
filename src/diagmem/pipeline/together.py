"""Several models: that share an arena, or of which one's output is another's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagmem.frontends.source import Source
from diagmem.frontends.wired import Wire, Wired, groups
from diagmem.model.errors import ModelError
from diagmem.pipeline.given import Model, for_cpu, source_of
from diagmem.planning import planner
from diagmem.planning.options import KEEP_OUTPUTS, ONE_AT_A_TIME, Options

if TYPE_CHECKING:
    from diagmem.backends.c import FileLayout
    from diagmem.pipeline import EmittedC
    from diagmem.verification.places import CVerdict


def wired(models: Mapping[str, Model], wires: Sequence[str]) -> Source:
    """Models of which one's output is another's input, as one that `plan`, `emit_c`, `verify` and all others take. They
    are planned as one graph: what is wired is a tensor like any other, and nothing copies it. Types, quantisation, and
    shapes but for sizes of 1, must be the same on both sides.

    >>> twice = diagmem.wired({"a": "zoo:autoencoder_int8", "b": "zoo:autoencoder_int8"}, ["a:0=b:0"])
    >>> diagmem.plan(twice).arena_bytes
    768
    """
    found = groups({name: source_of(model) for name, model in models.items()}, [Wire.parsed(wire) for wire in wires])
    if len(found) != 1 or not isinstance(found[0], Wired):
        raise ModelError("the models are not one: wire them all to one another")
    return found[0]


def emit_c_together(
    models: Mapping[str, Model],
    *,
    name: str = "models",
    together: str = ONE_AT_A_TIME,
    layout: FileLayout = "plain",
    cpu: str | None = None,
    **options: Any,
) -> EmittedC:
    """Several models, by the name that each gets in C, as one library: a header for each, one arena for all, of which
    one runs at a time, and every kernel once. `layout` and `cpu` are those of `emit_c`.

    >>> emitted = diagmem.emit_c_together({"kws": "zoo:kws_dscnn_int8", "vww": "zoo:vww_96_int8"}, name="ears_eyes")
    >>> emitted.arena_bytes
    36864
    """
    from diagmem.backends.c.program import Program
    from diagmem.backends.c.several import emit_several
    from diagmem.pipeline import EmittedC
    from diagmem.planning.memory.caller import Together

    plans = _planned({own: source_of(model) for own, model in models.items()}, together, for_cpu(cpu, options))
    programs = {own: Program.of(made) for own, made in plans.items()}
    return EmittedC(emit_several(programs, name, layout), Together.of(list(plans.values())).total_bytes)


def _planned(sources: Mapping[str, Source], together: str, options: Mapping[str, Any]) -> dict[str, planner.Planned]:
    """The plans of models that share an arena, in pools that have room for what all of them keep."""
    from diagmem.planning.memory.caller import beside_each_other

    asked = Options.of({**options, "together": together})
    plans = [planner.planned(source.runnable, asked) for source in sources.values()]
    return dict(zip(sources, beside_each_other(plans), strict=True))


def verify_together(
    models: Mapping[str, Model],
    *,
    together: str = ONE_AT_A_TIME,
    inputs: int = 50,
    seed: int = 0,
    cpu: str | None = None,
    **options: Any,
) -> dict[str, CVerdict]:
    """Builds the library that `emit_c_together` writes, and runs its models by turns on the host, in memory that they
    share: each must compute bit for bit what it computes alone, its state must outlive the runs of the others, and so
    must its outputs where they are kept.

    >>> found = diagmem.verify_together({"a": "zoo:kws_dscnn_int8", "b": "zoo:autoencoder_int8"}, inputs=2)
    >>> [verdict.ok for verdict in found.values()]
    [True, True]
    """
    from diagmem.verification.by_turns import run_by_turns
    from diagmem.verification.places import Verification

    sources = {own: source_of(model) for own, model in models.items()}
    plans = _planned(sources, together, for_cpu(cpu, options))
    found = {own: Verification(source, inputs, seed, plans[own]) for own, source in sources.items()}
    programs, samples = {o: v.program for o, v in found.items()}, {o: v.samples for o, v in found.items()}
    runs = run_by_turns(programs, samples, together == KEEP_OUTPUTS, seed)
    return {own: verification.judged(runs[own]) for own, verification in found.items()}
