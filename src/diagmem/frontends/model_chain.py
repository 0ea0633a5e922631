"""Several models as one graph, where outputs of one are inputs of another.

A wired tensor is like any other between two ops: it lies in the arena, overlaps what it may, and is never copied. Each
model keeps its own state. `joined` makes one graph of several; `Wired` is the source of such a graph.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagmem.frontends.source import Source
from diagmem.model.errors import ModelError, one_line
from diagmem.model.graph import ABSENT, DType, Graph, Op, Shape, Tensor
from diagmem.ops.moving.concatenation import Pack
from diagmem.ops.moving.reshape import Reshape

_ENDS = re.compile(r"(.+):(\d{1,4})(?:\*(\d{1,2}))?=(.+):(\d{1,4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wire:
    """Output number `output` of the model `maker` is input number `input` of the model `reader`. `times`: how often the
    maker runs before the reader, which gets the outputs of all these runs, stacked along a new first axis."""

    maker: str
    output: int
    reader: str
    input: int
    times: int = 1

    @classmethod
    def parsed(cls, text: str) -> Wire:
        """From `a:0=b:0`, or `a:0*3=b:0`."""
        found = _ENDS.fullmatch(text)
        if found is None or found[3] in ("0", "00"):
            raise ModelError(
                f"'{one_line(text, 60)}' is not a wire such as a:0=b:0 (output 0 of a is input 0 of b) or a:0*3=b:0 "
                "(three runs of a for one of b)"
            )
        return cls(found[1], int(found[2]), found[4], int(found[5]), int(found[3] or 1))

    def __str__(self) -> str:
        times = f"*{self.times}" if self.times > 1 else ""
        return f"{self.maker}:{self.output}{times}={self.reader}:{self.input}"


@dataclass(frozen=True)
class Wired(Source):
    """Models, by the names that wires use, that are planned as one. They have no file together. `model`: what they are
    called, each as it was named."""

    parts: Mapping[str, Source] = field(default_factory=dict, hash=False)
    wires: tuple[Wire, ...] = ()

    @classmethod
    def of(cls, parts: Mapping[str, Source], wires: Sequence[Wire]) -> Wired:
        return cls(" ".join(source.label for source in parts.values()), parts=parts, wires=tuple(wires))

    @property
    def name(self) -> str:
        return "+".join(self.parts)

    @property
    def is_from_zoo(self) -> bool:
        return all(source.is_from_zoo for source in self.parts.values())

    @cached_property
    def is_onnx(self) -> bool:
        return False

    @property
    def has_file(self) -> bool:
        return False

    @cached_property
    def content(self) -> bytes:
        raise ModelError(
            "wired models have no common file, and no other runtime runs them as one: emit C, or do this with each "
            "model by itself"
        )

    @cached_property
    def graph(self) -> Graph:
        return joined({name: source.graph for name, source in self.parts.items()}, self.wires)

    @cached_property
    def runnable(self) -> Graph:
        return joined({name: source.runnable for name, source in self.parts.items()}, self.wires)

    def times(self, name: str) -> int:
        """How often a model runs in one run of all."""
        return times_of(name, self.wires)


def named(sources: Sequence[Source]) -> dict[str, Source]:
    """Models by the names that wires use: the file's name without its suffix or, where two are the same, the position
    among the models, from 0 on."""
    names = [source.name for source in sources]
    taken = Counter(names)
    found = {
        name if taken[name] == 1 else str(n): source
        for n, (name, source) in enumerate(zip(names, sources, strict=True))
    }
    if len(found) < len(sources):
        raise ModelError("a model's name is the number of another one: rename its file, since wires name models")
    return found


def with_own_shapes(parts: Mapping[str, Source]) -> dict[str, Source]:
    """Each model with the shapes that are meant for it: `a/input` is the input of the model `a`; a name without a model
    is an input of all."""

    def own(name: str, source: Source) -> dict[str, Shape]:
        owners = {given: next((n for n in parts if given.startswith(f"{n}/")), None) for given in source.shapes}
        return {
            given if owners[given] is None else given[len(name) + 1 :]: shape
            for given, shape in source.shapes.items()
            if owners[given] in (None, name)
        }

    made: dict[tuple[int, tuple[tuple[str, Shape], ...]], Source] = {}
    found = {}
    for name, source in parts.items():
        shapes = own(name, source)
        # A model that is there twice, with the same shapes, stays one source: its constants are there once.
        found[name] = made.setdefault((id(source), tuple(shapes.items())), replace(source, shapes=shapes))
    return found


def groups(parts: Mapping[str, Source], given: Sequence[Wire]) -> list[Source]:
    """The models, in their order; those that are wired to one another are one. A wire may name a model by its position
    among them."""
    wires = [_known(wire, list(parts)) for wire in given]
    group = {name: name for name in parts}
    for wire in wires:
        old, new = group[wire.reader], group[wire.maker]
        group = {name: new if first == old else first for name, first in group.items()}
    members: dict[str, list[str]] = {}
    for name, first in group.items():
        members.setdefault(first, []).append(name)
    return [
        parts[names[0]]
        if len(names) == 1 and not any(names[0] in (wire.maker, wire.reader) for wire in wires)
        else Wired.of({name: parts[name] for name in names}, [wire for wire in wires if wire.maker in names])
        for names in members.values()
    ]


def _known(wire: Wire, names: Sequence[str]) -> Wire:
    """The wire with the models' names."""

    def known(name: str) -> str:
        if name in names:
            return name
        if name.isdecimal() and name.isascii() and int(name) < len(names):
            return names[int(name)]
        listed = ", ".join(one_line(known, 40) for known in names)
        where = f"wire '{one_line(str(wire), 60)}'"
        raise ModelError(f"{where}: no model is called '{one_line(name, 40)}'; the models: {listed}")

    return replace(wire, maker=known(wire.maker), reader=known(wire.reader))


def joined(parts: Mapping[str, Graph], wires: Sequence[Wire]) -> Graph:
    """One graph of several, in which an output of one is an input of another. It has the inputs and outputs that are
    not wired, in the order of the models. Tensor names that several models use get the model's name in front."""
    _check_ends(parts, wires)
    parts = {name: repeated(graph, times_of(name, wires)) for name, graph in parts.items()}
    ends = {(wire.reader, wire.input): wire for wire in wires}
    names = Counter(name for graph in parts.values() for name in {tensor.name for tensor in graph.tensors})
    joint = _Joint(dict(parts), ends, {name for name, count in names.items() if count > 1})
    for name in order_of(list(parts), wires):
        joint.add(name)
    wired = {(wire.maker, wire.output) for wire in wires}
    inputs = tuple(joint.place[p][t] for p, g in parts.items() for n, t in enumerate(g.inputs) if (p, n) not in ends)
    outputs = tuple(joint.place[p][t] for p, g in parts.items() for n, t in enumerate(g.outputs) if (p, n) not in wired)
    return Graph("+".join(parts), tuple(joint.tensors), tuple(joint.ops), inputs, outputs)


def times_of(name: str, wires: Sequence[Wire]) -> int:
    """How often a model runs in one run of all."""
    return max((wire.times for wire in wires if wire.maker == name), default=1)


def repeated(graph: Graph, times: int) -> Graph:
    """The graph with its ops repeated. It has the inputs of each run, one after the other, and each output holds the
    values of all runs, stacked along a new first axis. All runs share state and constants."""
    if times == 1:
        return graph
    runs = [f"run{number}" for number in range(1, times + 1)]
    joint = _Joint(dict.fromkeys(runs, graph), {}, {t.name for t in graph.tensors if not t.is_constant}, {"run1"})
    for run in runs:
        joint.add(run)
    outputs = []
    for made in (graph.tensors[t] for t in graph.outputs):
        stack = replace(made, index=len(joint.tensors), shape=(times, *made.shape), view=None, is_variable=False)
        parts = tuple(joint.place[run][made.index] for run in runs)
        joint.ops.append(Op(len(joint.ops), "PACK", parts, (stack.index,), Pack(0, times)))
        joint.tensors.append(stack)
        outputs.append(stack.index)
    inputs = tuple(joint.place[run][t] for run in runs for t in graph.inputs)
    return replace(graph, tensors=tuple(joint.tensors), ops=tuple(joint.ops), inputs=inputs, outputs=tuple(outputs))


def order_of(names: Sequence[str], wires: Sequence[Wire]) -> list[str]:
    """The models in an order in which each comes after those that it reads from."""
    found: list[str] = []
    while len(found) < len(names):
        ready = (
            name
            for name in names
            if name not in found and all(w.maker in found for w in wires if w.reader == name and w.maker != name)
        )
        following = next(ready, None)
        if following is None or any(w.maker == w.reader for w in wires):
            raise ModelError("the wires form a cycle: a model cannot wait for its own output")
        found.append(following)
    return found


class _Joint:
    """The graph as far as models have been added. `place`: for each model, its tensors' indices there. `stateful`:
    models whose state continues in those that are the same graph; all others have their own."""

    def __init__(
        self,
        parts: Mapping[str, Graph],
        ends: Mapping[tuple[str, int], Wire],
        ambiguous: Collection[str],
        stateful: Collection[str] = (),
    ) -> None:
        self.parts, self.ends, self.ambiguous, self.stateful = parts, ends, ambiguous, stateful
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.place: dict[str, dict[int, int]] = {}

    def add(self, name: str) -> None:
        graph = self.parts[name]
        place = self.place[name] = dict(self._shared(name))
        reshaped = []
        for tensor, made in self._wired(name):
            if made.shape == tensor.shape and made.quantisation == tensor.quantisation:
                place[tensor.index] = made.index
            else:
                reshaped.append((tensor.index, made.index))
        own = [tensor for tensor in graph.tensors if tensor.index not in place]
        place.update({tensor.index: len(self.tensors) + n for n, tensor in enumerate(own)})
        for tensor in own:
            view = tensor.view and replace(tensor.view, base=place[tensor.view.base])
            title = f"{name}/{tensor.name}" if tensor.name in self.ambiguous else tensor.name
            self.tensors.append(replace(tensor, index=place[tensor.index], name=title, view=view))
        for index, source in reshaped:
            shape = Reshape(new_shape=graph.tensors[index].shape)
            self.ops.append(Op(len(self.ops), "RESHAPE", (source,), (place[index],), shape))
        for op in graph.ops:
            inputs = tuple(t if t == ABSENT else place[t] for t in op.inputs)
            outputs = tuple(place[t] for t in op.outputs)
            self.ops.append(replace(op, index=len(self.ops), inputs=inputs, outputs=outputs, origin=None))

    def _wired(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs, and the output of another model that each of them is."""
        graph = self.parts[name]
        for number, index in enumerate(graph.inputs):
            wire = self.ends.get((name, number))
            if wire is not None:
                made = self.place[wire.maker][self.parts[wire.maker].outputs[wire.output]]
                yield graph.tensors[index], self.tensors[made]

    def _shared(self, name: str) -> Iterator[tuple[int, int]]:
        """A model that is there twice has its constants once, and its state if it is one that runs again."""
        graph = self.parts[name]
        twin = next((other for other in self.place if other != name and self.parts[other] is graph), None)
        if twin is None:
            return
        for tensor in graph.tensors:
            if tensor.is_constant or (tensor.is_variable and twin in self.stateful):
                yield tensor.index, self.place[twin][tensor.index]


def _check_ends(parts: Mapping[str, Graph], wires: Sequence[Wire]) -> None:
    for wire in wires:
        why = _conflict(wire, parts, wires)
        if why is not None:
            raise ModelError(f"wire '{one_line(str(wire), 60)}': {why}")


def _conflict(wire: Wire, parts: Mapping[str, Graph], wires: Sequence[Wire]) -> str | None:
    """Why a wire is impossible: both ends must exist, be wired once, and mean the same. A model that runs several times
    does so for all that read from it, and reads from no other."""
    maker, reader = parts[wire.maker], parts[wire.reader]
    ends = (wire.maker, wire.output, maker.outputs, "output"), (wire.reader, wire.input, reader.inputs, "input")
    for name, number, known, what in ends:
        if number >= len(known):
            return f"'{one_line(name, 40)}' has no {what} {number}; it has {len(known)}, from 0 on"
    if sum((other.reader, other.input) == (wire.reader, wire.input) for other in wires) > 1:
        return f"input {wire.input} of '{one_line(wire.reader, 40)}' is wired twice; leave one"
    made, wanted = maker.tensors[maker.outputs[wire.output]], reader.tensors[reader.inputs[wire.input]]
    if made.is_constant or made.is_variable:
        return f"the output is {'a constant' if made.is_constant else 'state'}; it cannot be wired"
    name = one_line(wire.maker, 40)
    if {other.times for other in wires if other.maker == wire.maker} != {wire.times}:
        return f"another wire from '{name}' has not the same *{wire.times}; give it to all of them"
    if wire.times > 1 and any(other.reader == wire.maker for other in wires):
        return f"'{name}' runs several times, so its inputs cannot be wired; leave out one wire"
    return _difference(replace(made, shape=(wire.times, *made.shape)), wanted, wire)


def _difference(made: Tensor, wanted: Tensor, wire: Wire) -> str | None:
    """Why the output's bytes do not mean the same as those of the input, and what to do."""
    if made.dtype is not wanted.dtype:
        return (
            f"the output is {made.dtype.value} and the input {wanted.dtype.value}: convert both models with the same "
            "type there"
        )
    if _without_ones(made.shape) != _without_ones(wanted.shape):
        shape = made.shape[wire.times == 1 :]
        frames, rest = divmod(wanted.elems, max(1, made.elems // wire.times))
        if not rest and 1 < frames < 100 and _without_ones((frames, *made.shape[1:])) == _without_ones(wanted.shape):
            more = replace(wire, times=frames)
            return f"the input takes {frames} outputs at a time: --wire {one_line(str(more), 60)} runs it so often"
        given = f"--shape {one_line(wire.reader, 40)}/{wanted.label}={_shape(shape)}"
        do = f"give it with {given}" if len(shape) == len(wanted.shape) else "convert it so"
        return (
            f"the output is {_shape(shape)} and the input {_shape(wanted.shape)}: they may differ in sizes of 1 "
            f"only; if the second model can have that shape, {do}"
        )
    # Integers without a scale, such as those of a filter bank, are what the reader takes them for.
    is_scaled = made.dtype is not DType.FLOAT32 and made.quantisation is not None
    if is_scaled and _scale(made) != _scale(wanted):
        return (
            f"the output has {_scale(made)} and the input {_scale(wanted)}: quantise the second model with the first "
            "one's outputs as its samples, or give it those numbers"
        )
    return None


def _without_ones(shape: Shape) -> Shape:
    return tuple(size for size in shape if size != 1)


def _shape(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _scale(tensor: Tensor) -> str:
    found = tensor.quantisation
    if found is None:
        return "no scale"
    if found.per_channel:
        return f"{len(found.scales)} scales, from {found.scales[0]!r} and zero point {found.zero_points[0]}"
    return f"scale {found.scales[0]!r} and zero point {found.zero_points[0]}"
