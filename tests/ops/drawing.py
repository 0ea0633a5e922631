"""Random nodes that kernels can run, always the same ones, for each file of a family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from diagmem.model.errors import ModelError
from diagmem.model.graph import Node, Tensor, View
from diagmem.ops import Unsupported, kinds
from tests.ops.cases import kinds_by_file
from tests.ops.fitting import SeededDraw, fitted
from tests.ops.sampling import samples_of

CASES = kinds_by_file()


def names_of(case: str) -> set[str]:
    """The kinds that a file has kernels for."""
    return set(CASES[case].names) - set(CASES[case].without_kernel)


def sampled(name: str, count: int) -> list[Node]:
    """So many nodes of one name, just as they are drawn."""
    return [samples_of(name).sample(name, SeededDraw(f"{name} {number}")) for number in range(count)]


def runnable(case: str) -> Iterator[Node]:
    """Nodes of a file's kinds in turn, without end, that our kernels run; types change from round to round."""
    names = sorted(names_of(case))
    seed = 0
    while True:
        for name in names:
            node = fitted(samples_of(CASES[case]).sample(name, SeededDraw(f"{name} {seed}")), seed)
            if is_supported(node):
                yield node
        seed += 1


def drawn(case: str, count: int) -> list[Node]:
    """About so many nodes for each kind and some more, all at once: one program is compiled for all. Those that hardly
    have an element are left out, but for a few."""
    wanted = count * (6 + len(names_of(case)))
    found: list[Node] = []
    for node in runnable(case):
        if node.output.elems > 3 or len(found) % 8 == 0:
            found.append(node)
        if len(found) == wanted:
            return found
    raise AssertionError("there is no end of nodes")


def is_supported(node: Node) -> bool:
    try:
        kinds()[node.op.kind].c_call(node)
    except (Unsupported, ModelError):
        return False
    return True


def spread_out(node: Node, seed: int) -> Node:
    """The node with tensors whose axes lie further apart, as parts of larger ones."""
    rng = np.random.default_rng(seed)

    def spread(tensor: Tensor) -> Tensor:
        strides, step = [], 1
        for size in reversed(tensor.shape):
            strides.append(step)
            step = step * size + int(rng.integers(3))
        return replace(tensor, view=View(99, 0, tuple(reversed(strides))))

    inputs = tuple(t if t is None or t.is_constant else spread(t) for t in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(spread(t) for t in node.outputs))
