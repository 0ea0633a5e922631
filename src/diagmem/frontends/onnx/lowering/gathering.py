"""Elements taken from, or put at, places that are known when the model is read; and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.branches import Parts
from diagmem.frontends.onnx.folding import MOST_ELEMS
from diagmem.frontends.onnx.importer import Importer
from diagmem.frontends.onnx.layout import Stored, stored_as
from diagmem.frontends.onnx.lowering.moving import placed
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.ops.reductions.cumsum import CumSum

Array = npt.NDArray[Any]


def _places(im: Importer, node: OnnxNode, shape: Sequence[int], indices: Array) -> Array:
    """The number of each element, or row of elements, that a tuple of indices (the last axis) names."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 1 <= depth <= len(shape) or math.prod(shape) > MOST_ELEMS:
        raise im.refuse(node, "its indices do not fit; the file is damaged")
    sizes = np.array(shape[:depth], np.int64)
    if np.any((indices < -sizes) | (indices >= sizes)):
        raise im.refuse(node, f"indices out of range of {list(shape)}; the file is damaged")
    found: Array = np.ravel_multi_index(tuple(np.moveaxis(indices % sizes, -1, 0)), tuple(shape[:depth]))
    return found


def scatter_nd(im: Importer, node: OnnxNode) -> None:
    """Rows of the data and of the updates below each other; then of each place the row that is there last."""
    if im.attribute(node, "reduction", "none") != "none":
        raise im.refuse(node, "reductions are not supported")
    shape, indices = im.input(node).shape, im.array(node, 1).astype(np.int64)
    rows = _places(im, node, shape, indices).reshape(-1)
    width = math.prod(shape[indices.shape[-1] :])
    count = math.prod(shape) // max(1, width)
    chosen = np.arange(count)
    chosen[rows] = count + np.arange(len(rows))
    _chosen(im, node, node.inputs[2], (count, width), chosen, shape)


def _chosen(im: Importer, node: OnnxNode, updates: str, data: tuple[int, int], chosen: Array, shape: Any) -> None:
    """Of the data's rows, and those of the updates behind them, the chosen ones."""
    parts = Parts(im, node)
    matrix = np.array([-1, data[1]], np.int64)
    both = parts("Concat", parts("Reshape", node.inputs[0], matrix), parts("Reshape", updates, matrix), axis=0)
    parts.end("Reshape", parts("Gather", both, chosen, axis=0), np.array(shape, np.int64))


def scatter_elements(im: Importer, node: OnnxNode) -> None:
    if im.attribute(node, "reduction", "none") != "none":
        raise im.refuse(node, "reductions are not supported")
    shape = im.input(node).shape
    places = _along(im, node, shape).reshape(-1)
    chosen = np.arange(math.prod(shape))
    chosen[places] = len(chosen) + np.arange(len(places))
    _chosen(im, node, node.inputs[2], (len(chosen), 1), chosen, shape)


def gather_nd(im: Importer, node: OnnxNode) -> None:
    if im.attribute(node, "batch_dims", 0):
        raise im.refuse(node, "batch_dims is not supported")
    shape, indices = im.input(node).shape, im.array(node, 1).astype(np.int64)
    rows, rest = _places(im, node, shape, indices), shape[indices.shape[-1] :]
    parts = Parts(im, node)
    matrix = parts("Reshape", node.inputs[0], np.array([-1, math.prod(rest)], np.int64))
    taken = parts("Gather", matrix, rows.reshape(-1), axis=0)
    parts.end("Reshape", taken, np.array([*rows.shape, *rest], np.int64))


def gather_elements(im: Importer, node: OnnxNode) -> None:
    places = _along(im, node, im.input(node).shape)
    parts = Parts(im, node)
    flat = parts("Reshape", node.inputs[0], np.array([-1], np.int64))
    taken = parts("Gather", flat, places.reshape(-1), axis=0)
    parts.end("Reshape", taken, np.array(places.shape, np.int64))


def _along(im: Importer, node: OnnxNode, shape: Sequence[int]) -> Array:
    """The number of the element that each index along an axis names, the other axes being its own."""
    indices = im.array(node, 1).astype(np.int64)
    axis = im.axis(node, im.attribute(node, "axis", 0), len(shape))
    fits = indices.ndim == len(shape) and all(
        n <= size for a, (n, size) in enumerate(zip(indices.shape, shape, strict=True)) if a != axis
    )
    if not fits or math.prod(shape) > MOST_ELEMS:
        raise im.refuse(node, "its indices do not fit; the file is damaged")
    own = np.moveaxis(np.indices(indices.shape), 0, -1)
    own[..., axis] = indices
    return _places(im, node, shape, own)


def running_sum(im: Importer, node: OnnxNode) -> None:
    value = im.stored(node)
    axis = im.axis(node, int(im.array(node, 1).reshape(-1)[0]), len(value.shape))
    given = CumSum(bool(im.attribute(node, "exclusive", 0)), bool(im.attribute(node, "reverse", 0)))
    value = placed(im, value, [axis])
    inputs = [value.tensor, im.build.ints(value.dims.index(axis), "axis")]
    made = im.build.make("CUMSUM", inputs, given, name=node.outputs[0])
    im.bind(node.outputs[0], Stored(made, stored_as(value.shape, value.dims), value.shape))


LOWERINGS: dict[str, Callable[[Importer, OnnxNode], None]] = {
    "ScatterND": scatter_nd,
    "ScatterElements": scatter_elements,
    "GatherND": gather_nd,
    "GatherElements": gather_elements,
    "CumSum": running_sum,
}
