"""How far the outputs and inputs of an operation must start apart, store by store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diagmem.model.graph import Node
from diagmem.ops import kind_of
from diagmem.planning.store import Store

SeparationRule = Callable[[Node, int, int], int | None]
"""(node, input position, output number) -> separation(output below, input above) in bytes; None: may not overlap."""


class Separations(Sequence[Mapping[tuple[int, int], int]]):
    """Those of each node, worked out when they are first asked for: bounds need few of them."""

    def __init__(
        self, nodes: Sequence[Node], store_of: Mapping[int, int], stores: Sequence[Store], rule: SeparationRule
    ) -> None:
        self._nodes, self._store_of, self._stores, self._rule = nodes, store_of, stores, rule
        self._found: dict[int, Mapping[tuple[int, int], int]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, op: Any) -> Any:
        if op not in self._found:
            self._found[op] = _separations(self._nodes[op], self._store_of, self._stores, self._rule)
        return self._found[op]


def _separations(
    node: Node, store_of: Mapping[int, int], stores: Sequence[Store], rule: SeparationRule
) -> dict[tuple[int, int], int]:
    """Separations of an op's outputs and inputs, where they let them overlap; the largest if a pair meets twice.

    A reshape that is a copy stays clear of its source: runtimes use memcpy for it.
    """
    found: dict[tuple[int, int], int] = {}
    kind = kind_of(node.op.kind)
    for number, output in enumerate(node.outputs):
        out = store_of.get(output.index)
        is_first = out is not None and (node.op.index in stores[out].writers or stores[out].holds_state)
        if out is None or not is_first or (kind is not None and kind.is_alias):
            continue
        for position, tensor in node.activations():
            store = store_of.get(tensor.index)
            if store is None or store == out or stores[store].is_kept:
                continue
            separation = rule(node, position, number)
            apart = output.span_bytes if separation is None else separation
            # Between the starts of the stores, in which either tensor may begin further on.
            apart += output.offset_bytes - tensor.offset_bytes
            found[out, store] = max(found.get((out, store), apart), apart)
    return {pair: apart for pair, apart in found.items() if apart < stores[pair[0]].size_bytes}
