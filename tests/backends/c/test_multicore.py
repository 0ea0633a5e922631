"""C for several cores: what is said of it compiles, and nothing of it is there unless it is asked for."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.frontends.source import Source
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import compiler

DOCUMENT = Path(__file__).parents[3] / "docs" / "multicore.md"

SDK = {
    "pico/multicore.h": "void multicore_launch_core1(void (*entry)(void));\nvoid read_camera(void *);\n",
    "pico/stdlib.h": "void show(const void *);\n",
    "freertos.h": """\
#include "model.h"
typedef void *TaskHandle_t;
enum { pdTRUE = 1 };
#define portMAX_DELAY 0xffffffffu
uint32_t ulTaskNotifyTake(int, uint32_t);
int xTaskNotifyGive(TaskHandle_t);
extern unsigned char arena;
extern model_team team;
void run(TaskHandle_t);
""",
}
"""As much of what the examples need as a compiler wants to see."""


@cache
def files(cores: int) -> dict[str, bytes]:
    made = pipeline.plan(Source("zoo:kws_dscnn_int8").runnable, cores=cores)
    return emit(Program.of(made), "model")


def compiled(directory: Path, source: str, *options: str, by: str = "gcc") -> str:
    """What the compiler says."""
    for name, content in files(2).items():
        (directory / name).write_bytes(content)
    for name, text in SDK.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    command = [compiler(by), "-fsyntax-only", "-I.", *STANDARD, *options, source]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False).stderr


def test_without_cores_there_is_nothing_of_them() -> None:
    assert not any(b"invoke_on" in text or b"_team" in text for text in files(1).values())
    assert b"model_invoke_on" in files(2)["model.h"]


@pytest.mark.parametrize("by", ["gcc", "clang"])
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-DMODEL_SHARE(total,core,cores)=((core)==0?0:(total))",),
        ("-DMODEL_BARRIER(team,core,cores)=((void)(team),(void)(core),(void)(cores))",),
        ("-DMODEL_RELAX()=((void)0)", "-DMODEL_WAKE()=((void)0)", "-DMODEL_DEBUG"),
    ],
)
def test_it_compiles_with_hooks_and_without(tmp_path: Path, by: str, options: tuple[str, ...]) -> None:
    assert compiled(tmp_path, "model.c", *WARNINGS, *options, by=by) == ""


def test_other_compilers_must_say_what_a_fence_is(tmp_path: Path) -> None:
    """Plain loads and stores are not enough for a compiler that may move them."""
    assert "#error" in compiled(tmp_path, "model.c", "-U__GNUC__")
    assert "#error" not in compiled(tmp_path, "model.c", "-U__GNUC__", "-DMODEL_FENCE()=__sync_synchronize()")


def test_the_examples_compile(tmp_path: Path) -> None:
    """Those for the pico-sdk and for FreeRTOS, against what they call."""
    blocks = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    pico, freertos = (next(block for block in blocks if word in block) for word in ("pico/", "ulTask"))
    (tmp_path / "pico.c").write_text(pico)
    (tmp_path / "free.c").write_text(f'#include "freertos.h"\n{freertos}\nvoid *const kept = (void *)second_core;\n')
    assert compiled(tmp_path, "pico.c", "-Wall", "-Werror") == ""
    assert compiled(tmp_path, "free.c", "-Wall", "-Werror") == ""
