"""TFLite's tables of options, and the words that kinds share when they decode and encode them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, ExplicitPadding, Op, Padding
from diagmem.model.tables import table


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
    """The activation fused into an operation; values are TFLite's, and those below 0 the complement of one. TFLite's
    float32 results stay finite, ONNX's become infinite."""

    UNLIMITED = ~0
    RELU_UNLIMITED = ~1
    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5

    @property
    def unlimited(self) -> Activation:
        """The same as ONNX has it."""
        return {Activation.NONE: Activation.UNLIMITED, Activation.RELU: Activation.RELU_UNLIMITED}.get(self, self)


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


def facts_of_types(fact: str) -> Any:
    """What types.toml says of the types of elements, of those of which it says it."""
    return {DType(name): facts[fact] for name, facts in table(__package__, "types").items() if fact in facts}


TYPE_CODES: Mapping[DType, int] = facts_of_types("tflite")
"""TFLite's codes for types of elements."""


@dataclass(frozen=True, slots=True)
class Table:
    """How the schema holds attributes: their class, whose defaults hold where a file has no table, and the schema's
    names of its fields, in order or by attribute. `name`: that of the table, else the operation's, as the schema writes
    it; None: there is no table, only defaults."""

    attributes: type
    fields: tuple[str, ...] | Mapping[str, str] = ()
    name: str | None = ""

    def decode(self, options: Any) -> Any:
        """Attributes from a table of a file, which may be absent."""
        plain = self.attributes()
        if options is None:
            return plain
        read = ((own, getattr(options, name)()) for own, name in self._names())
        return dataclasses.replace(plain, **{own: _decoded(value, getattr(plain, own)) for own, value in read})

    def encode(self, op: Op, dtype: DType) -> BuiltinOptions | None:
        """The table of an operation."""
        if self.name is None:
            return None
        encoded = {name: _encoded(getattr(op.attributes, own)) for own, name in self._names()}
        return BuiltinOptions(self.name or f"{op.kind.title().replace('_', '')}Options", encoded)

    def _names(self) -> Iterable[tuple[str, str]]:
        """Attributes, and the schema's names of them."""
        if isinstance(self.fields, Mapping):
            return self.fields.items()
        return zip((field.name for field in dataclasses.fields(self.attributes)), self.fields, strict=False)


@dataclass(frozen=True, slots=True)
class CustomTable:
    """The same for an operation that TFLite does not define: whole numbers, of which `flags` are 0 or 1. `has_type`:
    the type of its input is an option too. By default the table is empty."""

    attributes: type = NoneType
    fields: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    has_type: bool = False

    def decode(self, options: Any) -> Any:
        if options is None:
            return self.attributes()
        return self.attributes(*(_whole_number(options, name) for name in self.fields))

    def encode(self, op: Op, dtype: DType) -> CustomOptions:
        own = dataclasses.fields(self.attributes) if self.fields else ()
        values = (getattr(op.attributes, field.name) for field in own)
        read = {name: bool(v) if name in self.flags else v for name, v in zip(self.fields, values, strict=True)}
        return CustomOptions({**({"T": TYPE_CODES[dtype]} if self.has_type else {}), **read})


AnyTable = Table | CustomTable


def _decoded(value: Any, default: Any) -> Any:
    """A number of a table, as its attribute holds it."""
    decoders: dict[type, Callable[[int], Any]] = {Activation: activation_of, Padding: padding_of, DType: _index_type}
    return decoders.get(type(default), type(default))(value)


def _encoded(value: Any) -> Any:
    if isinstance(value, ExplicitPadding):
        raise ModelError("a .tflite file cannot hold padding other than SAME and VALID")
    if isinstance(value, Padding):
        return _PADDINGS.index(value)
    if isinstance(value, DType):
        return TYPE_CODES[value]
    if isinstance(value, Activation):
        return value.value if value.value >= 0 else ~value.value
    return value


def _index_type(code: int) -> DType:
    """The type of indices or sizes for which TFLite's code stands."""
    found = next((dtype for dtype in (DType.INT32, DType.INT64) if TYPE_CODES[dtype] == code), None)
    if found is None:
        raise ModelError(f"output type code {code} is neither int32 nor int64; the file is damaged")
    return found


def _whole_number(options: Mapping[str, Any], name: str) -> int:
    found = options.get(name)
    if not isinstance(found, int):
        raise ModelError(f"its option {name} is missing; the file is damaged")
    return found
