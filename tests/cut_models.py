"""A model cut in two: what the first part makes, and the second one needs, is wired."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from diagmem.model.graph import ABSENT, Graph, Op


def cut(graph: Graph, at: int) -> tuple[Graph, Graph, tuple[str, ...]]:
    """The ops before number `at` as the model 'front', the others as 'back', and the wires between them."""
    made = {t for op in graph.ops[:at] for t in op.outputs}
    read = {t for op in graph.ops[at:] for t in op.inputs}
    passed = sorted(t for t in read & made if not graph.tensors[t].is_variable)
    kept = [t for t in graph.outputs if t in made]
    later = [t for t in graph.outputs if t not in made]
    needs = _read(graph.ops[:at])
    front = _part(graph, "front", graph.ops[:at], [t for t in graph.inputs if t in needs], [*passed, *kept])
    own = [t for t in graph.inputs if t not in needs]
    back = _part(graph, "back", graph.ops[at:], [*passed, *own], later)
    return front, back, tuple(f"front:{n}=back:{n}" for n in range(len(passed)))


def _read(ops: Iterable[Op]) -> Collection[int]:
    return {t for op in ops for t in op.inputs}


def _part(graph: Graph, name: str, ops: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    used = sorted({*inputs, *outputs, *(t for op in ops for t in (*op.inputs, *op.outputs) if t != ABSENT)})
    place = {ABSENT: ABSENT, **{old: new for new, old in enumerate(used)}}

    def moved(tensors: Iterable[int]) -> tuple[int, ...]:
        return tuple(place[t] for t in tensors)

    return Graph(
        name,
        tuple(replace(graph.tensors[old], index=new) for new, old in enumerate(used)),
        tuple(replace(op, index=n, inputs=moved(op.inputs), outputs=moved(op.outputs)) for n, op in enumerate(ops)),
        moved(inputs),
        moved(outputs),
    )
