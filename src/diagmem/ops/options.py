"""TFLite's tables of options, and the words that kinds share when they decode and encode them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, ExplicitPadding, Op, Padding


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


_PADDINGS = (Padding.SAME, Padding.VALID)
"""Each padding stands at the place that is TFLite's code for it."""


def padding_of(code: int) -> Padding:
    """The padding for which TFLite's code stands."""
    if code not in (0, 1):
        raise ModelError(f"padding code {code} is neither SAME nor VALID; the file is damaged")
    return _PADDINGS[code]


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


@dataclass(frozen=True, slots=True)
class Table:
    """How the schema holds attributes: their class, whose defaults hold where a file has no table, and the schema's
    names of its fields. `name`: that of the table; else the operation's, as the schema writes it."""

    attributes: type
    fields: tuple[str, ...]
    name: str = ""

    def decode(self, options: Any) -> Any:
        """Attributes from a table of a file, which may be absent."""
        plain = self.attributes()
        if options is None:
            return plain
        defaults = (getattr(plain, field.name) for field in dataclasses.fields(plain))
        read = zip(self.fields, defaults, strict=True)
        return self.attributes(*(_decoded(getattr(options, name)(), default) for name, default in read))

    def encode(self, op: Op, dtype: DType) -> BuiltinOptions:
        """The table of an operation."""
        values = (getattr(op.attributes, field.name) for field in dataclasses.fields(op.attributes))
        encoded = {name: _encoded(value) for name, value in zip(self.fields, values, strict=True)}
        return BuiltinOptions(self.name or f"{op.kind.title().replace('_', '')}Options", encoded)


@dataclass(frozen=True, slots=True)
class CustomTable:
    """The same for an operation that TFLite does not define: whole numbers, of which `flags` are 0 or 1. `has_type`:
    the type of its input is an option too."""

    attributes: type
    fields: tuple[str, ...]
    flags: tuple[str, ...] = ()
    has_type: bool = False

    def decode(self, options: Any) -> Any:
        if options is None:
            return self.attributes()
        return self.attributes(*(_whole_number(options, name) for name in self.fields))

    def encode(self, op: Op, dtype: DType) -> CustomOptions:
        values = (getattr(op.attributes, field.name) for field in dataclasses.fields(op.attributes))
        read = {name: bool(v) if name in self.flags else v for name, v in zip(self.fields, values, strict=True)}
        return CustomOptions({**({"T": TYPE_CODES[dtype]} if self.has_type else {}), **read})


def _decoded(value: Any, default: Any) -> Any:
    """A number of a table, as its attribute holds it."""
    decoders: dict[type, Callable[[int], Any]] = {Activation: activation_of, Padding: padding_of}
    return decoders.get(type(default), type(default))(value)


def _encoded(value: Any) -> Any:
    if isinstance(value, ExplicitPadding):
        raise ModelError("a .tflite file cannot hold padding other than SAME and VALID")
    if isinstance(value, Padding):
        return _PADDINGS.index(value)
    return value.value if isinstance(value, Activation) else value


def _whole_number(options: Mapping[str, Any], name: str) -> int:
    found = options.get(name)
    if not isinstance(found, int):
        raise ModelError(f"its option {name} is missing; the file is damaged")
    return found
