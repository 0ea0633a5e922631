"""Nodes whose inputs are known are computed while the model is read: chains that compute shapes, and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diagmem.frontends.onnx.builder import Constant, Value
from diagmem.frontends.onnx.proto import DEFAULT_DOMAINS, TYPES, OnnxNode
from diagmem.model.errors import ModelError, damaged

if TYPE_CHECKING:
    from diagmem.frontends.onnx.importer import Importer

Array = npt.NDArray[Any]
Fold = Callable[[OnnxNode, list[Any]], Any]
"""What a node makes of the values of its inputs."""

MOST_ELEMS = 1 << 26
"""A node that would make more is refused: a few bytes can ask for any amount."""

DAMAGE = (ValueError, TypeError, IndexError, AttributeError, OverflowError, MemoryError, ZeroDivisionError)
"""What comes of operands and attributes that do not fit each other."""


def folded(im: Importer, node: OnnxNode, inputs: Sequence[Value | None]) -> Sequence[Array] | None:
    """The outputs of a node that depends on nothing unknown; None for any other one."""
    if node.domain not in DEFAULT_DOMAINS:
        return None
    if node.kind in ("Shape", "Size") and inputs and inputs[0] is not None:
        return [_shape(im, node, inputs[0])]
    fold = FOLDS.get(node.kind)
    if fold is None or not all(value is None or isinstance(value, Constant) for value in inputs):
        return None
    arrays: list[Any] = [value.array if isinstance(value, Constant) else None for value in inputs]
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(fold(node, arrays))
    except ModelError:
        raise
    except DAMAGE as error:
        raise damaged(f"{node.label}: it cannot be computed ({type(error).__name__})") from None
    for name in node.attributes:
        im.attribute(node, name, None)
    return [made]


def check_size(node: OnnxNode, shape: Sequence[int]) -> None:
    if any(size < 0 for size in shape) or math.prod(int(size) for size in shape) > MOST_ELEMS:
        raise ModelError(
            f"{node.label}: it would make a constant of shape {[int(s) for s in shape][:8]}, which is too large"
        )


def _shape(im: Importer, node: OnnxNode, value: Value) -> Array:
    start, end = im.attribute(node, "start", 0), im.attribute(node, "end", None)
    if node.kind == "Size":
        return np.array(math.prod(value.shape), dtype=np.int64)
    return np.array(value.shape[start:end], dtype=np.int64)


def _constant(node: OnnxNode, inputs: list[Any]) -> Any:
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        if name in node.attributes:
            return np.array(node.attributes[name], dtype="float32" if "float" in name else "int64")
    value = node.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise ModelError(f"{node.label}: only constants that are dense tensors of numbers are supported")
    return value


def _constant_of_shape(node: OnnxNode, inputs: list[Any]) -> Any:
    check_size(node, inputs[0].tolist())
    value = node.attributes.get("value", np.zeros(1, dtype=np.float32))
    return np.full(inputs[0].tolist(), value.reshape(-1)[0], dtype=value.dtype)


def _range(node: OnnxNode, inputs: list[Any]) -> Any:
    start, limit, step = (array.reshape(-1)[0].item() for array in inputs)
    check_size(node, [max(0, math.ceil((limit - start) / step))])
    return np.arange(start, limit, step, dtype=inputs[0].dtype)


def _expand(node: OnnxNode, inputs: list[Any]) -> Any:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist()))
    check_size(node, shape)
    return np.broadcast_to(inputs[0], shape).copy()


def _tile(node: OnnxNode, inputs: list[Any]) -> Any:
    check_size(node, [int(n) * int(r) for n, r in zip(inputs[0].shape, inputs[1], strict=True)])
    return np.tile(inputs[0], inputs[1].tolist())


def _reshape(node: OnnxNode, inputs: list[Any]) -> Any:
    zero_is_zero = bool(node.attributes.get("allowzero", 0))
    return inputs[0].reshape(new_shape(node, inputs[0].shape, inputs[1].tolist(), zero_is_zero))


def new_shape(node: OnnxNode, old: Sequence[int], wanted: Sequence[int], zero_is_zero: bool) -> tuple[int, ...]:
    """The shape that a Reshape makes: 0 takes a size over, one -1 is what remains."""
    shape = [int(old[i]) if n == 0 and not zero_is_zero and i < len(old) else int(n) for i, n in enumerate(wanted)]
    if shape.count(-1) > 1 or any(n < -1 for n in shape):
        raise damaged(f"{node.label}: {list(wanted)} is not a shape")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = math.prod(old) // rest if rest else 0
    if math.prod(shape) != math.prod(old):
        raise damaged(f"{node.label}: {list(old)} cannot become {list(wanted)}")
    return tuple(shape)


def axes_of(node: OnnxNode, inputs: Sequence[Array | None]) -> list[int] | None:
    """Axes, which are an attribute up to opset 12 and an input after it."""
    if len(inputs) > 1 and inputs[1] is not None:
        return [int(axis) for axis in inputs[1].reshape(-1)]
    found = node.attributes.get("axes")
    return None if found is None else [int(axis) for axis in found]


def _slice(node: OnnxNode, inputs: list[Any]) -> Any:
    ranges = slices_of(node, inputs[0].shape, inputs)
    return inputs[0][tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in ranges)]


def slices_of(node: OnnxNode, shape: Sequence[int], inputs: Sequence[Array | None]) -> list[range]:
    """What a Slice takes of each axis. Its bounds are attributes up to opset 9, and inputs after it."""
    if len(inputs) > 1:
        parts = [None if len(inputs) <= p or (a := inputs[p]) is None else a.reshape(-1).tolist() for p in (1, 2, 3, 4)]
    else:
        parts = [node.attributes.get(name) for name in ("starts", "ends", "axes")] + [None]
    starts, ends = parts[0] or [], parts[1] or []
    axes = parts[2] if parts[2] is not None else list(range(len(starts)))
    steps = parts[3] if parts[3] is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise damaged(f"{node.label}: its starts, ends, axes and steps are not of one length")
    found = [range(size) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if not -len(shape) <= axis < len(shape) or step == 0:
            raise damaged(f"{node.label}: axis {axis} or step {step} is not possible")
        bounds = slice(start, end, step).indices(shape[axis])
        found[axis] = range(*bounds)
    return found


def _gather(node: OnnxNode, inputs: list[Any]) -> Any:
    axis = node.attributes.get("axis", 0)
    check_size(node, [inputs[0].size // max(1, inputs[0].shape[axis]), inputs[1].size])
    return np.take(inputs[0], inputs[1], axis=axis)


def _div(node: OnnxNode, inputs: list[Any]) -> Any:
    first, second = inputs
    if first.dtype.kind in "iu":
        return (np.sign(first) * np.sign(second) * (abs(first) // abs(second))).astype(first.dtype)
    return first / second


def _reduce(function: Callable[..., Any]) -> Fold:
    def fold(node: OnnxNode, inputs: list[Any]) -> Any:
        axes = axes_of(node, inputs)
        axis = tuple(axes) if axes else None
        made = function(inputs[0], axis=axis, keepdims=bool(node.attributes.get("keepdims", 1)))
        return np.asarray(made).astype(inputs[0].dtype)

    return fold


def _pointwise(function: Callable[..., Any], typed: bool = True) -> Fold:
    """`typed`: the result has the type of the first input, as it has for numpy's functions of whole numbers too."""

    def fold(node: OnnxNode, inputs: list[Any]) -> Any:
        check_size(node, np.broadcast_shapes(*(array.shape for array in inputs)))
        made = np.asarray(function(*inputs))
        return made.astype(inputs[0].dtype) if typed else made

    return fold


_NAMED_AS_IN_NUMPY = ("Abs", "Sqrt", "Exp", "Log", "Floor", "Ceil", "Round", "Reciprocal", "Mod")

FOLDS: dict[str, Fold] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Cast": lambda n, i: i[0].astype(TYPES[n.attributes["to"]]),
    "Expand": _expand,
    "Tile": _tile,
    "Reshape": _reshape,
    "Flatten": lambda n, i: i[0].reshape(math.prod(i[0].shape[: n.attributes.get("axis", 1)]), -1),
    "Squeeze": lambda n, i: np.squeeze(i[0], None if (axes := axes_of(n, i)) is None else tuple(axes)),
    "Unsqueeze": lambda n, i: np.expand_dims(i[0], tuple(axes_of(n, i) or ())),
    "Slice": _slice,
    "Gather": _gather,
    "Concat": lambda n, i: np.concatenate(i, axis=n.attributes.get("axis", 1)),
    "Transpose": lambda n, i: np.transpose(i[0], n.attributes.get("perm")),
    "Identity": lambda n, i: i[0],
    "Add": _pointwise(np.add),
    "Sub": _pointwise(np.subtract),
    "Mul": _pointwise(np.multiply),
    "Div": _div,
    "Pow": _pointwise(np.power),
    "Neg": _pointwise(np.negative),
    **{kind: _pointwise(getattr(np, kind.lower())) for kind in _NAMED_AS_IN_NUMPY},
    "Max": lambda n, i: np.maximum.reduce(np.broadcast_arrays(*i)),
    "Min": lambda n, i: np.minimum.reduce(np.broadcast_arrays(*i)),
    **{kind: _pointwise(getattr(np, kind.lower()), typed=False) for kind in ("Equal", "Greater", "Less", "Where")},
    **{kind: _pointwise(getattr(np, f"logical_{kind.lower()}"), typed=False) for kind in ("And", "Or", "Not")},
    **{f"Reduce{kind}": _reduce(getattr(np, kind.lower())) for kind in ("Sum", "Prod", "Max", "Min", "Mean")},
}
