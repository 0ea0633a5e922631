"""TFLite's tables of options, and the words that kinds share when they decode and encode them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, ExplicitPadding, Padding


class BuiltinOptions(NamedTuple):
    """The schema's name of a table of options, and its fields; a tuple is a vector of numbers."""

    table: str
    fields: Mapping[str, Any]


class CustomOptions(NamedTuple):
    """The fields of an operation that TFLite does not define."""

    fields: Mapping[str, float]


Options = BuiltinOptions | CustomOptions | None
"""None where an operation needs none."""

CUSTOM = "CUSTOM:"
"""What the kind of an operation begins with that TFLite does not define."""


def whole_number(options: Mapping[str, Any], name: str) -> int:
    """A field of an operation that TFLite does not define."""
    found = options.get(name)
    if not isinstance(found, int):
        raise ModelError(f"its option {name} is missing; the file is damaged")
    return found


class Activation(enum.Enum):
    """The activation fused into an operation; values are TFLite's."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


def activation_of(code: int) -> Activation:
    """The activation for which TFLite's code stands."""
    try:
        return Activation(code)
    except ValueError:
        raise ModelError(f"fused activation code {code} is unknown; the file is damaged") from None


def activation_field(activation: Activation) -> Mapping[str, int]:
    """The field that holds a fused activation, in every table that has one."""
    return {"FusedActivationFunction": activation.value}


_PADDINGS = (Padding.SAME, Padding.VALID)
"""Each padding stands at the place that is TFLite's code for it."""


def padding_of(code: int) -> Padding:
    """The padding for which TFLite's code stands."""
    if code not in (0, 1):
        raise ModelError(f"padding code {code} is neither SAME nor VALID; the file is damaged")
    return _PADDINGS[code]


def window_fields(attributes: Any) -> Mapping[str, int]:
    """The fields that all tables of windowed operations have."""
    if isinstance(attributes.padding, ExplicitPadding):
        raise ModelError("a .tflite file cannot hold padding other than SAME and VALID")
    return {
        "Padding": _PADDINGS.index(attributes.padding),
        "StrideH": attributes.stride_h,
        "StrideW": attributes.stride_w,
        **activation_field(attributes.activation),
    }


TYPE_CODES = {
    DType.FLOAT32: 0,
    DType.FLOAT16: 1,
    DType.INT32: 2,
    DType.UINT8: 3,
    DType.INT64: 4,
    DType.BOOL: 6,
    DType.INT16: 7,
    DType.INT8: 9,
    DType.UINT64: 12,
    DType.UINT32: 15,
    DType.INT4: 17,
}
"""TFLite's codes for types of elements."""
