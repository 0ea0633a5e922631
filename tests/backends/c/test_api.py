"""What a firmware is offered beside bytes: alignment, places, checks, and numbers with a meaning."""

from __future__ import annotations

import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.kernels import sources, with_attribute
from diagmem.backends.c.literals import number
from diagmem.backends.c.program import Program
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Quantisation
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import COMPILERS, compiler, program, tiny, with_weights, write
from tests.backends.c.test_steps import SANITIZED, by_rows, tall


def ran(files: dict[str, bytes], main: str, where: Path, *flags: str) -> subprocess.CompletedProcess[bytes]:
    """A program of these files, built with every warning an error, and watched."""
    write({**files, "main.c": main.encode()}, where)
    parts = [path for path in files if path.endswith(".c")]
    command = [compiler("gcc"), *STANDARD, *WARNINGS, "-g", *SANITIZED, *flags, "main.c", *parts, "-lm", "-o", "main"]
    subprocess.run(command, cwd=where, check=True)
    return subprocess.run([where / "main"], capture_output=True, check=False)


ALIGNED = """
#include "tiny.h"

int main(void) {
    static unsigned char memory[TINY_ARENA_BYTES + 2 * TINY_ARENA_ALIGN];
    unsigned char *const arena = tiny_arena(memory + 1, sizeof memory - 1);
    tiny_invoke();
    if (arena == NULL || (uintptr_t)arena % TINY_ARENA_ALIGN != 0 || arena < memory + 1) return 1;
    if (arena + TINY_ARENA_BYTES > memory + sizeof memory) return 2;
    tiny_invoke_in(arena);
    const size_t least = (size_t)(arena - memory) + TINY_ARENA_BYTES;
    if (tiny_arena(memory, TINY_ARENA_BYTES - 1) != NULL || tiny_arena(NULL, least) != NULL) return 3;
    return tiny_arena(memory + 1, least - 1) == arena && tiny_arena(memory + 1, least - 2) == NULL ? 0 : 4;
}
"""


def test_a_model_without_outputs_is_refused() -> None:
    """ISO C knows no arrays of no elements, and nobody would see what it computes."""
    with pytest.raises(ModelError, match="the model has no outputs"):
        program(replace(tiny(), outputs=()))


@pytest.mark.parametrize("align", [1, 4, 8, 16, 64])
def test_arenas_start_where_offsets_ask_for_it(align: int, tmp_path: Path) -> None:
    """The model's own arena, and one found in other memory; memory that is too small by a byte is refused."""
    files = emit(program(tiny(), schedule="best", align=align))
    assert f"#define TINY_ARENA_ALIGN {align} ".encode() in files["tiny.h"]
    assert ran(files, ALIGNED, tmp_path, "-DTINY_DEBUG").returncode == 0


def test_alignment_is_read_from_a_plan() -> None:
    """Code of a plan that was written down asks for no less than code of the plan itself."""
    made = pipeline.plan(tiny(), align=32)
    assert emit(Program.running(pipeline.read_plan(tiny(), made.to_json()), tiny())) == emit(Program.of(made))


@pytest.mark.parametrize("name", COMPILERS)
def test_wide_alignment_compiles_everywhere(name: str, tmp_path: Path) -> None:
    write(emit(Program.of(pipeline.plan(tiny(), align=32))), tmp_path)
    for standard in ("-std=c99", "-std=c11"):
        subprocess.run([compiler(name), standard, *WARNINGS, "-c", "tiny.c"], cwd=tmp_path, check=True)


WRONG = """
#include "tiny.h"

int main(void) {
    static unsigned char memory[TINY_ARENA_BYTES + TINY_ARENA_ALIGN];
    unsigned char *const arena = tiny_arena(memory, sizeof memory);
    tiny_invoke_in(%s);
    return arena == NULL;
}
"""


@pytest.mark.parametrize(("arena", "is_caught"), [("arena", False), ("arena + 1", True), ("NULL", True)])
def test_debug_builds_check_arenas(arena: str, is_caught: bool, tmp_path: Path) -> None:
    files = emit(Program.of(pipeline.plan(tiny(), align=16)))
    done = ran(files, WRONG % arena, tmp_path, "-DTINY_DEBUG")
    assert done.returncode == (-signal.SIGABRT if is_caught else 0)
    assert (b"arena" in done.stderr) == is_caught


STARTED = """
#include <string.h>
#include "tall.h"

int main(void) {
    static unsigned char memory[TALL_ARENA_BYTES + TALL_ARENA_ALIGN], row[TALL_INPUT_0_ROW_BYTES];
    unsigned char *const arena = tall_arena(memory, sizeof memory);
    memset(memory, 0x%02x, sizeof memory);
    %s;
    for (int i = 0; i < 2 * TALL_INPUT_0_ROWS; ++i) {
        tall_push_row_in(arena, row);
    }
    return 0;
}
"""


@pytest.mark.parametrize("held", [0x01, 0xA5, 0xFF])
@pytest.mark.parametrize("is_started", [False, True])
def test_debug_builds_miss_the_start(held: int, is_started: bool, tmp_path: Path) -> None:
    """Whatever an arena holds that was never started, the first row is refused; one that was started takes all rows of
    several runs."""
    main = STARTED % (held, "tall_start_in(arena)" if is_started else "(void)0")
    done = ran(emit(by_rows(tall(), input_rows=True)), main, tmp_path, "-DTALL_DEBUG")
    assert done.returncode == (0 if is_started else -signal.SIGABRT)
    assert (b"is_started" in done.stderr) == (not is_started)


def test_a_firmware_checks_in_its_own_way(tmp_path: Path) -> None:
    """NAME_ASSERT takes the place of assert."""
    (tmp_path / "config.h").write_text("#include <stdlib.h>\n#define TINY_ASSERT(c) ((c) ? (void)0 : exit(42))\n")
    files = emit(Program.of(pipeline.plan(tiny(), align=16)))
    done = ran(files, WRONG % "arena + 1", tmp_path, "-DTINY_DEBUG", '-DTINY_CONFIG="config.h"')
    assert done.returncode == 42


CONFIG = """
#define TINY_WEIGHTS_ATTR __attribute__((section(".xip")))
#define TINY_ARENA_ATTR __attribute__((section(".ccm")))
#define TINY_CODE_ATTR __attribute__((section(".itcm")))
"""


@pytest.mark.parametrize("schedule", ["best", "rows"])
def test_a_firmware_says_where_things_lie(schedule: str, tmp_path: Path) -> None:
    """Every table, the arena, and every function that computes."""
    write({**emit(program(tiny(), schedule=schedule)), "config.h": CONFIG.encode()}, tmp_path)
    build = [compiler("gcc"), *STANDARD, "-Wall", "-Werror", "-fno-common", '-DTINY_CONFIG="config.h"', "-c"]
    subprocess.run([*build, "tiny.c", "tiny_weights.c"], cwd=tmp_path, check=True)
    places = _places(tmp_path / "tiny.o")
    offered = {"tiny_input", "tiny_input_in", "tiny_output", "tiny_output_in", "tiny_invoke", "tiny_arena"}
    assert {name: place for name, place in places.items() if place == ".text"}.keys() == offered
    assert places["static_arena"] == ".ccm"
    kernels = [place for name, place in places.items() if name.startswith("diagmem_")]
    assert {places["tiny_invoke_in"], *kernels} == {".itcm"}
    assert kernels
    weights = _places(tmp_path / "tiny_weights.o")
    assert weights
    assert set(weights.values()) == {".xip"}


def _places(path: Path) -> dict[str, str]:
    """Function or object -> its section."""
    listed = subprocess.run(["objdump", "-t", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^[0-9a-f]+ .{5}[ F O]\S* (\S+)\t[0-9a-f]+ (\S+)$", listed, re.MULTILINE)
    return {name: place for place, name in found if place.startswith(".") and not name.startswith(".")}


def test_every_kernel_says_where_it_lies() -> None:
    """No function of any kernel is without the word."""
    for name, text in sources().items():
        marked = with_attribute(text, "HERE")
        functions = re.findall(r"\bstatic (?!const\b)[^;={]*?\(", marked)
        assert not [found for found in functions if "HERE" not in found], name


MEANING = """
#include <stdio.h>
#include "%(name)s.h"

static const float given[] = {%(given)s};

int main(void) {
    float shown[%(macro)s_OUTPUT_0_ELEMS];
    const int32_t shape[] = %(macro)s_INPUT_0_SHAPE;
    const %(name)s_tensor *const in = %(name)s_inputs;
    if (!%(name)s_quantize_input(0, given) || %(name)s_quantize_input(1, given)) return 1;
    fwrite(%(name)s_input_0(), 1, %(macro)s_INPUT_0_BYTES, stdout);
    %(name)s_invoke();
    if (!%(name)s_dequantize_output(0, shown) || %(name)s_dequantize_output(-1, shown)) return 2;
    fwrite(%(name)s_output_0(), 1, %(macro)s_OUTPUT_0_BYTES, stdout);
    fwrite(shown, 1, sizeof shown, stdout);
    if (sizeof shape / sizeof *shape != %(macro)s_INPUT_0_RANK || in->rank != %(macro)s_INPUT_0_RANK) return 3;
    for (int i = 0; i < in->rank; ++i) {
        if (in->shape[i] != shape[i]) return 4;
    }
    return in->elems == %(macro)s_INPUT_0_ELEMS && in->bytes == %(macro)s_INPUT_0_BYTES ? 0 : 5;
}
"""


def copying(dtype: DType) -> Graph:
    """Its output is its input."""
    b = Builder("copy", dtype)
    graph = with_weights(b.graph(b.flatten(b.input(1, 16, 16, 1))))
    if dtype is not DType.INT16:
        return graph
    scaled = Quantisation((0.01,), (0,), 0)
    return replace(graph, tensors=tuple(replace(t, quantisation=scaled) for t in graph.tensors))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.INT16, DType.FLOAT32])
def test_numbers_with_a_meaning(dtype: DType, tmp_path: Path) -> None:
    """Floats go in and come out as numpy rounds them: halves away from zero, within the range; what is no number
    becomes the least."""
    graph = copying(dtype)
    tensor = graph.tensors[graph.inputs[0]]
    scale, zero = (
        (np.float32(tensor.quantisation.scales[0]), tensor.quantisation.zero_points[0])
        if (tensor.quantisation)
        else (np.float32(1), 0)
    )
    rng = np.random.default_rng(3)
    values = rng.normal(0, 60, 256).astype(np.float32) * scale
    values[:12] = scale * np.array([0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, 1e9, -1e9, 126.5, -126.5, 0, 1e38])
    texts = {"name": "copy", "macro": "COPY", "given": ", ".join(map(number, values))}
    done = ran(emit(program(graph), "copy"), MEANING % texts, tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    stored = np.frombuffer(done.stdout, dtype.numpy, 256)
    wanted = values if dtype is DType.FLOAT32 else _stored(values, scale, zero, dtype)
    assert np.array_equal(stored, wanted)
    shown = np.frombuffer(done.stdout, np.float32, 256, 2 * stored.nbytes)
    meant = values if dtype is DType.FLOAT32 else (stored.astype(np.float32) - np.float32(zero)) * scale
    assert np.array_equal(shown, meant)


def _stored(values: npt.NDArray[Any], scale: np.float32, zero: int, dtype: DType) -> npt.NDArray[Any]:
    steps = (values / scale).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(steps) + 0.5), steps) + zero
    limits = np.iinfo(dtype.numpy)
    return np.asarray(np.clip(rounded, limits.min, limits.max), dtype.numpy)


NO_NUMBER = """
#include <math.h>
#include "copy.h"

int main(void) {
    static float values[COPY_INPUT_0_ELEMS];
    values[0] = NAN, values[1] = INFINITY, values[2] = -INFINITY;
    copy_quantize_input(0, values);
    const int8_t *const in = copy_input_0();
    return in[0] == INT8_MIN && in[1] == INT8_MAX && in[2] == INT8_MIN ? 0 : 1;
}
"""


def test_what_is_no_number_becomes_the_least(tmp_path: Path) -> None:
    done = ran(emit(program(copying(DType.INT8)), "copy"), NO_NUMBER, tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")


ROW = """
#include <stdio.h>
#include "tall.h"

int main(void) {
    static const float given[TALL_INPUT_0_ROW_ELEMS] = {0.0f, 1000.0f, -1000.0f};
    TALL_INPUT_0_TYPE row[TALL_INPUT_0_ROW_ELEMS];
    if (!tall_quantize_row(given, row)) return 1;
    return row[0] == TALL_INPUT_0_ZERO_POINT && row[1] == 127 && row[2] == -128 ? 0 : 2;
}
"""


def test_rows_with_a_meaning(tmp_path: Path) -> None:
    """Where rows are handed over, a row of floats becomes one to hand over."""
    assert ran(emit(by_rows(tall(), input_rows=True)), ROW, tmp_path).returncode == 0
