"""Several models as one library: one arena, each kernel once, and every model as if it were alone."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

import diagmem
from diagmem.backends.c import LAYOUTS, FileLayout
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from diagmem.pipeline.several import Together
from diagmem.planning.memory.caller import kept_bytes
from diagmem.planning.options import TOGETHER
from diagmem.planning.plan import findings_of
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import compiler, tiny, write
from tests.profiles import some
from tests.streams import stream

Array = npt.NDArray[Any]


def models() -> dict[str, Graph]:
    """With state, some of it in an arena of its own, and without, of two types."""
    return {"ears": tiny(), "eyes": tiny(DType.FLOAT32, "eyes"), "memory": stream(7), "window": stream(51)}


class Built:
    """A library in this process."""

    def __init__(self, graphs: dict[str, Graph], directory: Path, **options: Any) -> None:
        self.graphs, self.emitted = graphs, diagmem.emit_c_together(graphs, name="all_of_them", **options)
        write(self.emitted.files, directory)
        sources = [path for path in self.emitted.files if path.endswith(".c")]
        command = [
            compiler("gcc"),
            *STANDARD,
            *WARNINGS,
            "-O1",
            "-fPIC",
            "-shared",
            *sources,
            "-lm",
            "-o",
            "library.so",
        ]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
        self.library = ctypes.CDLL(str(directory / "library.so"))
        for name in graphs:
            for side in ("input", "output"):
                getattr(self.library, f"{name}_{side}").restype = ctypes.c_void_p

    def run(self, name: str, inputs: Sequence[Array]) -> None:
        for number, values in enumerate(inputs):
            to = getattr(self.library, f"{name}_input")(number)
            ctypes.memmove(to, values.tobytes(), values.nbytes)
        getattr(self.library, f"{name}_invoke")()

    def outputs(self, name: str) -> list[bytes]:
        graph, found = self.graphs[name], []
        for number, index in enumerate(graph.outputs):
            at = getattr(self.library, f"{name}_output")(number)
            found.append(ctypes.string_at(at, graph.tensors[index].size_bytes))
        return found


def expected(graph: Graph, values: dict[int, Array]) -> list[bytes]:
    return [values[t].astype(graph.tensors[t].dtype.numpy).tobytes() for t in graph.outputs]


@pytest.mark.parametrize("options", [{}, {"together": "keep-outputs"}, {"schedule": "rows"}])
def test_models_do_not_harm_each_other(options: dict[str, Any], tmp_path: Path) -> None:
    """Run by turns in one arena, each gives what it gives alone, state included; where outputs are kept, they are still
    there when all others have run."""
    graphs = models()
    built = Built(graphs, tmp_path, **options)
    built.library.memory_reset()
    built.library.window_reset()
    samples = {name: sample_inputs(graph, 3) for name, graph in graphs.items()}
    wanted = {name: reference.runs(graph, samples[name]) for name, graph in graphs.items()}
    for number in range(3):
        now = {name: expected(graphs[name], next(values)) for name, values in wanted.items()}
        for name in graphs:
            built.run(name, samples[name][number])
            assert built.outputs(name) == now[name], name
        if options.get("together"):
            assert {name: built.outputs(name) for name in graphs} == now


def test_each_kernel_is_there_once(tmp_path: Path) -> None:
    """Two models with the same kernels have them in one file, each once."""
    both = Built({"ears": tiny(), "nose": tiny(name="nose")}, tmp_path)
    assert [path for path in both.emitted.files if path.endswith("_kernels.h")] == ["all_of_them_kernels.h"]
    one = diagmem.emit_c_together({"ears": tiny()}, name="all_of_them")
    kernels = both.emitted.files["all_of_them_kernels.h"]
    assert kernels == one.files["all_of_them_kernels.h"]
    assert kernels.count(b"diagmem_conv") > 1


def test_the_arena_is_that_of_the_largest() -> None:
    """And what outlives the others' runs lies beside it; all plans are safe."""
    graphs = models()
    for mode in ("run-one-at-a-time", "keep-outputs"):
        plans = [diagmem.plan(graph, together=mode) for graph in graphs.values()]
        found = Together.of(plans, [diagmem.plan(graph) for graph in graphs.values()])
        assert all(findings_of(made.plan) == [] for made in found.plans)
        assert found.apart_bytes is not None
        assert found.total_bytes < found.apart_bytes
        assert [made.model for made in found.own_arenas] == [graphs["window"]]
        assert found.kept_bytes >= sum(t.size_bytes for graph in graphs.values() for t in graph.variables)
        assert diagmem.emit_c_together(graphs, together=mode).arena_bytes == found.total_bytes
    assert found.kept_bytes >= sum(g.tensors[t].size_bytes for g in graphs.values() for t in g.outputs)


def test_the_choice_is_the_best() -> None:
    """Of all ways to give each model a part of the shared arena, or one of its own, none takes less."""
    for seed in range(some(25)):
        graphs = [stream(3 * seed + n, 2) for n in range(3)]
        shared = [diagmem.plan(graph, together=TOGETHER[seed % 2], effort="quick") for graph in graphs]
        alone = [diagmem.plan(graph, effort="quick") for graph in graphs]
        sizes = [
            (s.arena_bytes - kept_bytes(s.plan), kept_bytes(s.plan), a) for s, a in zip(shared, alone, strict=True)
        ]
        totals = [
            max([arena for (arena, _, _), own in zip(sizes, owns, strict=True) if not own], default=0)
            + sum(a.arena_bytes if own else kept for (_, kept, a), own in zip(sizes, owns, strict=True))
            for owns in product((False, True), repeat=len(graphs))
        ]
        found = Together.of(shared, alone)
        assert found.apart_bytes == sum(a.arena_bytes for a in alone)
        assert found.total_bytes == min(totals) <= found.apart_bytes
        assert all(findings_of(made.plan) == [] for made in found.plans)


def test_each_may_have_an_arena_of_its_own() -> None:
    """Where all state would take more beside a shared one. What is emitted takes what was planned."""
    graphs = {"window": stream(51), "other": stream(51)}
    plans = [diagmem.plan(graph, together="run-one-at-a-time") for graph in graphs.values()]
    found = Together.of(plans, [diagmem.plan(graph) for graph in graphs.values()])
    assert found.own_arenas == found.plans
    assert found.total_bytes == found.apart_bytes
    assert found.total_bytes < Together.of(plans, plans).total_bytes
    emitted = diagmem.emit_c_together(graphs)
    assert emitted.arena_bytes == found.total_bytes
    assert b"are the arena of window alone" in emitted.files["README.md"]
    assert all(verdict.ok for verdict in diagmem.verify_together(graphs, inputs=2).values())


def test_what_is_not_made_for_it_is_refused() -> None:
    with pytest.raises(PlanError, match="with the same `together`"):
        Together.of([diagmem.plan(tiny())], [diagmem.plan(tiny())])
    with pytest.raises(PlanError, match="use buffers=NAME=external"):
        diagmem.plan(tiny(), together="keep-outputs", external_io=True)
    with pytest.raises(PlanError, match="names of their own"):
        diagmem.emit_c_together({"a b": tiny(), "a_b": tiny()})


def test_memories_are_shared_too() -> None:
    """In each pool as much as any model needs; the last one has room for what all of them keep. Beside each other these
    models have no room."""
    graphs, pools = {"ears": tiny(), "nose": tiny(name="nose")}, ("fast:200", "slow:300:3")
    found = in_pools(graphs, "keep-outputs", pools)
    assert not found.own_arenas
    assert found.apart_bytes is None
    assert all(findings_of(made.plan) == [] for made in found.plans)
    assert 0 < found.pools_bytes["fast"] <= 200
    assert found.pools_bytes["slow"] < found.pools_bytes["slow"] + found.kept_bytes <= 300
    assert found.total_bytes == sum(found.pools_bytes.values()) + found.kept_bytes
    text = (
        diagmem.emit_c_together(graphs, name="all", together="keep-outputs", pools=pools).files["model_all.h"].decode()
    )
    for name, size in found.pools_bytes.items():
        assert f"#define MODEL_ALL_POOL_{name.upper()}_BYTES {size}\n" in text


def in_pools(graphs: dict[str, Graph], mode: str, pools: tuple[str, ...]) -> Together:
    how = {"pools": pools, "effort": "quick"}
    shared = [diagmem.plan(graph, together=mode, **how) for graph in graphs.values()]
    return Together.of(shared, [diagmem.plan(graph, **how) for graph in graphs.values()])


@pytest.mark.parametrize("mode", TOGETHER)
def test_in_memories_too_it_is_never_more_than_apart(mode: str) -> None:
    """Models that share memories take no more than their plans alone, if these fit beside each other; and no memory
    holds more than it has, whoever lies there."""
    fast, slow = 300, 4000
    for seed in range(some(12)):
        graphs = {f"net{n}": stream(3 * seed + n, 2) for n in range(3)}
        found = in_pools(graphs, mode, (f"fast:{fast}", f"slow:{slow}:3"))
        assert found.apart_bytes is not None
        assert found.missing_bytes == 0
        assert found.total_bytes <= found.apart_bytes
        assert all(findings_of(made.plan) == [] for made in found.plans)
        own = [use for made in found.own_arenas for use in made.plan.pools.uses]
        in_fast = sum(use.used_bytes for use in own if use.pool.name == "fast")
        assert in_fast + found.pools_bytes.get("fast", 0) <= fast
        assert found.total_bytes - in_fast - found.pools_bytes.get("fast", 0) <= slow


def test_arenas_of_their_own_in_memories() -> None:
    """Emitted, a model has arrays of its own in memories, and run by turns it computes what it computes alone."""
    mode, pools = "run-one-at-a-time", ("fast:300", "slow:1400:3")
    found = in_pools(models(), mode, pools)
    assert [made.model for made in found.own_arenas] == [models()["window"]]
    emitted = diagmem.emit_c_together(models(), together=mode, pools=pools)
    assert emitted.arena_bytes == found.total_bytes
    assert b"28 bytes of fast are the arena of window alone" in emitted.files["README.md"]
    verdicts = diagmem.verify_together(models(), inputs=3, together=mode, pools=pools)
    assert all(verdict.ok for verdict in verdicts.values())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_source_compiles_where_it_lies(layout: FileLayout, tmp_path: Path) -> None:
    """In each layout, with the headers of all models where programs look for them."""
    files = diagmem.emit_c_together(models(), name="senses", layout=layout, cpu="cortex-m4").files
    where = {"where.h": b'#define SENSES_ARENA_ATTR __attribute__((section(".ccm")))\n'}
    write({**files, **where}, tmp_path)
    sources = [path for path in files if path.endswith(".c")]
    own = ["-I.", '-DSENSES_CONFIG="where.h"', "-DSENSES_DEBUG", "-DEARS_DEBUG"]
    command = [compiler("gcc"), *STANDARD, *WARNINGS, *own, "-Iinclude", "-fsyntax-only", *sources]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert b"one C99 library" in files["README.md"]
    for name in ("senses", *models()):
        assert sum(path.rpartition("/")[2] == f"{name}.h" for path in files) == 1
    if layout == "arduino":
        assert all(f"{name}_invoke();" in files["examples/senses_run/senses_run.ino"].decode() for name in models())


def test_cmake_builds_it(tmp_path: Path) -> None:
    """A program links the library, and runs two of its models."""
    cmake = compiler("cmake")
    write(diagmem.emit_c_together(models(), name="senses", layout="cmake").files, tmp_path / "senses")
    lists = "project(app C)\nadd_subdirectory(../senses senses)\nadd_executable(app_run main.c)\n"
    linked = "target_link_libraries(app_run senses::senses)\n"
    main = '#include "senses.h"\nint main(void) { ears_invoke(); eyes_invoke(); return ears_output_0() == 0; }\n'
    texts = {
        "CMakeLists.txt": f"cmake_minimum_required(VERSION 3.13)\n{lists}{linked}",
        "main.c": main,
    }
    write({path: text.encode() for path, text in texts.items()}, tmp_path / "app")
    for command in (["-S", "app", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug"], ["--build", "build"]):
        subprocess.run([cmake, *command], cwd=tmp_path, check=True, capture_output=True)
    subprocess.run([str(tmp_path / "build" / "app_run")], check=True)
