"""Processor cores: what each can do, and the names people type for it."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.errors import PlanError, one_line
from diagmem.model.tables import table, tuples
from diagmem.targets.names import did_you_mean, plain


@dataclass(frozen=True, slots=True)
class Core:
    """`key`: as chips.toml calls it. `name`: as it is shown. `cpu`: as `--cpu` and `--on` call it; empty where nothing
    is built for it but generic C. `has_dsp`: Arm's DSP extension. `has_mve`: Helium. `has_fpu`: float32 in hardware.
    `refusal`: why no kernels run there."""

    key: str
    name: str
    cpu: str = ""
    has_dsp: bool = False
    has_mve: bool = False
    has_fpu: bool = False
    aliases: tuple[str, ...] = ()
    refusal: str | None = None


CORES = tuple(Core(key, **about) for key, about in tuples(table(__package__, "cores")).items())


def core_named(name: str) -> Core:
    """The core of that name, or of the chip or board of that name: `m4`, `cortex-m4f`, `esp32-c3`."""
    found = {plain(one): core for core in CORES for one in (core.key, *core.aliases)}.get(plain(name))
    if found is not None:
        return found
    from diagmem.targets.chips import boards, chips, find_chip

    chip = find_chip(name)
    if chip is not None:
        return chip.core
    known = [*(core.key for core in CORES), *(chip.name for chip in chips()), *(board.name for board in boards())]
    hint = did_you_mean(name, known, f"known: {', '.join(core.key for core in CORES if core.cpu)}")
    raise PlanError(f"core '{one_line(name)}' is not known; {hint}")
