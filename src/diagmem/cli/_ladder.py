"""What `diagmem plan` says of the way from whole tensors to a plan: what each step is worth, and what was removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from diagmem.cli._shared import size_text

if TYPE_CHECKING:
    from diagmem.planning.planner import Planned
    from diagmem.transforms import Removal


def ladder_lines(made: Planned) -> Iterator[str]:
    """Each step beside the first, and what was removed."""
    first, *others = made.ladder
    yield f"ladder       {first.step + ', file order':<27}{first.arena_bytes:>10} B"
    for rung in others:
        saved = f"{100 * rung.arena_bytes / first.arena_bytes - 100:>6.1f} %" if first.arena_bytes else ""
        yield f"             {'+ ' + rung.step:<27}{rung.arena_bytes:>10} B  {saved}".rstrip()
    for removal in made.removals:
        less = f", {size_text(-removal.bytes_changed)} of tensors less" if removal.bytes_changed < 0 else ""
        count = f"{len(removal.ops)} op{'s' if len(removal.ops) != 1 else ''}"
        if removal.channels:
            count += f" and {removal.channels} channels"
        yield f"removed      {count} by {removal.transform}{less}"
        if removal.channels:
            yield from _work_lines(made, removal)


def _work_lines(made: Planned, removal: Removal) -> Iterator[str]:
    """What the channels that are gone were worth beside RAM."""
    from diagmem.transforms import macs_of, weights_of

    pairs = (
        ("flash", "B of constants", weights_of(made.model), removal.weights_changed),
        ("work", "multiply-accumulates", macs_of(made.model), removal.macs_changed),
    )
    for name, unit, before, change in pairs:
        part = f" ({100 * change / before:.1f} %)" if before else ""
        yield f"             {name}: {before} {unit} become {before + change}{part}"
