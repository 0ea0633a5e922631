"""The next frame is written while this one runs, and harms nothing."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diagmem
from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph
from diagmem.planning.plan import findings_of
from diagmem.verification import reference
from diagmem.verification.reference import sample_inputs
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import compiler, tiny, write

HOOK = "extern void (*hook)(void);\n#define NET_AFTER_OP(op) hook()\n"

WAYS: list[dict[str, Any]] = [
    {"schedule": "best"},
    {"schedule": "rows"},
    {"pools": ("fast:1K", "slow:4K:3")},
    {"input_align": 32},
    {"together": "run-one-at-a-time"},
]


def model() -> Graph:
    return tiny()


def name_of(graph: Graph) -> str:
    return graph.tensors[graph.inputs[0]].name


class Net:
    """A model in this process, whose C code calls back after each op."""

    def __init__(self, graph: Graph, directory: Path, **options: Any) -> None:
        emitted = diagmem.emit_c(graph, name="net", buffers={name_of(graph): "double"}, **options)
        write(emitted.files, directory)
        (directory / "hook.h").write_text(HOOK)
        (directory / "hook.c").write_text("void (*hook)(void);\n")
        sources = [*(path for path in emitted.files if path.endswith(".c")), "hook.c"]
        command = [compiler("gcc"), *STANDARD, *WARNINGS, "-include", "hook.h", "-O1", "-fPIC", "-shared"]
        subprocess.run([*command, *sources, "-lm", "-o", "net.so"], cwd=directory, check=True, capture_output=True)
        self.library = ctypes.CDLL(str(directory / "net.so"))
        for name in ("input", "output", "next_input"):
            getattr(self.library, f"net_{name}").restype = ctypes.c_void_p
        self.files = emitted.files

    def after_each_op(self, function: Callable[[], None]) -> None:
        self.called = ctypes.CFUNCTYPE(None)(function)
        ctypes.c_void_p.in_dll(self.library, "hook").value = ctypes.cast(self.called, ctypes.c_void_p).value


@pytest.mark.parametrize("options", WAYS)
def test_the_next_frame_comes_during_the_run(options: dict[str, Any], tmp_path: Path) -> None:
    """After each op some more bytes of the next frame are written, over what was there: each run computes what its own
    frame gives, and the next one finds its frame whole."""
    graph = model()
    net = Net(graph, tmp_path, **options)
    frames = [sample[0].tobytes() for sample in sample_inputs(graph, 6)]
    size, place = len(frames[0]), net.library.net_next_input(0)
    assert b"#define NET_INPUTS 2\n" in net.files["net.h"]
    assert net.library.net_next_input(1) is None
    ctypes.memmove(place, frames[0], size)
    for number, values in enumerate(reference.runs(graph, sample_inputs(graph, 6))):
        coming, written = frames[(number + 1) % len(frames)], 0
        net.library.net_take_next()
        ctypes.memset(place, 0x5A, size)

        def more(coming: bytes = coming) -> None:
            nonlocal written
            end = min(size, written + size // 4)
            ctypes.memmove(place + written, coming[written:end], end - written)
            written = end

        net.after_each_op(more)
        net.library.net_invoke()
        assert written == size, "the whole frame came while the model ran"
        output = ctypes.string_at(net.library.net_output(0), graph.tensors[graph.outputs[0]].size_bytes)
        assert output == values[graph.outputs[0]].astype(graph.tensors[graph.outputs[0]].dtype.numpy).tobytes()
        assert ctypes.string_at(place, size) == coming


@pytest.mark.parametrize("options", WAYS)
def test_what_it_costs(options: dict[str, Any]) -> None:
    """As many bytes as the frame has, which the plan says; it is safe, also when it is read again."""
    graph = model()
    name, size = name_of(graph), graph.tensors[graph.inputs[0]].size_bytes
    without, made = diagmem.plan(graph, **options), diagmem.plan(graph, buffers={name: "double"}, **options)
    assert made.plan.next_frames_bytes == size
    if options == {"schedule": "best"}:
        assert made.arena_bytes == without.arena_bytes + size
        assert made.optimal
    found = made.to_json()
    assert (found["double_buffer"], found["double_buffer_bytes"]) == ([name], size)
    assert findings_of(made.plan) == []
    assert diagmem.check(graph, found) == []


def test_a_plan_that_uses_the_place_is_not_safe() -> None:
    """The validator knows that the next frame may come at any moment: what else lies there is a finding."""
    graph = model()
    found = diagmem.plan(graph, buffers={name_of(graph): "double"}).to_json()
    rows = {row["name"]: row for row in found["tensors"]}
    following = rows[f"{name_of(graph)} (next frame)"]
    other = max((row for row in found["tensors"] if row is not following), key=lambda row: row["first_step"])
    following["offset"] = other["offset"]
    assert diagmem.check(graph, found) != []


def test_it_is_verified() -> None:
    """As any other plan is: by its JSON, and beside another model."""
    compiler("gcc")
    graph = model()
    options: dict[str, Any] = {"buffers": {name_of(graph): "double"}, "schedule": "rows"}
    found = diagmem.plan(graph, **options).to_json()
    assert all(verdict.ok for verdict in diagmem.verify(graph, inputs=2, plan=found))
    both = {"ears": graph, "nose": tiny(name="nose")}
    assert all(verdict.ok for verdict in diagmem.verify_together(both, inputs=2, **options).values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"external_io": True}, "keep two buffers"),
        ({"schedule": "rows", "input_rows": True}, "a streamed input cannot be double-buffered"),
        ({"kernels": "tflm-reference"}, "needs diagmem's own kernels"),
    ],
)
def test_where_there_is_none(options: dict[str, Any], said: str) -> None:
    graph = model()
    with pytest.raises(PlanError, match=said):
        diagmem.plan(graph, buffers={name_of(graph): "double"}, **options)
    with pytest.raises(PlanError, match="keep two buffers"):
        diagmem.plan(graph, buffers=[f"{name_of(graph)}={how}" for how in ("double", "external")])
    with pytest.raises(PlanError, match="is not an input"):
        diagmem.plan(graph, buffers={graph.tensors[graph.outputs[0]].name: "double"})
