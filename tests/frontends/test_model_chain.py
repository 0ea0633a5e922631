"""Models that are wired are one graph, which computes what they compute one after another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import diagmem
from diagmem.frontends.model_chain import Wire, Wired, joined, repeated
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Quantisation, Tensor
from diagmem.ops.moving.reshape import Reshape
from diagmem.verification.one_by_one import opinion_of_parts
from diagmem.verification.reference import runs, sample_inputs
from tests.backends.c.models import tiny
from tests.cut_models import cut
from tests.networks import chain
from tests.streams import stream


def pipe(front: Graph, back: Graph, wires: tuple[str, ...]) -> Wired:
    found = diagmem.wired({"front": front, "back": back}, wires)
    assert isinstance(found, Wired)
    return found


def agrees(source: Wired, graph: Graph | None = None) -> bool:
    """Whether a graph computes what the models do one by one."""
    found = source.runnable if graph is None else graph
    return opinion_of_parts(source, found, sample_inputs(found, 4)).disagreement is None


@pytest.mark.parametrize("at", range(1, len(tiny().ops)))
def test_a_model_cut_in_two_is_whole_again(at: int) -> None:
    """Wherever it is cut, also within a residual, where two wires lead across: the same arena, proven alike."""
    model = tiny()
    source = pipe(*cut(model, at))
    whole, wired = diagmem.plan(model), diagmem.plan(source)
    assert (wired.arena_bytes, wired.lower_bound_bytes) == (whole.arena_bytes, whole.lower_bound_bytes)
    assert [op.kind for op in source.graph.ops] == [op.kind for op in model.ops]
    assert agrees(source)


def test_rows_go_through() -> None:
    """Row by row, a wired tensor is never whole."""
    model = chain(3, 8, 8, 4, size=16)
    source = pipe(*cut(model, 2))
    options: dict[str, Any] = {"schedule": "rows", "input_rows": True}
    assert diagmem.plan(source, **options).arena_bytes == diagmem.plan(model, **options).arena_bytes


def test_it_runs_as_c() -> None:
    """Bit for bit as numpy has it, and as the models one by one."""
    (verdict,) = diagmem.verify(pipe(*cut(tiny(), 4)), inputs=3)
    assert verdict.ok
    assert "the models one by one" in verdict.to_json()["compared_with"]


def test_another_graph_is_found_out() -> None:
    """Models run one by one do not agree with a graph that computes something else."""
    front, back, wires = cut(tiny(), 4)
    other = pipe(front, cut(tiny(name="other"), 4)[1], wires)
    constants = [t for t in back.tensors if t.is_constant and t.data is not None and t.data.size > 8]
    assert constants[0].data is not None
    changed = replace(constants[0], data=-constants[0].data)
    tensors = tuple(changed if t.index == changed.index else t for t in back.tensors)
    assert not agrees(other, pipe(front, replace(back, tensors=tensors), wires).runnable)


@pytest.mark.parametrize("seed", [5, 7, 13, 19])
def test_state_is_kept_apart(seed: int) -> None:
    """A model that remembers, and the same once more behind it: each has its own variables, and constants are there
    once."""
    model = stream(seed)
    given, made = model.tensors[model.inputs[0]], [model.tensors[t] for t in model.outputs]
    fitting = next(n for n, t in enumerate(made) if t.shape == given.shape and not t.is_variable)
    source = diagmem.wired({"a": model, "b": model}, [f"a:{fitting}=b:0"])
    assert isinstance(source, Wired)
    joined = source.runnable
    assert len(joined.variables) == 2 * len(model.variables)
    assert sum(t.is_constant for t in joined.tensors) == sum(t.is_constant for t in model.tensors)
    assert agrees(source)
    assert diagmem.check(source, diagmem.plan(source, effort="quick").to_json()) == []


@pytest.mark.parametrize("seed", [5, 7, 13, 19])
def test_one_model_runs_several_times_for_another(seed: int) -> None:
    """Frames of a model with state, three for each run of the next: state goes on from frame to frame, the plan is
    safe, and running the models one by one gives the same."""
    model = stream(seed)
    given = next(n for n, t in enumerate(model.outputs) if not model.tensors[t].is_variable)
    frame = model.tensors[model.outputs[given]]
    taken = Tensor(0, "frames", (1, 3, *frame.shape), frame.dtype, quantisation=frame.quantisation)
    flat = replace(taken, index=1, name="flat", shape=(3 * frame.elems,))
    reader = Graph("reader", (taken, flat), (Op(0, "RESHAPE", (0,), (1,), Reshape(flat.shape)),), (0,), (1,))
    source = diagmem.wired({"maker": model, "reader": reader}, [f"maker:{given}*3=reader:0"])
    assert isinstance(source, Wired)
    joined = source.runnable
    assert len(joined.variables) == len(model.variables)
    assert len(joined.inputs) == 3 * len(model.inputs)
    assert sum(t.is_constant for t in joined.tensors) == sum(t.is_constant for t in model.tensors)
    assert agrees(source)
    assert diagmem.check(source, diagmem.plan(source, effort="quick").to_json()) == []
    with pytest.raises(ModelError, match=r"takes 3 outputs at a time: --wire maker:\d\*3=reader:0"):
        _ = diagmem.wired({"maker": model, "reader": reader}, [f"maker:{given}=reader:0"]).graph


def test_repeated_models_are_wired_alike() -> None:
    """All readers of a model that runs several times get as many of its outputs, and nobody writes its inputs."""
    model = chain(3, size=4)
    with pytest.raises(ModelError, match="another wire from 'a'"):
        _ = diagmem.wired({"a": model, "b": model, "c": model}, ["a:0*2=b:0", "a:0=c:0"]).graph
    with pytest.raises(ModelError, match="its inputs cannot be wired"):
        _ = diagmem.wired({"a": model, "b": model, "c": model}, ["b:0*2=c:0", "a:0=b:0"]).graph


def test_a_run_left_out_is_found_out() -> None:
    """State of a model that is run twice in place of three times does not agree."""
    model = stream(5)
    two, three = (replace(repeated(model, times), name="m") for times in (2, 3))
    inputs = sample_inputs(three, 1)
    count = len(two.inputs)
    after_two = next(runs(two, [inputs[0][:count]]))
    after_three = next(runs(three, inputs))
    state = [t.index for t in model.variables]
    assert any(not np.array_equal(after_two[t], after_three[t]) for t in state)


def test_one_output_for_several() -> None:
    """Three models: what one makes, two read. Names that several have are told apart."""
    front, back, _ = cut(tiny(), 4)
    front = replace(front, outputs=front.outputs[:1])
    back = cut(tiny(), 4)[1]
    wires = [f"front:0={name}:{n}" for name in ("left", "right") for n in range(len(back.inputs))]
    source = diagmem.wired({"front": front, "left": back, "right": back}, wires)
    graph = source.graph
    assert len(graph.inputs) == 1
    assert len(graph.outputs) == 2
    names = [t.name for t in graph.tensors if not t.is_constant]
    assert len(set(names)) == len(names)
    assert any(name.startswith("left/") for name in names)
    assert isinstance(source, Wired)
    assert agrees(source)


def test_sizes_of_one_do_not_matter() -> None:
    """An output of 5 is an input of 1 x 5: nothing is copied for it."""
    front, back, wires = cut(tiny(), len(tiny().ops) - 1)
    tensors = list(front.tensors)
    at = front.outputs[0]
    assert tensors[at].shape == (1, 5)
    given = back.inputs[0]
    wider = replace(back.tensors[given], shape=(1, 1, 5))
    answer = replace(back.tensors[back.outputs[0]], shape=(1, 1, 5))
    others = {given: wider, answer.index: answer}
    source = pipe(front, replace(back, tensors=tuple(others.get(t.index, t) for t in back.tensors)), wires)
    assert [op.kind for op in source.graph.ops].count("RESHAPE") == 1 + sum(op.kind == "RESHAPE" for op in tiny().ops)
    made = diagmem.plan(source)
    assert made.arena_bytes == diagmem.plan(tiny()).arena_bytes
    assert agrees(source)


def changed(graph: Graph, **what: Any) -> Graph:
    """With another first input."""
    tensor = replace(graph.tensors[graph.inputs[0]], **what)
    return replace(graph, tensors=tuple(tensor if t.index == tensor.index else t for t in graph.tensors))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"dtype": DType.INT16}, "is int8 and the input int16"),
        ({"shape": (1, 5, 4, 8)}, "sizes of 1 only.*--shape back/"),
        ({"quantisation": Quantisation((0.5,), (3,))}, "scale 0.5 and zero point 3"),
        ({"quantisation": None}, "no scale"),
    ],
)
def test_what_does_not_agree_is_refused(what: dict[str, Any], said: str) -> None:
    front, back, wires = cut(tiny(), 1)
    with pytest.raises(ModelError, match=said):
        joined({"front": front, "back": changed(back, **what)}, [Wire.parsed(wire) for wire in wires])


@pytest.mark.parametrize(
    ("wires", "said"),
    [
        (["front:0=back"], "is not a wire"),
        (["front:0=rear:0"], "no model is called 'rear'; the models: front, back"),
        (["front:7=back:0"], "has no output 7"),
        (["front:0=back:7"], "has no input 7"),
        (["front:0=back:0", "front:0=back:0"], "wired twice"),
        (["front:0*0=back:0"], "is not a wire"),
        (["front:0*2=back:0"], "they may differ in sizes of 1 only"),
        (["front:0=front:0"], "wire them all"),
        ([], "wire them all"),
    ],
)
def test_wires_that_are_none(wires: list[str], said: str) -> None:
    front, back, _ = cut(tiny(), 1)
    with pytest.raises(ModelError, match=said):
        _ = diagmem.wired({"front": front, "back": back}, wires).graph


def test_no_circle() -> None:
    """A model cannot wait for what is made of its own output."""
    model = chain(3, size=4)
    with pytest.raises(ModelError, match="cycle"):
        _ = diagmem.wired({"a": model, "b": model}, ["a:0=b:0", "b:0=a:0"]).graph


def test_models_by_their_numbers() -> None:
    """Where names are not known, the number of a model is."""
    front, back, _ = cut(tiny(), 1)
    source = diagmem.wired({"front": front, "back": back}, ["0:0=1:0"])
    assert isinstance(source, Wired)
    assert source.wires == (Wire("front", 0, "back", 0),)
