"""What `diagmem plan` says of several models that share an arena."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from diagmem.cli._shared import size_text

if TYPE_CHECKING:
    from diagmem.planning.planner import Planned
    from diagmem.planning.together import Together


class _Planned(Protocol):
    @property
    def made(self) -> Planned: ...


def _together(results: Sequence[_Planned]) -> Together | None:
    from diagmem.planning.together import Together

    if not results or not results[0].made.plan.options.together:
        return None
    return Together.of([result.made for result in results])


def together_lines(results: Sequence[_Planned]) -> Iterator[str]:
    """Nothing, unless that was asked for."""
    found = _together(results)
    if found is not None:
        kept = f", and {size_text(found.kept_bytes)} beside it live from run to run" if found.kept_bytes else ""
        yield f"together     one arena of {size_text(found.shared_bytes)} serves all, one at a time{kept}"
        apart = size_text(found.apart_bytes)
        yield f"             {size_text(found.total_bytes)} in all; apart they would take {apart}"


def together_json(results: Sequence[_Planned]) -> dict[str, Any]:
    found = _together(results)
    if found is None:
        return {}
    return {
        "together": {
            "mode": found.plans[0].plan.options.together,
            "shared_bytes": found.shared_bytes,
            "kept_bytes": found.kept_bytes,
            "total_bytes": found.total_bytes,
            "apart_bytes": found.apart_bytes,
        }
    }
