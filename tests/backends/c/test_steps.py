"""C code that runs row by row: what it offers to a caller, and what the compiler says to it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.backends.c.repeats import repeats_bytes
from diagmem.backends.c.steps import sequence_bytes, step_repeats
from diagmem.backends.json import from_json, to_json
from diagmem.frontends.source import Source
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph
from diagmem.verification import reference
from diagmem.verification.host import run_on_host, run_on_threads
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import COMPILERS, compiler, with_weights, write
from tests.row_networks import Images, with_values

SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def tall(dtype: DType = DType.INT8, name: str = "tall") -> Graph:
    """Convolutions of which few rows need to exist at once, and a classifier."""
    b = Builder(name, dtype)
    x = b.conv(b.conv(b.input(1, 24, 6, 4), 8, 3), 8, 3, 2)
    x = b.average_pool(b.add(x, b.relu(x)), (12, 3), 1)
    return with_weights(b.graph(b.softmax(b.fully_connected(b.flatten(b.mean(x, True)), 3))))


def by_rows(graph: Graph, input_rows: bool = False) -> Program:
    program = Program.of(pipeline.plan(graph, schedule="rows", input_rows=input_rows))
    assert program.schedule.has_turns
    return program


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("input_rows", [False, True])
def test_compilers_have_no_complaint(name: str, input_rows: bool, tmp_path: Path) -> None:
    """C99 with every warning an error, with and without the model's own arena."""
    cc = compiler(name)
    write(emit(by_rows(tall(), input_rows)), tmp_path)
    for chosen in ((), ("-DTALL_NO_STATIC_ARENA",), ("-DTALL_DEBUG",)):
        command = [cc, *STANDARD, *WARNINGS, "-O2", *chosen, "-c", "tall.c", "tall_values.c"]
        subprocess.run(command, cwd=tmp_path, check=True)


def test_the_same_every_time() -> None:
    assert emit(by_rows(tall(), True)) == emit(by_rows(tall(), True))


def test_what_a_caller_is_told() -> None:
    """Header and README speak of rows where the caller hands them over, and of how rows lie."""
    whole, streamed = (
        {path: text.decode() for path, text in emit(by_rows(tall(), input_rows)).items() if path != "tall_weights.bin"}
        for input_rows in (False, True)
    )
    assert "tall_invoke(void)" in whole["tall.h"]
    assert "tall_push_row" not in whole["tall.h"]
    assert "#define TALL_INPUT_0_ROWS 24\n#define TALL_INPUT_0_ROW_BYTES 24\n" in streamed["tall.h"]
    assert "tall_invoke" not in "".join(streamed.values())
    assert "tall_push_row(…)" in streamed["README.md"]
    assert "Call `tall_start_in(arena)` before its first row" in streamed["README.md"]
    assert "tall_start_in is mandatory" in streamed["tall.h"]
    for files in (whole, streamed):
        assert "It runs row by row" in files["README.md"]


def test_steps_and_tables_are_small() -> None:
    """Less than 2 KB for MobileNet."""
    program = by_rows(Source("zoo:mobilenet_v1_0.25_128_int8").runnable, input_rows=True)
    rows = [len(storage.offsets) for storage in program.storage.values()]
    assert sequence_bytes(program) <= len(program.steps) + 2 * sum(rows) < 2048


def test_rows_in_any_number_of_arenas(tmp_path: Path) -> None:
    """Two models, row by row, in the model's own arena and in two others by turns; runs follow each other without
    more ado; one is given up half way."""
    cc = compiler("gcc")
    graphs = [tall(), tall(DType.FLOAT32, "real")]
    inputs = [sample_inputs(graph, 2, seed=7) for graph in graphs]
    for graph in graphs:
        write(emit(by_rows(graph, input_rows=True)), tmp_path)
    (tmp_path / "main.c").write_text(_MAIN)
    sources = ["main.c", "tall.c", "tall_weights.c", "real.c", "real_weights.c"]
    subprocess.run([cc, *STANDARD, "-g", *SANITIZED, *sources, "-lm", "-o", "main"], cwd=tmp_path, check=True)
    sent = b"".join(values.tobytes() for runs in inputs for (values,) in runs)
    done = subprocess.run([tmp_path / "main"], input=sent, capture_output=True, check=True)
    wanted = [
        reference.run(graph, values)[graph.outputs[0]].tobytes()
        for graph, runs in zip(graphs, inputs, strict=True)
        for values in (*runs, *runs)
    ]
    assert done.stdout == b"".join(wanted)
    assert np.unique(np.array([hash(text) for text in wanted])).size > 2


_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tall.h"
#include "real.h"

#define TEST(name, NAME)                                                                                     \\
    static void test_##name(void) {                                                                          \\
        static unsigned char images[2][NAME##_INPUT_0_BYTES];                                                \\
        void *arenas[2];                                                                                     \\
        if (fread(images, sizeof images, 1, stdin) != 1) exit(1);                                            \\
        for (int i = 0; i < 2; ++i) {                                                                        \\
            arenas[i] = memset(malloc(NAME##_ARENA_BYTES), 0xA5, NAME##_ARENA_BYTES);                        \\
            name##_start_in(arenas[i]);                                                                      \\
        }                                                                                                    \\
        for (int row = 0; row < NAME##_INPUT_0_ROWS; ++row)                                                  \\
            for (int i = 0; i < 2; ++i)                                                                      \\
                if (name##_push_row_in(arenas[i], images[i] + row * NAME##_INPUT_0_ROW_BYTES) !=             \\
                    (row == NAME##_INPUT_0_ROWS - 1)) exit(2);                                               \\
        for (int i = 0; i < 2; ++i) {                                                                        \\
            fwrite(name##_output_in(arenas[i], 0), NAME##_OUTPUT_0_BYTES, 1, stdout);                        \\
            if (name##_output_in(arenas[i], 1) != NULL) exit(3);                                             \\
            free(arenas[i]);                                                                                 \\
        }                                                                                                    \\
        for (int row = 0; row < NAME##_INPUT_0_ROWS / 2; ++row) name##_push_row(images[1]);                  \\
        name##_start();                                                                                      \\
        for (int i = 0; i < 2; ++i) {                                                                        \\
            int row = 0;                                                                                     \\
            while (!name##_push_row(images[i] + row * NAME##_INPUT_0_ROW_BYTES)) ++row;                      \\
            if (row != NAME##_INPUT_0_ROWS - 1) exit(4);                                                     \\
            fwrite(name##_output(0), NAME##_OUTPUT_0_BYTES, 1, stdout);                                      \\
        }                                                                                                    \\
    }

TEST(tall, TALL)
TEST(real, REAL)

int main(void) {
    test_tall();
    test_real();
    return 0;
}
"""


def test_json_makes_the_same_program() -> None:
    """`diagmem plan --json` holds all that the code is made from."""
    graph = tall()
    for input_rows in (False, True):
        made = pipeline.plan(graph, schedule="rows", input_rows=input_rows)
        assert emit(Program.running(from_json(to_json(made), graph), graph)) == emit(Program.of(made))


def long_line(samples: int) -> Graph:
    """A regular network over samples in time."""
    b = Builder("line", DType.INT8)
    x = b.input(1, samples, 1, 3)
    for channels in (4, 6):
        x = b.max_pool(b.conv(x, channels, (5, 1)), (2, 1), 2)
    return with_weights(b.graph(b.fully_connected(b.mean(x, True), 2)))


@pytest.mark.parametrize("input_rows", [pytest.param(False, marks=pytest.mark.deep), True])
def test_steps_that_repeat_themselves_take_little_flash(input_rows: bool) -> None:
    """A hundred bytes or two, however long the line; and the code runs them all."""
    program = by_rows(long_line(400), input_rows)
    found = step_repeats(program)
    assert found is not None
    assert repeats_bytes(found, 1) < 200 < 1000 < len(program.steps)
    assert sequence_bytes(program) < 800 < 2 * 2 * 400
    assert run_on_host(program, sample_inputs(program.graph, 3)).failure is None


def test_tables_in_pieces_are_those_of_the_plan() -> None:
    """Written out, the pieces of each tensor are where its rows lie; where tables are short there are none."""
    program = by_rows(long_line(300), input_rows=True)
    assert len(program.in_pieces) >= 3
    for tensor, found in program.in_pieces.items():
        written = [piece.offset(row) for piece in found for row in range(piece.rows)]
        assert tuple(written) == program.storage[tensor].offsets
    assert not by_rows(tall(), input_rows=True).in_pieces


def deconvolved_line() -> Graph:
    """Rows that are found by those that reach them, and a residual, over a long line."""
    b = Images("wide", DType.INT8)
    x = b.conv(b.input(1, 150, 1, 3), 4, (3, 1))
    y = b.transposed(b.max_pool(x, (2, 1), (2, 1)), (1, 150, 1, 4), 3, 2)
    return with_values(b.graph(b.fully_connected(b.mean(b.add(x, y), True), 2)), 0)


@pytest.mark.parametrize("options", [{}, {"pools": ("a:200", "b:4K")}], ids=["arena", "pools"])
def test_pieces_are_read_by_every_kind_of_window(options: dict[str, Any]) -> None:
    """Bit for bit, in one arena and in several, whoever looks for a row."""
    program = Program.of(pipeline.plan(deconvolved_line(), schedule="rows", input_rows=True, **options))
    assert len(program.in_pieces) >= 3
    assert run_on_host(program, sample_inputs(program.graph, 3)).failure is None


def test_pieces_are_read_by_several_cores() -> None:
    """Also where they share rows, and defer some of them."""
    program = Program.of(pipeline.plan(deconvolved_line(), schedule="rows", input_rows=True, cores=2))
    assert len(program.in_pieces) >= 3
    assert program.multicore is not None
    assert any(split.turns for split in program.multicore.splits)
    assert run_on_threads(program, sample_inputs(program.graph, 2), 2).failure is None
