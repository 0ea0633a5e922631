"""The files that `emit` makes: complete, the same every time, and accepted by compilers with every warning an error."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem import __version__, pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.literals import number
from diagmem.backends.c.program import Program
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import ModelError, PlanError
from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.verification import reference
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import COMPILERS, compiler, program, tiny, with_weights, write

GOLDEN = Path(__file__).parent / "golden"
REWRITE = "DIAGMEM_REWRITE_GOLDEN"


@pytest.mark.parametrize("schedule", ["best", "rows"])
@pytest.mark.parametrize("name", ["tiny.h", "tiny.c", "tiny_values.c", "README.md", "CMakeLists.txt"])
def test_golden_text(name: str, schedule: str) -> None:
    """What people read has not changed unawares. Set DIAGMEM_REWRITE_GOLDEN=1 to take the new text for right."""
    files = emit(program(tiny(), schedule=schedule), model_sha256="0" * 64)
    text, kept = files[name].decode().replace(__version__, "VERSION"), GOLDEN / schedule / name
    if os.environ.get(REWRITE):
        kept.write_text(text)
    assert text == kept.read_text()


def test_the_same_every_time() -> None:
    """Bytes depend on the model alone."""
    assert emit(program(tiny())) == emit(program(tiny()))


def test_only_kernels_that_are_used() -> None:
    b = Builder("pointwise", DType.INT8)
    graph = with_weights(b.graph(b.conv(b.input(1, 4, 4, 4), 8, 1)))
    kernels = emit(program(graph))["pointwise_kernels.h"]
    assert b"diagmem_conv_2d_s8(" in kernels
    assert not [kernel for kernel in (b"softmax", b"pool", b"depthwise", b"f32") if kernel in kernels]


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("dtype", [DType.INT8, DType.FLOAT32])
def test_compilers_have_no_complaint(name: str, dtype: DType, tmp_path: Path) -> None:
    """C99 with every warning an error, with and without the model's own arena, and with checks."""
    cc = compiler(name)
    write(emit(program(tiny(dtype))), tmp_path)
    for chosen in ((), ("-DTINY_NO_STATIC_ARENA",), ("-DTINY_DEBUG",)):
        flags = [cc, *STANDARD, *WARNINGS, "-O2", *chosen, "-c", "tiny.c", "tiny_weights.c", "tiny_values.c"]
        subprocess.run(flags, cwd=tmp_path, check=True)


def test_a_model_that_does_nothing_compiles(tmp_path: Path) -> None:
    """A single reshape, which stays in place: no function has a use for its arena but the accessors."""
    b = Builder("still", DType.INT8)
    graph = with_weights(b.graph(b.flatten(b.input(1, 2, 2, 3))))
    write(emit(program(graph), "still"), tmp_path)
    subprocess.run([compiler("gcc"), *STANDARD, *WARNINGS, "-c", "still.c"], cwd=tmp_path, check=True)


def test_cpp_programs_may_include_the_header(tmp_path: Path) -> None:
    cxx = compiler("g++")
    write(emit(program(tiny())), tmp_path)
    (tmp_path / "main.cpp").write_text('#include "tiny.h"\nint main() { tiny_invoke(); return tiny_input(1) != 0; }\n')
    subprocess.run([compiler("gcc"), "-std=c99", "-c", "tiny.c", "tiny_weights.c"], cwd=tmp_path, check=True)
    subprocess.run([cxx, "-Wall", "-Werror", "main.cpp", "tiny.o", "tiny_weights.o"], cwd=tmp_path, check=True)
    subprocess.run(["./a.out"], cwd=tmp_path, check=True)


MAIN = """
#include <stdio.h>
#include <string.h>
#include "first.h"
#include "second.h"

static const int8_t first_in[] = {%(first_in)s}, first_out[] = {%(first_out)s};
static const int8_t other_in[] = {%(other_in)s}, other_out[] = {%(other_out)s};
static const float second_in[] = {%(second_in)s}, second_out[] = {%(second_out)s};

int main(void) {
    static unsigned char a[FIRST_ARENA_BYTES], b[FIRST_ARENA_BYTES];
    memcpy(first_input_in(a, 0), first_in, sizeof first_in);
    memcpy(first_input_in(b, 0), other_in, sizeof other_in);
    memcpy(second_input(0), second_in, sizeof second_in);
    first_invoke_in(b);
    second_invoke();
    first_invoke_in(a);
    if (memcmp(first_output_in(a, 0), first_out, sizeof first_out) != 0) return 1;
    if (memcmp(first_output_in(b, 0), other_out, sizeof other_out) != 0) return 2;
    if (memcmp(second_output(0), second_out, sizeof second_out) != 0) return 3;
    return first_output(1) == NULL && second_input(-1) == NULL ? 0 : 4;
}
"""


@pytest.mark.parametrize("most_text_bytes", [2**20, 0], ids=["text", "binary"])
def test_two_models_and_several_arenas_in_one_program(most_text_bytes: int, tmp_path: Path) -> None:
    """Kernels of both models go by the same names, and runs in different arenas do not disturb each other. Weights may
    be text or a binary that the assembler includes."""
    first, second = tiny(DType.INT8, "first"), tiny(DType.FLOAT32, "second")
    rng = np.random.default_rng(0)
    values: dict[str, npt.NDArray[Any]] = {
        "first": rng.integers(-128, 128, (1, 8, 8, 3)).astype(np.int8),
        "other": rng.integers(-128, 128, (1, 8, 8, 3)).astype(np.int8),
        "second": rng.normal(0, 1, (1, 8, 8, 3)).astype(np.float32),
    }
    texts = {}
    for key, graph in (("first", first), ("other", first), ("second", second)):
        output = reference.run(graph, [values[key]])[graph.outputs[0]]
        for side, array in (("in", values[key]), ("out", output)):
            texts[f"{key}_{side}"] = ", ".join(map(number, array.reshape(-1)))
    for graph in (first, second):
        write(emit(program(graph), most_text_bytes=most_text_bytes), tmp_path)
    (tmp_path / "main.c").write_text(MAIN % texts)
    weights = [path.name for path in tmp_path.glob("*_weights.[cS]")]
    assert all(name.endswith(".S" if most_text_bytes == 0 else ".c") for name in weights)
    command = [compiler("gcc"), *STANDARD, "-O2", "-I.", "main.c", "first.c", "second.c", *weights]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run(["./a.out"], cwd=tmp_path, check=False).returncode == 0


def test_ops_that_cannot_run_are_listed_all_at_once() -> None:
    """Before anything is written, each with its reason, and what to do."""
    b = Builder("strange", DType.INT8)
    graph = with_weights(b.graph(b.conv(b.input(1, 4, 4, 2), 2, 1)))
    last, count = graph.outputs[0], len(graph.tensors)
    extra = tuple(Tensor(count + i, f"odd {i}", (1, 4, 4, 2), DType.INT8) for i in range(2))
    ops = (*graph.ops, Op(1, "CUSTOM:odd", (last,), (count,)), Op(2, "BUILTIN_999", (count,), (count + 1,)))
    strange = replace(graph, tensors=(*graph.tensors, *extra), ops=ops, outputs=(count + 1,))
    with pytest.raises(ModelError, match=r"2 of 3 ops.*op 1 'odd 0'.*op 2 'odd 1'.*diagmem emit tflm"):
        emit(program(strange))


def test_weights_that_the_file_lacks_are_named() -> None:
    with pytest.raises(ModelError, match=r"values of .* are not in the model"):
        emit(program(_without_weights()))


def _without_weights() -> Graph:
    b = Builder("bare", DType.INT8)
    graph = b.graph(b.conv(b.input(1, 4, 4, 2), 2, 1))
    scaled = with_weights(graph)
    return replace(scaled, tensors=tuple(replace(t, data=None) for t in scaled.tensors))


def test_operands_that_the_file_lacks_are_named() -> None:
    """Also where no kernel looks at them before it runs."""
    shapes = {"given": (2, 3), "lacking": (), "made": (2, 3)}
    types = {"given": DType.INT32, "lacking": DType.INT32, "made": DType.BOOL}
    tensors = [
        Tensor(n, name, shape, types[name], is_constant=n == 1) for n, (name, shape) in enumerate(shapes.items())
    ]
    graph = Graph("comparison", tuple(tensors), (Op(0, "LESS_EQUAL", (0, 1), (2,)),), (0,), (2,))
    with pytest.raises(ModelError, match=r"LESS_EQUAL.*the values of 'lacking' are not in the model"):
        emit(program(graph))


@pytest.mark.parametrize(
    ("options", "reason"), [({"kernels": "tflm-reference"}, "kernels"), ({"external_io": True}, "io")]
)
def test_plans_that_c_cannot_follow(options: dict[str, object], reason: str) -> None:
    plan = pipeline.plan(tiny(), **options)
    with pytest.raises(PlanError, match=reason):
        Program.of(plan)


def test_hostile_names_stay_inside_their_comments(tmp_path: Path) -> None:
    """A name that closes a comment, holds a trigraph, or is an endless line."""
    graph = tiny()
    evil = ("*/ #error /*", "??/", "\n#error", "\\", "é" * 3, "x" * 1000, "\u202e")
    named = tuple(replace(t, name=evil[t.index % len(evil)]) for t in graph.tensors)
    write(emit(program(replace(graph, name="*/ evil\n", tensors=named))), tmp_path)
    flags = [compiler("gcc"), *STANDARD, *WARNINGS, "-fsyntax-only", "evil.c", "evil_weights.c"]
    subprocess.run(flags, cwd=tmp_path, check=True)


def test_real_numbers_lie_on_their_boundaries() -> None:
    """An arena of floats asks for alignment, and every offset keeps it."""
    made = program(tiny(DType.FLOAT32))
    assert b"#define TINY_ARENA_ALIGN 4 " in emit(made)["tiny.h"]
    assert all(offset % 4 == 0 for offset in made.offsets.values())


def test_types_that_c_has_none_for_are_refused() -> None:
    """Of what a caller hands over, though no kernel reads it."""
    graph = tiny()
    more = Tensor(len(graph.tensors), "halves", (4,), DType.FLOAT16)
    graph = replace(graph, tensors=(*graph.tensors, more), inputs=(*graph.inputs, more.index))
    with pytest.raises(ModelError, match="'halves' has float16 elements, for which C has no type"):
        emit(Program.of(pipeline.plan(graph)))
