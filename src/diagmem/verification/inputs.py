"""Inputs to compare two ways of running a model on: edges of the range, noise, and pictures of many scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import DType, Graph, Shape, Tensor

CELLS = (2, 4, 8, 16, 2**31)
"""Structure of every size: networks answer plain noise almost always the same way, which would hide a difference."""


def restarts(graph: Graph, count: int) -> tuple[int, ...]:
    """Before which of so many runs a model that has state is set back to its first: half-way."""
    return (count // 2,) if graph.variables and count > 1 else ()


def sample_inputs(graph: Graph, count: int, seed: int = 0) -> list[list[npt.NDArray[Any]]]:
    """`count` runs, for each the values of each graph input: five edge cases first, then random ones. The same for the
    same seed, and the first ones the same for any count."""
    rng = np.random.default_rng(seed)
    tensors = [graph.tensors[i] for i in graph.inputs]
    return [[_values(t, n, rng) for t in tensors] for n in range(count)]


def _values(tensor: Tensor, n: int, rng: np.random.Generator) -> npt.NDArray[Any]:
    dtype, shape = tensor.dtype, tensor.shape
    low, high = _range(dtype)
    zero = tensor.quantisation.zero_points[0] if tensor.quantisation else 0
    ramp = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    edges = (
        np.full(shape, low),
        np.full(shape, high),
        np.full(shape, zero),
        low + ramp % (high - low + 1),
        low + ramp % 2,
    )
    if n < len(edges):
        return np.asarray(edges[n]).astype(dtype.numpy)
    unit = _picture(shape, rng) if n % 2 else rng.uniform(0, 1, shape)
    values = low + unit * (high - low)
    return np.asarray(values if dtype is DType.FLOAT32 else np.rint(values)).astype(dtype.numpy)


def _range(dtype: DType) -> tuple[int, int]:
    if dtype in (DType.INT8, DType.UINT8, DType.INT16):
        return int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
    # Wider integers are indices or lengths, which kernels do not check: stay where they are sure to be sound.
    return (-4, 4) if dtype is DType.FLOAT32 else (0, 1)


def _picture(shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Values in [0, 1]: noise on grids of several widths, of random contrast about a random mean."""
    total = np.zeros(shape)
    for cells in CELLS:
        grid = rng.uniform(-1, 1, tuple(min(size, cells) for size in shape))
        total += rng.uniform() * grid[np.ix_(*(np.arange(s) * g // s for s, g in zip(shape, grid.shape, strict=True)))]
    largest = float(np.abs(total).max(initial=1e-9))
    contrast, mean = rng.uniform(0, 0.5), rng.uniform(0, 1)
    return np.asarray(np.clip(mean + contrast * total / largest, 0, 1))
