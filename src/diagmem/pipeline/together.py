"""Several models: that share an arena, or of which one's output is another's input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagmem.frontends.source import Source
from diagmem.frontends.wired import Wire, Wired, groups
from diagmem.model.errors import ModelError
from diagmem.pipeline.given import Model, source_of
from diagmem.planning import planner
from diagmem.planning.options import ONE_AT_A_TIME, Options

if TYPE_CHECKING:
    from diagmem.pipeline import EmittedC


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
    models: Mapping[str, Model], *, name: str = "models", together: str = ONE_AT_A_TIME, **options: Any
) -> EmittedC:
    """Several models, by the name that each gets in C, as one library: a header for each, one arena for all, of which
    one runs at a time, and every kernel once.

    >>> emitted = diagmem.emit_c_together({"kws": "zoo:kws_dscnn_int8", "vww": "zoo:vww_96_int8"}, name="ears_eyes")
    >>> emitted.arena_bytes
    36864
    """
    from diagmem.backends.c.program import Program
    from diagmem.backends.c.several import emit_several
    from diagmem.pipeline import EmittedC
    from diagmem.planning.together import Together

    asked = Options.of({**options, "together": together})
    plans = {own: planner.planned(source_of(model).runnable, asked) for own, model in models.items()}
    programs = {own: Program.of(made) for own, made in plans.items()}
    return EmittedC(emit_several(programs, name), Together.of(list(plans.values())).total_bytes)
