"""A library of which only traces are known: `traced:FILE.json`, written by `diagmem trace --json`.

An operation of a model is matched by what its touches can depend on: kind, shapes, types, attributes and small integer
constants. One that was not traced may not overlap.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from diagmem.kernels._library import Library
from diagmem.model.errors import PlanError, content_of, one_line
from diagmem.model.graph import Node, Tensor
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.orders import Order

PREFIX = "traced:"
SMALL_CONSTANT_ELEMS = 64
"""Axes, paddings, shapes: constants up to this size belong to an operation's signature with their values."""

MOST_FILE_BYTES = 64 * 2**20
_LARGEST = 1 << 40
"""No size that anybody means is larger."""

Overlapping = tuple[int, int]
"""An input by its position, and an output by its number."""


@dataclass(frozen=True, slots=True)
class TracedOp:
    """`overlaps`: the monotone O_s in bytes of each pair that was traced."""

    overlaps: Mapping[Overlapping, int]
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TracedLibrary(Library):
    """`traces`: an operation's signature -> what was traced."""

    traces: Mapping[str, TracedOp] = field(default_factory=dict)

    def order(self, node: Node) -> Order | None:
        """Of a trace only the overlaps are kept, not the order that they come from."""
        return None

    def separation(self, node: Node, position: int, output: int) -> int | None:
        traced = self.traces.get(signature_text(node))
        overlap = traced.overlaps.get((position, output)) if traced else None
        if overlap is None:
            return None
        return max(-node.input(position).size_bytes, node.outputs[output].size_bytes - overlap)

    def accesses(self, node: Node) -> Accesses | None:
        """The most demanding kernel with the traced overlaps: it writes its outputs in order, an element at a step, and
        reads each input element as late as they allow."""
        if signature_text(node) not in self.traces:
            return None
        steps = max(output.elems for output in node.outputs) + 1

        def latest(position: int, tensor: Tensor) -> Runs:
            until = np.zeros(tensor.elems, dtype=np.int64)
            for number, output in enumerate(node.outputs):
                apart = self.separation(node, position, number)
                written = (
                    output.size_bytes if apart is None else apart + tensor.dtype.size_bytes * np.arange(tensor.elems)
                )
                until = np.maximum(until, np.minimum(written // output.dtype.size_bytes, output.elems))
            return Runs.of(np.arange(tensor.elems), 1, 0, stride=0, hold=until + 1)

        reads = tuple(
            None if t is None or t.is_constant else latest(position, t) for position, t in enumerate(node.inputs)
        )
        return Accesses(steps, reads, tuple(Runs.sweep(output.elems) for output in node.outputs))

    def scratch_bytes(self, node: Node, cores: int = 1) -> int:
        traced = self.traces.get(signature_text(node))
        return traced.scratch_bytes if traced else 0


def signature(node: Node) -> dict[str, Any]:
    """All that an operation's touches can depend on, as plain values."""
    return {
        "kind": node.op.kind,
        "inputs": [None if t is None else _tensor_signature(t) for t in node.inputs],
        "outputs": [_tensor_signature(t) for t in node.outputs],
        "attributes": _plain(node.attributes),
    }


def signature_text(node: Node) -> str:
    return _canonical(signature(node))


def _tensor_signature(tensor: Tensor) -> dict[str, Any]:
    known: dict[str, Any] = {"shape": list(tensor.shape), "type": tensor.dtype.value, "constant": tensor.is_constant}
    is_integer = tensor.data is not None and tensor.data.dtype.kind in "iu" and tensor.dtype.size_bytes >= 4
    if is_integer and tensor.elems <= SMALL_CONSTANT_ELEMS and tensor.quantisation is None:
        known["values"] = list(tensor.ints)
    return known


def _plain(value: Any) -> Any:
    """A frozen dataclass of attributes as JSON holds it."""
    if isinstance(value, enum.Enum):
        return value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _canonical(found: Any) -> str:
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=8)
def traced_library(name: str) -> TracedLibrary:
    """The library that `traced:FILE.json` names."""
    path = name[len(PREFIX) :]
    try:
        content = json.loads(content_of(path, MOST_FILE_BYTES))
        traces = _traces(content["rows"])
        align_bytes = _whole_number(content.get("align_bytes", 1))
        if align_bytes < 1 or align_bytes & (align_bytes - 1):
            raise ValueError("no power of two")
    except OSError as error:
        raise PlanError(
            f"kernel library '{one_line(name)}': {error.strerror}; `diagmem trace --json` writes such a file"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PlanError(
            f"kernel library '{one_line(name)}': not a file that `diagmem trace --json` writes ({type(error).__name__})"
        ) from error
    return TracedLibrary(name, f"kernels traced in {path}", align_bytes=align_bytes, traces=traces)


def _traces(rows: list[dict[str, Any]]) -> dict[str, TracedOp]:
    """Rows by signature; where an operation was traced twice, the smaller overlap and the larger scratch count."""
    overlaps: dict[str, dict[Overlapping, int]] = {}
    scratch: dict[str, int] = {}
    for row in rows:
        if row.get("signature") is None or row["traced"] is None:
            continue
        key, pair = _canonical(row["signature"]), (_whole_number(row["position"]), _whole_number(row["number"]))
        found, traced = overlaps.setdefault(key, {}), _whole_number(row["traced"])
        found[pair] = min(traced, found.get(pair, traced))
        scratch[key] = max(scratch.get(key, 0), _whole_number(row.get("scratch_bytes", 0)))
    return {key: TracedOp(found, scratch[key]) for key, found in overlaps.items()}


def _whole_number(value: Any) -> int:
    """A size or a position; ValueError where it can be none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError("no size")
    return value
