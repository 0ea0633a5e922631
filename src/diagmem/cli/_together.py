"""What is said of several models that share an arena: by `diagmem plan`, and by `diagmem verify`, which runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from diagmem.cli._shared import size_text, working
from diagmem.model.errors import PlanError

if TYPE_CHECKING:
    from diagmem.cli._fit import Limits
    from diagmem.frontends.source import Source
    from diagmem.planning.memory.caller import Together
    from diagmem.planning.planner import Planned
    from diagmem.verification.places import Verdict


class _Planned(Protocol):
    @property
    def made(self) -> Planned: ...


def _together(results: Sequence[_Planned]) -> Together | None:
    if not results or not results[0].made.plan.options.together:
        return None
    from diagmem.planning.memory.caller import Together

    return Together.of([result.made for result in results])


def missing_together(results: Sequence[_Planned], limits: Limits) -> int:
    """By how many bytes what all models take is too much, where that is asked. Each memory for itself is judged plan by
    plan."""
    found = _together(results)
    limit = limits.budget if results and results[0].made.plan.options.pools else limits.ram_bytes
    return 0 if found is None or limit is None else max(0, found.total_bytes - limit)


def together_lines(results: Sequence[_Planned], limits: Limits) -> Iterator[str]:
    """Nothing, unless that was asked for."""
    found = _together(results)
    if found is not None:
        kept = f", and {size_text(found.kept_bytes)} beside it live from run to run" if found.kept_bytes else ""
        if len(found.pools_bytes) > 1:
            parts = ", ".join(f"{name} {size} B" for name, size in found.pools_bytes.items())
            yield f"together     {size_text(found.shared_bytes)} serve all, one at a time: {parts}{kept}"
        else:
            yield f"together     one arena of {size_text(found.shared_bytes)} serves all, one at a time{kept}"
        apart = size_text(found.apart_bytes)
        yield f"             {size_text(found.total_bytes)} in all; apart they would take {apart}"
        missing = missing_together(results, limits)
        if missing:
            yield f"too large    all together: short by {size_text(missing)}"


def together_json(results: Sequence[_Planned], limits: Limits) -> dict[str, Any]:
    found = _together(results)
    if found is None:
        return {}
    return {
        "together": {
            "mode": found.plans[0].plan.options.together,
            "shared_bytes": found.shared_bytes,
            **({"pools_bytes": dict(found.pools_bytes)} if len(found.pools_bytes) > 1 else {}),
            "kept_bytes": found.kept_bytes,
            "total_bytes": found.total_bytes,
            "apart_bytes": found.apart_bytes,
            **({} if limits.ram_bytes is None else {"missing_bytes": missing_together(results, limits)}),
        }
    }


def by_name(sources: Sequence[Source]) -> dict[str, Source]:
    """Models by the names that they get in C."""
    found = {source.name.replace(".", "_").replace("+", "_"): source for source in sources}
    if len(found) < len(sources):
        raise PlanError("two models have the same name: rename a file, for it names their functions")
    return found


def run_by_turns(
    sources: Sequence[Source], inputs: int, seed: int, cpu: str | None, options: dict[str, Any]
) -> list[tuple[str, Verdict]]:
    """The verdict on each model, by its name."""
    from diagmem import pipeline

    with working("host: planning, building and running"):
        found = pipeline.verify_together(by_name(sources), inputs=inputs, seed=seed, cpu=cpu, **options)
    return list(found.items())
