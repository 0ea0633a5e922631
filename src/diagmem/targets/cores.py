"""Processor cores: what each can do, and the names people type for it."""

from __future__ import annotations

from dataclasses import dataclass

from diagmem.model.errors import PlanError, one_line
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


def _riscv(isa: str, *aliases: str) -> Core:
    return Core(isa, "RISC-V", "" if "m" not in isa[4:] else "riscv32", has_fpu="f" in isa[4:], aliases=aliases)


CORES = (
    Core("cortex-m0", "Cortex-M0", "cortex-m0", aliases=("m0",)),
    Core("cortex-m0+", "Cortex-M0+", "cortex-m0", aliases=("m0+", "cortex-m0plus", "m0plus", "cortex-m0p")),
    Core("cortex-m23", "Cortex-M23", "cortex-m0", aliases=("m23",)),
    Core("cortex-m3", "Cortex-M3", "cortex-m3", aliases=("m3",)),
    Core("cortex-m4", "Cortex-M4", "cortex-m4", has_dsp=True, aliases=("m4",)),
    Core("cortex-m4f", "Cortex-M4F", "cortex-m4", has_dsp=True, has_fpu=True, aliases=("m4f",)),
    Core("cortex-m7", "Cortex-M7", "cortex-m7", has_dsp=True, has_fpu=True, aliases=("m7", "cortex-m7f", "m7f")),
    Core("cortex-m33", "Cortex-M33", "cortex-m33", has_dsp=True, has_fpu=True, aliases=("m33", "cortex-m33f", "m33f")),
    Core("cortex-m35p", "Cortex-M35P", "cortex-m33", has_dsp=True, has_fpu=True, aliases=("m35p",)),
    Core("cortex-m52", "Cortex-M52", "cortex-m55", has_dsp=True, has_mve=True, has_fpu=True, aliases=("m52",)),
    Core("cortex-m55", "Cortex-M55", "cortex-m55", has_dsp=True, has_mve=True, has_fpu=True, aliases=("m55",)),
    Core("cortex-m85", "Cortex-M85", "cortex-m55", has_dsp=True, has_mve=True, has_fpu=True, aliases=("m85",)),
    _riscv("rv32ec", "riscv32ec"),
    _riscv("rv32imc", "riscv32imc", "riscv32", "riscv", "risc-v"),
    _riscv("rv32imac", "riscv32imac"),
    _riscv("rv32imafc", "riscv32imafc"),
    Core("xtensa-lx6", "Xtensa LX6", has_fpu=True, aliases=("lx6",)),
    Core("xtensa-lx7", "Xtensa LX7", has_fpu=True, aliases=("lx7",)),
    Core("xtensa-lx7-soft-float", "Xtensa LX7"),
    Core("avr32", "AVR32"),
    Core(
        "avr",
        "AVR",
        refusal="int has 16 bits there and constants take RAM; kernels need 32 bits, and weights in flash",
    ),
)


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
