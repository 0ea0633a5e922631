"""Which inputs a resize reads, by TFLite's rounding (the tables were read off TFLite's reference kernels)."""

from __future__ import annotations

import pytest

from diagmem.model.graph import DType
from diagmem.ops.resizing.resize import Resize, sampled_axis

PLAIN, ALIGNED, CENTRED = Resize(), Resize(align_corners=True), Resize(half_pixel_centers=True)


@pytest.mark.parametrize(
    ("rule", "size_in", "size_out", "expected"),
    [
        (PLAIN, 3, 7, [0, 0, 0, 1, 1, 2, 2]),
        (ALIGNED, 3, 5, [0, 1, 1, 2, 2]),
        (CENTRED, 3, 7, [0, 0, 1, 1, 1, 2, 2]),
        (PLAIN, 7, 3, [0, 2, 4]),
        (ALIGNED, 7, 3, [0, 3, 6]),
        (CENTRED, 7, 3, [1, 3, 5]),
        (ALIGNED, 5, 1, [0]),
    ],
)
def test_nearest_neighbour(rule: Resize, size_in: int, size_out: int, expected: list[int]) -> None:
    """Places round down, or to the nearest with halves up where corners are aligned."""
    axis = sampled_axis("RESIZE_NEAREST_NEIGHBOR", rule, DType.INT8, size_in, size_out)
    assert axis.low.tolist() == axis.high.tolist() == expected


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8])
@pytest.mark.parametrize(
    ("rule", "low", "high"),
    [
        (PLAIN, [0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 2]),
        (CENTRED, [0, 0, 0, 1, 1, 2], [0, 1, 1, 2, 2, 2]),
    ],
)
def test_bilinear_doubles(rule: Resize, low: list[int], high: list[int], dtype: DType) -> None:
    """Both neighbours are read, kept inside the image."""
    axis = sampled_axis("RESIZE_BILINEAR", rule, dtype, 3, 6)
    assert (axis.low.tolist(), axis.high.tolist()) == (low, high)


def test_fixed_point_rounds_differently() -> None:
    """4/3 is not a whole number of 1024ths: the quantised kernel reads one column further back than the float one."""
    lows = [sampled_axis("RESIZE_BILINEAR", ALIGNED, dtype, 5, 4).low.tolist() for dtype in (DType.FLOAT32, DType.INT8)]
    assert lows == [[0, 1, 2, 4], [0, 1, 2, 3]]


def test_fused_arithmetic_is_covered() -> None:
    """1.5 * 2/6 - 0.5 is 0 when rounded after each operation, just above 0 when fused: both neighbours count."""
    axis = sampled_axis("RESIZE_BILINEAR", CENTRED, DType.FLOAT32, 2, 6)
    assert (int(axis.low[1]), int(axis.high[1])) == (0, 1)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT8])
def test_reads_stay_inside(dtype: DType) -> None:
    """However large the output, rounding never leads out of the image."""
    for rule in (PLAIN, ALIGNED, CENTRED):
        axis = sampled_axis("RESIZE_BILINEAR", rule, dtype, 4, 1500)
        assert axis.low.min() >= 0
        assert axis.high.max() <= 3
        assert (axis.low <= axis.high).all()
