"""Small networks that remember: windows over what comes in, sums, delays, variables that trade places."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from diagmem.model.graph import Graph, Op
from tests.execution import with_values
from tests.transforms.removable_ops import Tangle


class Stream(Tangle):
    """A network under construction, in float."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance = chance

    def memory(self, *shape: int) -> int:
        first = np.random.default_rng(self.chance.randrange(99)).integers(-3, 4, shape).astype(np.float32)
        return self.tensor(shape, is_variable=True, initial=first)

    def read(self, variable: int) -> int:
        return self.op("READ_VARIABLE", None, variable)

    def assign(self, variable: int, value: int) -> None:
        self.ops.append(Op(len(self.ops), "ASSIGN_VARIABLE", (value,), (variable,)))

    def rows(self, x: int, begin: int, count: int) -> int:
        shape = self.tensors[x].shape
        return self.cut(x, [0, begin, 0, 0], [1, count, *shape[2:]])


Move = Callable[[Stream, random.Random, int], list[int]]


def stream(seed: int, most_moves: int = 4) -> Graph:
    chance = random.Random(seed)
    net = Stream(chance)
    images = [net.input(1, chance.randint(1, 3), chance.randint(1, 2), chance.randint(1, 3))]
    if chance.random() < 0.3:
        images.append(net.reshape(images[0], *net.tensors[images[0]].shape))
    for _ in range(chance.randint(1, most_moves)):
        images += chance.choice(_MOVES)(net, chance, chance.choice(images[-3:]))
    read = {t for op in net.ops for t in op.inputs}
    made = [t for op in net.ops for t in op.outputs if not net.tensors[t].is_variable]
    outputs = [t for t in made if t not in read] or [net.relu(images[-1])]
    outputs += [t for t in made if t in read and chance.random() < 0.1]
    return with_values(net.graph(*dict.fromkeys(outputs)), seed)


def streams(most_moves: int = 4) -> st.SearchStrategy[Graph]:
    return st.integers(0, 2**32).map(lambda seed: stream(seed, most_moves))


def _window(net: Stream, chance: random.Random, x: int) -> list[int]:
    """What was, and behind it what is new; the latest rows, or the first, are kept."""
    shape = net.tensors[x].shape
    kept = chance.randint(1, 4)
    variable = net.memory(1, kept, *shape[2:])
    parts = [net.read(variable), x]
    window = net.joined(1, *(parts if chance.random() < 0.8 else parts[::-1]))
    begin = chance.choice([shape[1], shape[1], shape[1], 0])
    is_early = chance.random() < 0.5
    if is_early:
        net.assign(variable, net.rows(window, begin, kept))
    found = [_seen(net, chance, window) for _ in range(chance.randint(1, 2))]
    if not is_early:
        net.assign(variable, net.rows(window, begin, kept))
    return found


def _seen(net: Stream, chance: random.Random, window: int) -> int:
    height = net.tensors[window].shape[1]
    looks: list[Callable[[int], int]] = [
        net.relu,
        net.depthwise,
        lambda t: net.conv(t, 2),
        lambda t: net.rows(t, height - 1, 1),
        lambda t: net.relu(net.reshape(t, 1, 1, height, net.tensors[t].elems // height)),
    ]
    return chance.choice(looks)(window)


def _shifted(net: Stream, chance: random.Random, x: int) -> list[int]:
    """All of the window is kept, and loses its oldest rows before new ones come."""
    shape = net.tensors[x].shape
    kept = shape[1] + chance.randint(1, 3)
    variable = net.memory(1, kept, *shape[2:])
    window = net.joined(1, net.rows(net.read(variable), shape[1], kept - shape[1]), x)
    net.assign(variable, window)
    return [_seen(net, chance, window)]


def _sum(net: Stream, chance: random.Random, x: int) -> list[int]:
    variable = net.memory(*net.tensors[x].shape)
    total = net.add(net.read(variable), chance.choice([x, net.relu(x)]))
    net.assign(variable, total)
    return [net.relu(total)] if chance.random() < 0.7 else [net.read(variable)]


def _delay(net: Stream, chance: random.Random, x: int) -> list[int]:
    """What came in the last run."""
    variable = net.memory(*net.tensors[x].shape)
    before = net.read(variable)
    net.assign(variable, x)
    return [before] if chance.random() < 0.5 else [net.relu(before), net.relu(x)]


def _traded(net: Stream, chance: random.Random, x: int) -> list[int]:
    """Each variable becomes what the other was, or one after the other what came in."""
    shape = net.tensors[x].shape
    one, two = net.memory(*shape), net.memory(*shape)
    was = net.read(one), net.read(two)
    values = [was[1], chance.choice([was[0], x])]
    for variable, value in chance.sample([(one, values[0]), (two, values[1])], 2):
        net.assign(variable, value)
    return [net.add(*was)]


def _twice(net: Stream, chance: random.Random, x: int) -> list[int]:
    """Assigned twice, and read before, between and after."""
    variable = net.memory(*net.tensors[x].shape)
    found = [net.relu(net.read(variable))]
    for value in (net.relu(x), found[0]):
        net.assign(variable, value)
        found.append(net.relu(net.read(variable)))
    return found


_MOVES: list[Move] = [
    *(_window, _window, _window, _window, _shifted, _sum, _delay, _traded, _twice),
    lambda net, chance, x: [net.relu(x)],
    lambda net, chance, x: [net.conv(x, chance.randint(1, 3), 1)],
]
