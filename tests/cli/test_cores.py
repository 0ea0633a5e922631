"""Cores by name: the options offer what there are kernels and machines for."""

from __future__ import annotations

from diagmem.cli import _commands
from diagmem.kernels import CPUS
from diagmem.verification import cortex_m


def test_options_offer_all_cores() -> None:
    """A core that a command offers has kernels of its own and an emulated machine, and the other way round."""
    assert {*_commands.CORES, "generic"} == set(CPUS)
    assert {*_commands.CORES, _commands.TWO_CORES} == set(cortex_m.CORES)
