"""The same C on other compilers and machines: every kind of operation, and networks whole and by rows, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from diagmem import pipeline
from diagmem.backends.c import emit
from diagmem.backends.c.program import Program
from diagmem.verification.host import Machine, run_on_host
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import STANDARD
from tests.backends.c.everything import everything
from tests.backends.c.models import compiler, tiny, write
from tests.ops.drawing import CASES, names_of

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
INTEGER = (
    "-fsanitize=address,undefined,integer,float-cast-overflow",
    "-fno-sanitize-recover=all",
    f"-fsanitize-ignorelist={Path(__file__).with_name('wraps.txt')}",
)
SINGLE_PRECISION = ("-msse2", "-mfpmath=sse")
"""Numbers of 32 bits are computed in 32 bits, and not in 80 as the x87 does."""

BIG_ENDIAN = Machine("s390x-linux-gnu-gcc", ("-O1", "-static", "-fexcess-precision=fast"), ("qemu-s390x",), ">")

MACHINES = {
    "clang, integer sanitizers": Machine("clang", ("-O0", *INTEGER)),
    "gcc, at link time": Machine("gcc", ("-O3", "-flto")),
    "32 bits": Machine("gcc", ("-O0", "-m32", *SINGLE_PRECISION, *SANITIZERS)),
    "big-endian": BIG_ENDIAN,
}

MORE_MACHINES = {
    **MACHINES,
    "gcc, sanitizers": Machine("gcc", ("-O1", *SANITIZERS)),
    "clang, optimised": Machine("clang", ("-O3",)),
    "clang, integer sanitizers, optimised": Machine("clang", ("-O2", *INTEGER)),
    "32 bits, optimised": Machine("gcc", ("-O3", "-m32", *SINGLE_PRECISION)),
    "big-endian, optimised": Machine("s390x-linux-gnu-gcc", ("-O3", *BIG_ENDIAN.flags[1:]), BIG_ENDIAN.runner, ">"),
}


@cache
def reason_against(machine: Machine) -> str | None:
    """Why its programs cannot be built or run here."""
    for tool in (machine.compiler, *machine.runner[:1]):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    command = [machine.compiler, *machine.flags, "-x", "c", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input=b"int main(void) { return 0; }", capture_output=True, check=False)
    return f"{machine.compiler} {' '.join(machine.flags)} does not link here" if done.returncode else None


def failures(machine: Machine, program: Program) -> Iterator[str]:
    reason = reason_against(machine)
    if reason is not None:
        pytest.skip(reason)
    found = run_on_host(program, sample_inputs(program.graph, 2), machine).failure
    if found is not None:
        yield found


def test_every_kind_is_there() -> None:
    """But for those that remember, which cannot be run side by side."""
    expected = set().union(*(names_of(case) for case in CASES))
    signal = ("Delay", "FilterBankSpectralSubtraction", "Framer", "OverlapAdd", "Stacker")
    remembering = {"SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM", *(f"CUSTOM:Signal{name}" for name in signal)}
    assert expected - {op.kind for op in everything(1, 1).graph.ops} == remembering


@pytest.mark.parametrize("name", MACHINES)
def test_every_kind_on(name: str) -> None:
    """One node of each kind and type, and a network."""
    assert not list(failures(MACHINES[name], everything(1, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_MACHINES)
def test_many_of_every_kind_on(name: str) -> None:
    """Several nodes of each kind and type, and many networks."""
    assert not list(failures(MORE_MACHINES[name], everything(4, 12)))


def test_weights_as_a_binary_are_refused_on_big_endian_machines(tmp_path: Path) -> None:
    """The assembler takes bytes as they are, so it must not get as far as that; text is right everywhere."""
    write(emit(Program.of(pipeline.plan(tiny())), "model", most_text_bytes=0), tmp_path)
    command = [compiler(BIG_ENDIAN.compiler), "-c", "model_weights.S", "-I."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "the weights are little-endian" in done.stderr


THREADS = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "model.h"

typedef struct {
    void *arena;
    int value;
    unsigned char first[MODEL_OUTPUT_0_BYTES];
} job;

static void *work(void *given) {
    job *const mine = given;
    for (int run = 0; run < 20; ++run) {
        memset(model_input_in(mine->arena, 0), mine->value, MODEL_INPUT_0_BYTES);
        model_invoke_in(mine->arena);
        const void *const out = model_output_in(mine->arena, 0);
        if (run == 0) {
            memcpy(mine->first, out, MODEL_OUTPUT_0_BYTES);
        } else if (memcmp(mine->first, out, MODEL_OUTPUT_0_BYTES) != 0) {
            exit(1);
        }
    }
    return NULL;
}

int main(void) {
    job jobs[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i) {
        jobs[i].arena = aligned_alloc(64, (MODEL_ARENA_BYTES + 63) / 64 * 64);
        jobs[i].value = i ? 90 : -90;
        if (pthread_create(&threads[i], NULL, work, &jobs[i]) != 0) return 2;
    }
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    return memcmp(jobs[0].first, jobs[1].first, MODEL_OUTPUT_0_BYTES) == 0 ? 3 : 0;
}
"""


@pytest.mark.parametrize("schedule", ["best", "rows"])
def test_two_threads_in_two_arenas(schedule: str, tmp_path: Path) -> None:
    """They share nothing that is written: the thread sanitizer has no complaint, and each gets its own results."""
    write(emit(Program.of(pipeline.plan(tiny(), schedule=schedule)), "model"), tmp_path)
    (tmp_path / "main.c").write_text(THREADS)
    flags = ["-std=c11", *STANDARD[1:], "-O1", "-g", "-fsanitize=thread", "-pthread", "-DMODEL_NO_STATIC_ARENA"]
    sources = ["main.c", *sorted(path.name for path in tmp_path.glob("model*.c"))]
    subprocess.run([compiler("gcc"), *flags, *sources, "-lm"], cwd=tmp_path, check=True)
    # Address space layouts that are too random are not the sanitizer's.
    still = ["setarch", "--addr-no-randomize"] if shutil.which("setarch") else []
    done = subprocess.run([*still, "./a.out"], cwd=tmp_path, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("the thread sanitizer does not run here")
    assert "WARNING: ThreadSanitizer" not in done.stderr
    assert done.returncode == 0, done.stderr[-2000:]
