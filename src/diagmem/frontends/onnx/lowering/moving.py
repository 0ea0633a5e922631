"""Operations that only move elements, or change shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.builder import (
    CHANNELS_LAST,
    Constant,
    Dims,
    Shuffled,
    Stored,
    Value,
    in_file_order,
    like,
    sizes,
    stored_as,
    transposed,
)
from diagmem.frontends.onnx.importer import (
    Array,
    Importer,
    Lowering,
    Parts,
    axes_of,
    integers,
    new_shape,
    slices_of,
)
from diagmem.frontends.onnx.proto import OnnxNode
from diagmem.model.graph import DType, Rounding, Shape, Tensor
from diagmem.ops.moving.concatenation import Concatenation, Split
from diagmem.ops.moving.gather import Gather, GatherNd
from diagmem.ops.moving.pad import MirrorPad, Pad
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.moving.transpose import SpaceDepth


def reshape(im: Importer, node: OnnxNode) -> Value:
    value = im.input(node)
    wanted = integers(im.array(node, 1)) if len(node.inputs) > 1 else im.attribute(node, "shape")
    zero_is_zero = bool(im.attribute(node, "allowzero", 0))
    return im.build.reshape(value, new_shape(node, value.shape, wanted, zero_is_zero))


def flatten(im: Importer, node: OnnxNode) -> Value:
    value = im.input(node)
    axis = im.attribute(node, "axis", 1)
    if not -len(value.shape) <= axis <= len(value.shape):
        raise im.damaged(node, f"axis {axis} does not exist")
    axis += len(value.shape) if axis < 0 else 0
    shape = math.prod(value.shape[:axis]), math.prod(value.shape[axis:])
    return im.build.reshape(value, shape)


def given_axes(im: Importer, node: OnnxNode) -> list[int] | None:
    """Axes from an attribute or the second input."""
    im.attribute(node, "axes", None)
    return axes_of(node, [None, im.optional_array(node, 1)])


def squeeze(im: Importer, node: OnnxNode) -> Value:
    value, axes = im.input(node), given_axes(im, node)
    if node.kind == "Unsqueeze":
        rank = len(value.shape) + len(axes or [])
        places = im.axes(node, axes or [], rank)
        rest = iter(value.shape)
        shape = tuple(1 if place in places else next(rest) for place in range(rank))
    else:
        found = [a for a, n in enumerate(value.shape) if n == 1] if axes is None else axes
        places = im.axes(node, found, len(value.shape))
        if any(value.shape[place] != 1 for place in places):
            raise im.damaged(node, "an axis that it removes has more than one element")
        shape = tuple(n for place, n in enumerate(value.shape) if place not in places)
    return im.build.reshape(value, shape)


def transpose(im: Importer, node: OnnxNode) -> Value:
    value = im.input(node)
    axes = im.attribute(node, "perm", list(reversed(range(len(value.shape)))))
    if sorted(axes) != list(range(len(value.shape))):
        raise im.damaged(node, f"{axes} is not an order of {len(value.shape)} axes")
    return transposed_value(im, value, axes)


def transposed_value(im: Importer, value: Value, axes: Sequence[int]) -> Value:
    if isinstance(value, Constant):
        return Constant(value.array.transpose(axes))
    return transposed(im.build.unshuffled(value) if isinstance(value, Shuffled) else value, axes)


def concat(im: Importer, node: OnnxNode) -> Value:
    values = [im.input(node, place) for place in range(len(node.inputs))]
    rank = len(values[0].shape)
    axis = im.axis(node, im.attribute(node, "axis", 1), rank)
    rest = {tuple(n for a, n in enumerate(value.shape) if a != axis) for value in values}
    if len(rest) != 1 or any(len(value.shape) != rank for value in values):
        raise im.damaged(node, "the shapes of its inputs do not fit")
    return joined(im, node, values, axis)


def joined(im: Importer, node: OnnxNode, values: Sequence[Value], axis: int, as_stored: bool = False) -> Stored:
    """Tensors side by side."""
    shape = tuple(sum(v.shape[a] for v in values) if a == axis else n for a, n in enumerate(values[0].shape))
    parts = [value for value in values if value.shape[axis]]
    dims = _dims_with(parts, axis, shape)
    tensors = [im.build.form(value, dims, as_stored) for value in parts]
    made = im.build.moved("CONCATENATION", tensors, Concatenation(axis=dims.index(axis)), node.outputs[0])
    return Stored(made, stored_as(shape, dims), shape)


def _dims_with(values: Sequence[Value], axis: int, shape: Shape) -> Dims:
    """A layout with a place for the given axis: that of the first operand which has one, else the file's."""
    stored, wide = [value for value in values if isinstance(value, Stored)], {a for a, n in enumerate(shape) if n > 1}
    for value in stored:
        if axis in value.dims and set(value.order) == wide:
            return value.dims
    channels_last = any(value.order == (2, 3, 1) for value in stored)
    return CHANNELS_LAST if channels_last and len(shape) == 4 else tuple(range(len(shape)))


def placed(im: Importer, value: Stored, axes: Sequence[int]) -> Stored:
    """The value in a layout with a place for each of these axes, even those of size one."""
    if all(axis in value.dims for axis in axes):
        return value
    dims: Dims = tuple(range(len(value.shape)))
    if len(dims) == 4 and value.order == tuple(a for a in CHANNELS_LAST if value.shape[a or 0] > 1):
        dims = CHANNELS_LAST
    return replace(value, tensor=im.build.form(value, dims, as_stored=True), dims=dims)


def split(im: Importer, node: OnnxNode) -> None:
    value = im.stored(node, as_stored=True)
    axis = im.axis(node, im.attribute(node, "axis", 0), len(value.shape))
    given = im.optional_array(node, 1)
    parts = integers(given) if given is not None else im.attribute(node, "split", [])
    count = im.attribute(node, "num_outputs", len(node.outputs))
    if not parts and count == len(node.outputs):
        most = -(-value.shape[axis] // count)
        parts = [min(most, value.shape[axis] - most * n) for n in range(count)]
    if sum(parts) != value.shape[axis] or len(parts) != len(node.outputs) or min(parts) < 1:
        raise im.damaged(node, f"parts {parts} do not fit {list(value.shape)}")
    value = placed(im, value, [axis])
    inputs = [value.tensor, im.build.ints(parts, "sizes"), im.build.ints(value.dims.index(axis), "axis")]
    held = value.tensor.quantisation
    made = im.build.op("SPLIT_V", inputs, Split(len(parts)), name=node.outputs[0], quantisation=held)
    for name, tensor, size in zip(node.outputs, made, parts, strict=True):
        shape = tuple(size if a == axis else n for a, n in enumerate(value.shape))
        im.bind(name, value.became(im.build.rename(tensor, name), shape))


def slice_(im: Importer, node: OnnxNode) -> Value:
    value = im.stored(node, as_stored=True)
    for name in ("starts", "ends", "axes"):
        im.attribute(node, name, None)
    given = [None, *(im.optional_array(node, place) for place in range(1, len(node.inputs)))]
    ranges = slices_of(node, value.shape, given)
    if not all(ranges):
        raise im.refuse(node, "its output has no elements; such tensors are not supported")
    return _cut(im, value, ranges, node.outputs[0])


def trilu(im: Importer, node: OnnxNode) -> None:
    """What lies above a diagonal, or below it; all else becomes 0."""
    value, above = im.input(node), im.optional_array(node, 1)
    side = np.triu if im.attribute(node, "upper", 1) else np.tril
    kept = side(np.ones(value.shape[-2:], bool), 0 if above is None else int(above.reshape(-1)[0]))
    Parts(im, node).end("Where", kept, node.inputs[0], like(value, 0).array)


def _cut(im: Importer, value: Stored, ranges: Sequence[range], name: str = "") -> Stored:
    """The value within a range of each axis."""
    changed = [axis for axis, part in enumerate(ranges) if part != range(value.shape[axis])]
    if not changed:
        return value
    value = placed(im, value, changed)
    made = _sliced(im, value.tensor, [range(1) if axis is None else ranges[axis] for axis in value.dims], name)
    return value.became(made, tuple(len(part) for part in ranges))


def _sliced(im: Importer, tensor: Tensor, parts: Sequence[range], name: str) -> Tensor:
    begin = im.build.ints([part.start for part in parts], "begin")
    if all(part.step == 1 for part in parts):
        return im.build.moved("SLICE", [tensor, begin, im.build.ints([len(p) for p in parts], "size")], name=name)
    # An end before the first element cannot be expressed: it is left open.
    mask = sum(1 << place for place, part in enumerate(parts) if part.stop < 0)
    end = im.build.ints([max(part.stop, 0) for part in parts], "end")
    strides = im.build.ints([part.step for part in parts], "strides")
    return im.build.moved("STRIDED_SLICE", [tensor, begin, end, strides], StridedSlice(end_mask=mask), name)


def pad(im: Importer, node: OnnxNode) -> Value:
    """Around images; negative pads crop. Quantised values stay so where zeros are added."""
    mode, fill, sides = _pads(im, node)
    is_zero = mode == "constant" and fill == 0.0
    value = im.stored(node, as_stored=is_zero)
    is_zero = is_zero and (value.is_dequantised or value.dtype is DType.FLOAT32 or value.tensor.quantisation is None)
    inner = [range(max(0, -low), n - max(0, -high)) for n, (low, high) in zip(value.shape, sides, strict=True)]
    if not all(inner):
        raise im.refuse(node, "its pads leave nothing")
    value = _cut(im, value, inner)
    sides = [(max(0, low), max(0, high)) for low, high in sides]
    changed = [axis for axis, side in enumerate(sides) if any(side)]
    if not changed:
        return value
    # An image that is reflected more than once is gathered pixel by pixel, too.
    is_far = any(max(sides[axis]) >= value.shape[axis] for axis in changed)
    if mode in ("edge", "wrap") or (mode == "reflect" and is_far):
        return _padded_by_places(im, value, sides, mode)
    value = placed(im, value, changed)
    paddings = im.build.ints([(0, 0) if axis is None else sides[axis] for axis in value.dims], "paddings")
    kind, inputs = "PAD" if is_zero else "PADV2", [value.tensor, paddings]
    if mode == "reflect":
        kind = "MIRROR_PAD"
    elif mode != "constant":
        raise im.refuse(node, "its mode is not known; constant, reflect, edge and wrap are")
    elif not is_zero:
        inputs.append(_filling(im, node, value, fill))
    attributes = MirrorPad("reflect") if mode == "reflect" else Pad()
    made = im.build.moved(kind, inputs, attributes, node.outputs[0])
    return value.became(made, tuple(n + sum(side) for n, side in zip(value.shape, sides, strict=True)))


def _pads(im: Importer, node: OnnxNode) -> tuple[str, float, list[tuple[int, int]]]:
    """The mode, the value, and how far on both sides of each axis."""
    rank = len(im.input(node).shape)
    mode, fill = im.attribute(node, "mode", "constant"), im.attribute(node, "value", 0.0)
    pads = integers(im.array(node, 1)) if len(node.inputs) > 1 else im.attribute(node, "pads")
    if len(node.inputs) > 2 and node.inputs[2]:
        fill = float(im.array(node, 2).reshape(-1)[0])
    axes = im.optional_array(node, 3)
    places = im.axes(node, integers(axes), rank) if axes is not None else list(range(rank))
    if len(pads) != 2 * len(places):
        raise im.damaged(node, "its pads have a wrong length")
    sides = [(0, 0)] * rank
    for number, axis in enumerate(places):
        sides[axis] = int(pads[number]), int(pads[number + len(places)])
    if any(max(abs(low), abs(high)) > 1 << 24 for low, high in sides):
        raise im.refuse(node, "its pads are huge")
    return mode, fill, sides


def _filling(im: Importer, node: OnnxNode, value: Stored, fill: float) -> Tensor:
    """The value around a tensor, in the form in which its elements are stored."""
    dtype, held = value.tensor.dtype, value.tensor.quantisation
    if held is not None and held.rounding is Rounding.ONNX_UNSIGNED:
        fill -= 128
    if dtype is not DType.FLOAT32 and fill != int(fill):
        raise im.damaged(node, f"{fill} is no {dtype.value}")
    return im.build.constant(np.array(fill).astype(dtype.numpy), "value", held)


def _padded_by_places(im: Importer, value: Stored, sides: Sequence[tuple[int, int]], mode: str) -> Stored:
    """Each axis is gathered at the places that replace those outside."""
    for axis, (low, high) in enumerate(sides):
        if low or high:
            size = value.shape[axis]
            im.build.take(low + size + high)
            places = np.arange(-low, size + high)
            if mode == "reflect" and size > 1:
                places = np.abs((places + size - 1) % (2 * size - 2) - (size - 1))
            value = taken(im, value, axis, np.clip(places, 0, size - 1) if mode != "wrap" else places % size)
    return value


def taken(im: Importer, value: Stored, axis: int, places: npt.NDArray[Any], name: str = "") -> Stored:
    """The value at some places along an axis: a slice where these are neighbours."""
    value = placed(im, value, [axis])
    place, flat = value.dims.index(axis), [int(n) for n in places]
    neighbours = range(flat[0], flat[0] + len(flat))
    if flat == list(neighbours):
        parts = [neighbours if at == place else range(n) for at, n in enumerate(value.tensor.shape)]
        made = _sliced(im, value.tensor, parts, name)
    else:
        made = im.build.moved("GATHER", [value.tensor, im.build.ints(flat, "indices")], Gather(place, 0), name)
    return value.became(made, tuple(len(flat) if a == axis else n for a, n in enumerate(value.shape)))


def gather(im: Importer, node: OnnxNode) -> Value:
    """With constant indices, a slice where they are neighbours."""
    value, indices = im.input(node), im.input(node, 1)
    axis = im.axis(node, im.attribute(node, "axis", 0), len(value.shape))
    size, shape = value.shape[axis], (*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :])
    if isinstance(indices, Constant):
        numbers = indices.array
        if numbers.size == 0:
            raise im.refuse(node, "its output has no elements; such tensors are not supported")
        if numbers.min() < -size or numbers.max() >= size:
            raise im.damaged(node, f"indices out of range of {size}")
        found = taken(im, im.build.in_ram(value), axis, numbers.reshape(-1) % size, node.outputs[0])
        return im.build.reshape(found, shape)
    table, places = _table(im, value), _indices(im, node)
    return _picked(im, node, "GATHER", table, places, Gather(axis, 0, counts_back=True), shape)


def _picked(
    im: Importer, node: OnnxNode, kind: str, table: Stored, places: Tensor, attributes: Any, shape: Shape
) -> Stored:
    """What a run takes from a table at these places."""
    rest = {"dtype": table.tensor.dtype, "quantisation": table.tensor.quantisation}
    made = im.build.make(kind, [table.tensor, places], attributes, name=node.outputs[0], **rest)
    dims = in_file_order(shape)
    return Stored(im.build.reshaped(made, sizes(shape, dims)), dims, shape, table.is_dequantised)


def _indices(im: Importer, node: OnnxNode) -> Tensor:
    """Of 32 bits, which take less RAM."""
    places = im.build.form(im.stored(node, 1), range(len(im.input(node, 1).shape)))
    return im.build.make("CAST", [places], dtype=DType.INT32) if places.dtype is DType.INT64 else places


def _table(im: Importer, value: Value) -> Stored:
    """What is gathered at run time, its axes as in the file. A table of 8-bit integers with one scale stays one."""
    whole = range(len(value.shape))
    if isinstance(value, Constant) and value.stored is not None:
        data, scale = value.stored
        if data.dtype == np.int8 and len(scale.scales) == 1:
            return Stored(im.build.constant(data, "table", scale.quantisation), tuple(whole), value.shape, True)
    held = im.build.in_ram(value)
    return replace(held, tensor=im.build.form(held, whole, as_stored=True), dims=tuple(whole))


def reverse_sequence(im: Importer, node: OnnxNode) -> Value:
    """The first so many steps in time are taken backward; here as many of every sequence."""
    value, lengths = im.stored(node, as_stored=True), set(integers(im.array(node, 1)))
    _, axis = (im.attribute(node, f"{name}_axis", at) for name, at in (("batch", 1), ("time", 0)))
    axis = im.axis(node, axis, len(value.shape))
    if len(lengths) != 1 or not 0 <= (count := lengths.pop()) <= value.shape[axis]:
        raise im.refuse(node, "sequences of different lengths are not supported")
    return taken(im, value, axis, np.array([*range(count)[::-1], *range(count, value.shape[axis])]), node.outputs[0])


def expand(im: Importer, node: OnnxNode) -> Value:
    value, given = im.stored(node), integers(im.array(node, 1))
    if node.kind == "Tile":
        shape = tuple(n * r for n, r in zip(value.shape, given, strict=True))
    else:
        shape = np.broadcast_shapes(value.shape, tuple(given))
    if math.prod(shape) > 1 << 28 or 0 in shape:
        raise im.refuse(node, f"shape {list(shape)} is too large, or empty")
    if shape == value.shape:
        return value
    ahead = len(shape) - len(value.shape)
    tensor = im.build.reshaped(im.build.form(value, range(len(value.shape))), (*[1] * ahead, *value.shape))
    kind, counts = ("TILE", given) if node.kind == "Tile" else ("BROADCAST_TO", shape)
    made = im.build.make(kind, [tensor, im.build.ints(counts, "shape")], name=node.outputs[0])
    dims = in_file_order(shape)
    return Stored(im.build.reshaped(made, sizes(shape, dims)), dims, shape)


def space_depth(im: Importer, node: OnnxNode) -> Value:
    """Mode DCR numbers the channels of a block as we do; in mode CRD those of a pixel are neighbours."""
    value = im.stored(node, as_stored=True)
    block, mode = im.attribute(node, "blocksize"), im.attribute(node, "mode", "DCR")
    if mode not in ("DCR", "CRD") or len(value.shape) != 4 or not 1 <= block <= 1 << 10:
        raise im.refuse(node, "only modes DCR and CRD of images in blocks are supported")
    is_wide = node.kind == "DepthToSpace"
    if is_wide and value.shape[1] % (block * block):
        raise im.damaged(node, f"{value.shape[1]} channels are no blocks of {block}x{block}")
    if mode == "CRD" and is_wide:
        numbers = np.arange(value.shape[1]).reshape(-1, block * block)
        value = taken(im, value, 1, numbers.T.reshape(-1))
    tensor = im.build.form(value, CHANNELS_LAST, as_stored=True)
    kind = "DEPTH_TO_SPACE" if is_wide else "SPACE_TO_DEPTH"
    made = im.build.moved(kind, [tensor], SpaceDepth(block), node.outputs[0])
    n, h, w, c = made.shape
    found = Stored(made, stored_as((n, c, h, w), CHANNELS_LAST), (n, c, h, w), value.is_dequantised)
    if mode == "CRD" and not is_wide:
        found = taken(im, found, 1, np.arange(c).reshape(block * block, -1).T.reshape(-1), node.outputs[0])
    return found


def _places(im: Importer, node: OnnxNode, shape: Sequence[int], indices: Array) -> Array:
    """The number of the element, or row of elements, for each tuple of indices (the last axis)."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not 1 <= depth <= len(shape):
        raise im.damaged(node, "its indices do not fit")
    sizes = np.array(shape[:depth], np.int64)
    if np.any((indices < -sizes) | (indices >= sizes)):
        raise im.damaged(node, f"indices out of range of {list(shape)}")
    found: Array = np.ravel_multi_index(tuple(np.moveaxis(indices % sizes, -1, 0)), tuple(shape[:depth]))
    return found


def scatter(im: Importer, node: OnnxNode) -> None:
    """ScatterND and ScatterElements: the rows of data and updates in one matrix, then for each place the row that is
    written last."""
    if im.attribute(node, "reduction", "none") != "none":
        raise im.refuse(node, "reductions are not supported")
    shape = im.input(node).shape
    places, rest = _rows(im, node, shape)
    width = math.prod(rest)
    chosen = np.arange(math.prod(shape) // max(1, width))
    chosen[places.reshape(-1)] = len(chosen) + np.arange(places.size)
    parts, matrix = Parts(im, node), np.array([-1, width], np.int64)
    both = parts("Concat", *(parts("Reshape", node.inputs[place], matrix) for place in (0, 2)), axis=0)
    parts.end("Reshape", parts("Gather", both, chosen, axis=0), np.array(shape, np.int64))


def gather_rows(im: Importer, node: OnnxNode) -> None:
    """GatherND and GatherElements."""
    if im.attribute(node, "batch_dims", 0):
        raise im.refuse(node, "batch_dims is not supported")
    indices, value = im.input(node, 1), im.input(node)
    if node.kind == "GatherND" and not isinstance(indices, Constant):
        depth = indices.shape[-1]
        shape = (*indices.shape[:-1], *value.shape[depth:])
        table, places = _table(im, value), _indices(im, node)
        im.bind(node.outputs[0], _picked(im, node, "GATHER_ND", table, places, GatherNd(counts_back=True), shape))
        return
    rows, rest = _rows(im, node, im.input(node).shape)
    parts = Parts(im, node)
    row = [] if node.kind == "GatherElements" else [math.prod(rest)]
    matrix = parts("Reshape", node.inputs[0], np.array([-1, *row], np.int64))
    taken = parts("Gather", matrix, rows.reshape(-1), axis=0)
    parts.end("Reshape", taken, np.array([*rows.shape, *rest], np.int64))


def _rows(im: Importer, node: OnnxNode, shape: Shape) -> tuple[Array, Shape]:
    """The numbers of the rows at the indices, and the shape of a row."""
    im.build.take(max(math.prod(shape), im.array(node, 1).size * len(shape)))
    indices = im.array(node, 1).astype(np.int64)
    if not node.kind.endswith("Elements"):
        return _places(im, node, shape, indices), shape[indices.shape[-1] :]
    # Each index is along one axis; the others are its own.
    axis = im.axis(node, im.attribute(node, "axis", 0), len(shape))
    fits = indices.ndim == len(shape) and all(
        n <= size for a, (n, size) in enumerate(zip(indices.shape, shape, strict=True)) if a != axis
    )
    if not fits:
        raise im.damaged(node, "its indices do not fit")
    own = np.moveaxis(np.indices(indices.shape), 0, -1)
    own[..., axis] = indices
    return _places(im, node, shape, own), ()


LOWERINGS: dict[str, Lowering] = {
    "Reshape": reshape,
    "Flatten": flatten,
    **dict.fromkeys(("Squeeze", "Unsqueeze"), squeeze),
    "Transpose": transpose,
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Trilu": trilu,
    "Pad": pad,
    "Gather": gather,
    "ReverseSequence": reverse_sequence,
    **dict.fromkeys(("Expand", "Tile"), expand),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), space_depth),
    **dict.fromkeys(("ScatterND", "ScatterElements"), scatter),
    **dict.fromkeys(("GatherND", "GatherElements"), gather_rows),
}
