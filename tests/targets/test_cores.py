"""Cores by the names people type, with what they can do."""

from __future__ import annotations

import pytest

from diagmem.kernels import CPUS
from diagmem.model.errors import PlanError
from diagmem.targets import CORES, core_named


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("m4", "cortex-m4"),
        ("Cortex-M4F", "cortex-m4f"),
        ("cortex_m0plus", "cortex-m0+"),
        ("m0", "cortex-m0"),
        ("riscv32", "rv32imc"),
        ("esp32-c3", "rv32imc"),
        ("esp32c6", "rv32imac"),
        ("NUCLEO-L4R5ZI", "cortex-m4f"),
        ("Raspberry Pi Pico 2", "cortex-m33"),
    ],
)
def test_names_as_people_type_them(asked: str, meant: str) -> None:
    """Those of a chip or a board too."""
    assert core_named(asked).key == meant


def test_no_name_means_two_cores() -> None:
    names = [name for core in CORES for name in (core.key, *core.aliases)]
    assert len(names) == len(set(names))
    assert all(core_named(name).key == core.key for core in CORES for name in (core.key, *core.aliases))


def test_kernels_are_those_that_the_core_can_run() -> None:
    """DSP kernels where there is DSP, MVE kernels where there is MVE, as the kernels see it."""
    for core in CORES:
        kernels = CPUS[core.cpu or "generic"]
        assert kernels.endswith("-mve") == core.has_mve, core.key
        assert kernels.endswith("-dsp") == (core.has_dsp and not core.has_mve), core.key


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("cortex-m5", "did you mean cortex-m"),
        ("cm4", "did you mean cortex-m4 or"),
        ("m44", "did you mean cortex-m4?"),
        ("qqqqqq", "known: cortex-m0, "),
    ],
)
def test_others_are_refused_with_the_nearest(asked: str, said: str) -> None:
    with pytest.raises(PlanError, match=r"core .* is not known") as raised:
        core_named(asked)
    assert said in str(raised.value)
