"""Options of a plan: what each may be, alone and beside others, as the Python API and the command line both say."""

from __future__ import annotations

from typing import Any

import pytest

from diagmem.model.errors import PlanError
from diagmem.model.pools import Pool
from diagmem.planning.options import OF_A_PLAN, Options


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("align", "x", "a whole number"),
        ("align", True, "a whole number"),
        ("cores", "2", "a whole number"),
        ("cores", 2.0, "a whole number"),
        ("recompute", "2", "a number"),
        ("time_limit", "x", "a number"),
        ("overlap", 1, "true or false"),
        ("target", 5, "a text"),
        ("target", None, "a text"),
        ("kernels", 7, "a text"),
        ("pools", 5, "a list of texts"),
        ("pools", [("a", 1024)], "a list of texts"),
        ("pools", {"a": "1K"}, "a list of texts"),
        ("buffers", {"input": 1}, "a list of texts"),
        ("skip", 3, "a list of texts"),
        ("skip", b"all", "a list of texts"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any, what: str) -> None:
    """In one line, with the option and what it should be."""
    with pytest.raises(PlanError) as raised:
        Options(**{name: value})
    assert str(raised.value) == f"{name}: {value!r} is not {what}"


def test_every_type_is_known() -> None:
    """None of the options is of another type than those that are looked at: a value of no type is refused."""
    for name in OF_A_PLAN:
        with pytest.raises(PlanError, match=f"^{name}: <object"):
            Options(**{name: object()})  # type: ignore[arg-type]


def test_a_text_is_a_list_of_one() -> None:
    """Not one of letters."""
    assert Options(pools="a:1K").pools == Options(pools=("a:1K",)).pools == (Pool("a", 1024, 1.0),)  # type: ignore[arg-type]
    assert Options(buffers="input=keep").keep == ("input",)
    assert Options(skip="all").skip == ("all",)
    assert Options(recompute=2, time_limit=None, align=None).recompute == 2


def test_a_target_has_a_core_already() -> None:
    """Another one is refused, with the way out; the same one, or kernels for any core, may be named."""
    with pytest.raises(PlanError) as raised:
        Options(target="RP2040", cpu="m4")
    assert str(raised.value) == "cpu m4 (Cortex-M4) is not the core of RP2040 (Cortex-M0+): leave out cpu"
    with pytest.raises(PlanError, match="is not the core of ESP32"):
        Options(target="ESP32", cpu="esp32-s3")
    for cpu in ("m4", "cortex-m4f", "NUCLEO-L4R5ZI"):
        asked = Options(target="NUCLEO-L4R5ZI", cpu=cpu)
        assert (asked.core, asked.kernels) == (Options(target="NUCLEO-L4R5ZI").core, "diagmem-dsp")
    generic = Options(target="NUCLEO-L4R5ZI", cpu="generic")
    assert (generic.core, generic.kernels) == (None, "diagmem")
    assert generic.chip == Options(target="NUCLEO-L4R5ZI").chip
