"""Several models that share an arena."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagmem.pipeline.given import Model, source_of
from diagmem.planning import planner
from diagmem.planning.options import ONE_AT_A_TIME, Options

if TYPE_CHECKING:
    from diagmem.pipeline import EmittedC


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
