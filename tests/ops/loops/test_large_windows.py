"""Of windows with too many reads to list, only the last read of each pixel is listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from diagmem.kernels import DIAGMEM
from diagmem.model.graph import DType, Graph, Window1D
from diagmem.ops import kinds
from diagmem.ops.convolution.transpose_conv import GatheredAxis
from diagmem.ops.loops import pixels
from diagmem.ops.loops.pixels import PixelAxis
from diagmem.ops.loops.windowed import PixelKind
from diagmem.ops.resizing.resize import SampledAxis
from tests.networks import Net
from tests.ops.cases import nodes_of
from tests.ops.test_contract import accesses_stay_inside_and_fill_the_outputs, separation_is_exact
from tests.profiles import examples

WINDOWED = {name: kind for name, kind in kinds().items() if isinstance(kind, PixelKind)}


@st.composite
def windows(draw: st.DrawFn) -> Window1D:
    """Windows with any stride and dilation, that may hang over both ends."""
    size, kernel, stride, dilation = (draw(st.integers(1, most)) for most in (20, 7, 6, 5))
    extent = (kernel - 1) * dilation + 1
    before, after = (draw(st.integers(0, 8)) for _ in range(2))
    after += max(0, extent - size - before - after)
    return Window1D.explicit(size, kernel, stride, dilation, before, after)


def samples() -> st.SearchStrategy[SampledAxis]:
    pairs = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=20).map(sorted)
    return pairs.map(lambda p: SampledAxis(np.array([low for low, _ in p]), np.array([low + more for low, more in p])))


@examples(500)
@given(axis=st.one_of(windows(), windows().map(GatheredAxis), samples()))
def test_the_last_reads_are_the_last_of_all(axis: PixelAxis) -> None:
    """For each input that is read, the largest output of all pairs; and the pairs are counted right."""
    outputs, inputs = axis.taps()
    assert axis.pairs == len(outputs)
    latest: dict[int, int] = {}
    for made, read in zip(outputs.tolist(), inputs.tolist(), strict=True):
        latest[read] = max(made, latest.get(read, 0))
    last, read = axis.last_taps()
    assert dict(zip(read.tolist(), last.tolist(), strict=True)) == latest
    assert len(read) == len(latest)


@pytest.mark.parametrize("name", WINDOWED)
@examples(50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_separations_stay_exact(name: str, data: st.DataObject, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is listed is enough for ops that run whole on one core; it is not for several cores or for rows, and these
    are not offered."""
    node = data.draw(nodes_of(WINDOWED[name], name))
    monkeypatch.setattr(pixels, "MOST_LISTED", -1)
    accesses_stay_inside_and_fill_the_outputs(node)
    separation_is_exact(node)
    assert not kinds()[name].has_row_kernel(node)
    assert not DIAGMEM.cuts(node)


def pool(kernel: int, *shape: int) -> Graph:
    net = Net()
    return net.graph(net.pool(net.input(1, *shape), kernel))


def point(*shape: int) -> Graph:
    net = Net()
    return net.graph(net.conv(net.input(1, *shape), shape[-1], kernel=1))


def sums(*shape: int) -> Graph:
    net = Net(DType.FLOAT32)
    return net.graph(net.relu(net.mean(net.pool(net.input(1, *shape), 100))))


LARGE = {
    "16 MB through a 1x1 convolution": (lambda: point(4096, 4096, 1), 4096 * 4096),
    "16 MB, two channels": (lambda: point(4096, 2048, 2), 4096 * 4096),
    "500x500 taps over 1 MB": (lambda: pool(500, 1024, 1024, 1), None),
    "100x100 taps of 32 channels": (lambda: pool(100, 256, 256, 32), None),
    "sums behind a large pool": (lambda: sums(512, 512, 4), None),
    "256 MB, whose touches are not looked at": (lambda: point(16384, 16384, 1), 2 * 16384 * 16384),
}
"""Graphs, and how many bytes they take, where that is plain to see."""

MEASURED = """
import re, sys
from pathlib import Path
from diagmem.planning.options import Options
from diagmem.planning.planner import planned
from tests.ops.loops.test_large_windows import LARGE
made = planned(LARGE[sys.argv[1]][0](), Options())
print(made.arena_bytes, re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deep if name.startswith("16 MB") else ()) for name in LARGE]
)
def test_large_tensors_and_windows_are_planned_in_a_gigabyte(name: str) -> None:
    """However many bytes and taps a few hundred bytes of a file ask for."""
    ran = subprocess.run(
        [sys.executable, "-c", MEASURED, name],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    arena_bytes, peak_kb = map(int, ran.stdout.split())
    assert peak_kb < 1_000_000
    assert LARGE[name][1] in (None, arena_bytes)
