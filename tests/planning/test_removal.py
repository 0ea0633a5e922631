"""Which ops are removed: as many as the plan does not grow by."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given

import diagmem
from diagmem.backends.json import to_json
from diagmem.model.errors import PlanError
from diagmem.model.graph import Graph, Padding
from diagmem.model.schedule import Schedule
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.planning import removal
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, footprint
from diagmem.planning.options import Options
from diagmem.planning.order.search import Search, search
from diagmem.planning.place.effort import NORMAL
from diagmem.planning.removal import Removed, without_ops
from diagmem.transforms import TRANSFORMS, transformed, transformed_again
from tests.execution import with_values
from tests.profiles import examples
from tests.streams import Stream
from tests.transforms.removable_ops import Tangle, tangles


def dense_block(layers: int = 5) -> Graph:
    """Each layer reads all that was made before, and adds to it; its wide middle needs most at the last layer."""
    net = Tangle()
    x = net.relu(net.input(1, 6, 6, 4))
    for _ in range(layers):
        x = net.joined(3, x, net.conv(net.conv(net.relu(x), 8, 1), 2))
    return net.graph(net.mean(x))


def test_only_what_does_not_cost_anything_goes() -> None:
    """Held whole from the start, the last concatenated tensor would make a dense block larger: its op stays, those
    before it go."""
    graph = dense_block()
    plain, made = diagmem.plan(graph, schedule="best", skip="all"), diagmem.plan(graph, schedule="best")
    forced = diagmem.plan(transformed(graph, TRANSFORMS)[0], schedule="best", skip="all")
    assert forced.arena_bytes > plain.arena_bytes >= made.arena_bytes
    assert 0 < [op.kind for op in made.plan.graph.ops].count("CONCATENATION") < 5


def mixed_windows() -> Graph:
    """Windows over time, all of them read first, two cut into halves of channels of which one looks less far back:
    neither views of variables nor those of halves help by themselves."""
    net = Stream(random.Random(1))
    x = net.input(1, 1, 1, 8)
    variables = {rows: net.memory(1, rows - 1, 1, 8) for rows in (5, 11, 15)}
    reads = {rows: net.read(variable) for rows, variable in variables.items()}
    for rows, variable in variables.items():
        window = net.joined(1, reads[rows], x)
        net.assign(variable, net.rows(window, 1, rows - 1))
        parts = [window]
        if rows > 5:
            parts = [net.cut(window, [0, first, 0, at], [1, rows - first, 1, 4]) for first, at in ((4, 0), (0, 4))]
        pooled = [net.op("MAX_POOL_2D", _over_rows(net, part), part) for part in parts]
        x = net.conv(net.joined(3, *pooled) if len(pooled) > 1 else pooled[0], 8, 1)
    return with_values(net.graph(net.mean(x)), 1)


def _over_rows(net: Stream, x: int) -> Pool2D:
    return Pool2D(Padding.VALID, 1, 1, net.tensors[x].shape[1], 1)


def test_what_only_helps_together_is_taken_together() -> None:
    """Where no transform is worth it by itself, all of them are tried at once."""
    graph = mixed_windows()
    forced = diagmem.plan(transformed(graph, TRANSFORMS)[0], skip="all")
    assert diagmem.plan(graph).arena_bytes <= forced.arena_bytes


def test_trials_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """When they are used up, what was found good so far is taken."""
    monkeypatch.setattr(removal, "MOST_TRIALS", 4)
    tried: list[Footprint] = []

    def counted(needs: Footprint, states: int) -> Search:
        tried.append(needs)
        return search(needs, states)

    monkeypatch.setattr(removal, "search", counted)
    graph = dense_block()
    plain = diagmem.plan(graph, schedule="best", skip="all")
    found = without_ops(Removed(graph, ()), Options(), TRANSFORMS, plain.arena_bytes, NORMAL)
    assert len(tried) <= 4
    assert all(diagmem.plan(less.graph, schedule="best", skip="all").arena_bytes <= plain.arena_bytes for less in found)


@examples(15)
@given(tangles(most_ops=6))
def test_the_same_removals_give_the_same_graph(graph: Graph) -> None:
    """What a plan tells of its removals is enough to repeat them."""
    made = diagmem.plan(graph)
    told = [(row["transform"], row["ops"]) for row in to_json(made)["removed"]]
    assert transformed_again(graph, told) == made.plan.graph


def test_views_are_aligned_as_tensors_are() -> None:
    """A part that would start at an odd address is copied."""
    net = Tangle()
    x = net.relu(net.input(1, 4, 4, 2))
    graph = net.graph(net.relu(net.joined(3, net.conv(x, 4), net.conv(x, 3))))
    for align, is_removed in ((4, True), (16, True), (32, False)):
        plan = diagmem.plan(graph, schedule="best", align=align).plan
        assert (not any(op.kind == "CONCATENATION" for op in plan.graph.ops)) == is_removed
        assert all(offset % align == 0 for offset in plan.offsets.values())


def test_a_whole_is_held_from_its_first_part_on() -> None:
    """And only the op that writes first may overlap it with an input that dies there."""
    net = Tangle()
    x = net.input(1, 4, 4, 2)
    a, b = net.relu(x), net.input(1, 4, 4, 2)
    whole = net.joined(3, a, net.relu(b))
    graph, _ = transformed(net.graph(net.relu(whole)), ["remove-concat"])
    needs = footprint(graph, Options())
    store = next(s for s in needs.stores if whole in s.tensors)
    assert store.writers == {0, 1}
    problem = build_problem(needs, Schedule.whole(range(3)))
    names = [buffer.name for buffer in problem.buffers]
    buffer = problem.buffers[names.index(f"t{whole}")]
    assert (buffer.first_step, buffer.end_step) == (0, 3)
    over = {(names[out], names[source]) for out, source in problem.overlaps if names[out] == buffer.name}
    assert over == {(f"t{whole}", f"t{x}")}


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(PlanError, match="transform 'remove-all' is not known; known: all, narrow-weights"):
        diagmem.plan(dense_block(), skip=["remove-all"])


def test_kernels_of_others_keep_every_op() -> None:
    made = diagmem.plan(dense_block(), kernels="tflm-reference")
    assert (made.plan.graph, made.removals) == (made.model, ())


def test_the_ladder_never_rises() -> None:
    """Whole tensors, best order, overlap, removal: each step takes no more than the one before, and the last is the
    plan."""
    made = diagmem.plan(dense_block(), schedule="best")
    assert [rung.step for rung in made.ladder] == ["whole tensors", "best order", "overlap", "removal"]
    sizes = [rung.arena_bytes for rung in made.ladder]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (made.baseline_bytes, made.arena_bytes)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"schedule": "best", "overlap": False}, ["whole tensors", "best order", "removal"]),
        ({"schedule": "best", "skip": "all"}, ["whole tensors", "best order", "overlap"]),
        ({"skip": "all"}, ["whole tensors", "best order", "overlap", "rows"]),
        ({"schedule": "eager", "skip": "all"}, ["whole tensors", "eager order", "overlap"]),
        ({"schedule": "rows", "skip": "all"}, ["whole tensors", "best order", "overlap", "rows"]),
    ],
)
def test_steps_that_were_not_taken_are_not_in_the_ladder(options: dict[str, object], steps: list[str]) -> None:
    made = diagmem.plan("zoo:kws_dscnn_int8", **options)
    assert [rung.step for rung in made.ladder] == steps


@pytest.mark.parametrize(
    ("model", "arena_bytes", "removed"),
    [
        ("squeezenet_1.1_int8", 790564, 9),
        ("inception_v4", 6896480, 25),
        ("densenet_121", 5620192, 57),
        ("nasnet_mobile", 2530464, 99),
    ],
)
def test_what_it_is_worth(model: str, arena_bytes: int, removed: int) -> None:
    """Networks whose ops can go, proven optimal."""
    made = diagmem.plan(f"zoo:{model}", schedule="best")
    assert made.optimal
    assert made.arena_bytes <= arena_bytes
    assert sum(len(r.ops) for r in made.removals) >= removed


@pytest.mark.parametrize(("model", "limit_kb"), [("densenet_121", 5489), ("inception_v4", 6735)])
def test_converted_models(shared: Path, model: str, limit_kb: int) -> None:
    made = diagmem.plan(shared / "models" / "paper" / "keras" / f"{model}.tflite", schedule="best")
    assert made.optimal
    assert made.arena_bytes <= limit_kb * 1024
