"""A graph as plain text: kinds, attributes, types, shapes and wiring, and nothing of names, weights or numbering."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import fields
from typing import Any

from diagmem.model.graph import ABSENT, Graph, Op

SHAPING = {"PAD": (1,), "RESHAPE": (1,), "MEAN": (1,), "STRIDED_SLICE": (1, 2, 3)}
"""Inputs whose values belong to the graph's structure, by kind."""


def canonical_text(graph: Graph) -> str:
    """One line for each operation. Tensors are numbered in the order in which they are first mentioned."""
    number: dict[int, int] = {}

    def tensor(index: int) -> str:
        if index == ABSENT:
            return "absent"
        t = graph.tensors[index]
        sort = "const" if t.is_constant else "tensor"
        return f"{sort} {number.setdefault(index, len(number))} {t.dtype.value}{list(t.shape)}"

    def operand(op: Op, position: int) -> str:
        index = op.inputs[position]
        values = f" = {list(graph.tensors[index].ints)}" if position in SHAPING.get(op.kind, ()) else ""
        return tensor(index) + values

    lines = ["in: " + ", ".join(tensor(i) for i in graph.inputs)]
    for op in graph.ops:
        inputs = ", ".join(operand(op, position) for position in range(len(op.inputs)))
        outputs = ", ".join(tensor(i) for i in op.outputs)
        lines.append(f"{' '.join([op.kind, *_attributes(op.attributes)])}: {inputs} -> {outputs}")
    lines.append("out: " + ", ".join(tensor(i) for i in graph.outputs))
    return "\n".join(lines) + "\n"


def _attributes(attributes: Any) -> list[str]:
    """name=value of those that differ from their default, so that a new attribute changes no text written before."""
    if attributes is None:
        return []
    given = {f.name: getattr(attributes, f.name) for f in fields(attributes)}
    defaults = {f.name: f.default for f in fields(attributes)}
    shown = {name: value.name if isinstance(value, enum.Enum) else value for name, value in given.items()}
    return [f"{name}={shown[name]}" for name in given if given[name] != defaults[name]]


def digest(graph: Graph) -> str:
    return hashlib.sha256(canonical_text(graph).encode()).hexdigest()
