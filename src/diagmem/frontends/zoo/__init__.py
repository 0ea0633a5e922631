"""The models of the paper and of MLPerf Tiny, layer by layer: graphs to plan with, weightless until one is written."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from diagmem.frontends.zoo.networks import Builder
from diagmem.model.errors import PlanError, one_line
from diagmem.model.graph import DType, Graph, Padding, Tensor
from diagmem.ops import Activation

OPTIONS = {"padding": Padding, "activation": Activation}


@dataclass(frozen=True, slots=True)
class Entry:
    """A model of the zoo. `layers`: a method of `Builder` each, the layers whose outputs it takes, by number, and its
    arguments, the optional ones by name."""

    name: str
    description: str
    source: str
    dtype: str
    layers: list[Any]

    def make(self) -> Graph:
        """Its graph, without weights."""
        net = Builder(self.name, DType(self.dtype))
        made: list[Tensor] = []
        for method, inputs, *sizes in self.layers:
            given = sizes.pop() if sizes and isinstance(sizes[-1], dict) else {}
            options = {key: OPTIONS[key][v.upper()] if key in OPTIONS else v for key, v in given.items()}
            made.append(getattr(net, method)(*(made[number] for number in inputs), *sizes, **options))
        return net.graph(made[-1])


@cache
def models() -> dict[str, Entry]:
    """Every model by name: the paper's eleven, SqueezeNet, and the four of MLPerf Tiny."""
    table = json.loads(files(__package__).joinpath("networks.json").read_text(encoding="utf-8"))
    return {name: Entry(name, **entry) for name, entry in table.items()}


def build(name: str) -> Graph:
    """The graph of a model, without weights."""
    entries = models()
    if name in entries:
        return entries[name].make()
    close = [known for known in entries if name and name.lower() in known]
    close = close[:3] or difflib.get_close_matches(name, entries, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`diagmem zoo` lists them all"
    raise PlanError(f"the zoo has no model '{one_line(name)}'; {hint}")
