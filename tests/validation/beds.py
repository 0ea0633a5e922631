"""Small networks, each planned in its way, in which faults of the planner show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import diagmem
from diagmem.kernels import library
from diagmem.model.graph import DType, Graph, Padding
from diagmem.ops.pooling.pool_2d import Pool2D
from diagmem.planning.plan import Plan
from diagmem.transforms import transformed
from diagmem.validation import Finding, Rules, replay
from tests.networks import Net, chain, diamond


@dataclass(frozen=True)
class Bed:
    """A network, the transforms that are made in any case, and how it is planned: layer by layer, if not asked for
    otherwise."""

    graph: Graph
    asked: dict[str, Any] = field(default_factory=dict)
    transforms: tuple[str, ...] = ()

    def plan(self) -> Plan:
        graph, _ = transformed(self.graph, self.transforms)
        return diagmem.plan(graph, **{"schedule": "best", **self.asked}).plan

    def findings(self, plan: Plan) -> list[Finding]:
        """Judged by what was asked for, not by what the plan says about itself."""
        tensors = plan.graph.tensors
        kernels = library(self.asked.get("kernels", "diagmem"))
        rules = Rules(
            self.asked.get("align", kernels.align_bytes),
            self.asked.get("keep_inputs", False),
            self.asked.get("external_io", False),
            self.asked.get("recompute", 1.0),
        )
        places = {t: rows for t, rows in plan.row_offsets.items() if tensors[t].view is None}
        return replay(plan.graph, kernels, plan.schedule, places, plan.scratch, plan.arena_bytes, rules)


def image(dtype: DType = DType.INT8) -> Graph:
    """Windows of several heights and strides, an element-wise op and a join; rows of an odd number of bytes."""
    net = Net(dtype)
    x = net.conv(net.input(1, 12, 5, 3), 3)
    y = net.add(net.relu(net.depthwise(net.conv(x, 4))), net.conv(x, 4, kernel=1))
    return net.graph(net.conv(net.op("MAX_POOL_2D", Pool2D(Padding.VALID, 2, 2, 2, 2), y), 3))


def summed() -> Graph:
    net = Net()
    x = net.conv(net.conv(net.input(1, 9, 5, 3), 5), 7)
    return net.graph(net.relu(net.reshape(net.mean(x), 1, 7)))


def in_place() -> Graph:
    """Ops that turn single rows into single rows, larger and smaller ones; the first is read again at the end."""
    net = Net()
    x = net.conv(net.input(1, 8, 5, 3), 6)
    y = net.conv(net.conv(net.relu(x), 9, kernel=1), 6, kernel=1)
    return net.graph(net.conv(net.add(net.relu(y), x), 3))


def straight_through() -> Graph:
    """Something is added to the input, and that is the output: both lie in one piece."""
    net = Net()
    x = net.input(1, 8, 4, 3)
    return net.graph(net.add(net.conv(net.conv(x, 16), 3), x))


def bottlenecks() -> Graph:
    net = Net()
    x = net.input(1, 30, 4, 2)
    for _ in range(2):
        x = net.conv(net.depthwise(net.conv(x, 16, kernel=1)), 2, kernel=1)
    return net.graph(net.mean(x))


def reduced() -> Graph:
    net = Net()
    return net.graph(net.relu(net.mean(net.relu(net.input(1, 4, 4, 8)))))


def joined() -> Graph:
    """Parts of different size in one tensor."""
    net = Net()
    x = net.input(1, 4, 4, 3)
    return net.graph(net.conv(net.concat(net.conv(x, 5), net.conv(net.conv(x, 4), 2), net.relu(x)), 3))


def opaquely_joined() -> Graph:
    net = Net()
    x = net.input(1, 4, 4, 3)
    return net.graph(net.conv(net.concat(net.opaque(net.conv(x, 5)), net.conv(net.conv(x, 4), 2)), 3))


def slowly_joined() -> Graph:
    """One part is made first, then much else, then the other."""
    net = Net()
    x = net.input(1, 4, 4, 3)
    first = net.conv(x, 4)
    return net.graph(net.conv(net.concat(first, net.conv(net.conv(net.conv(x, 9), 9), 4)), 3))


def reshaped() -> Graph:
    """A tensor that is read again after something else was made of it, and under another shape."""
    net = Net()
    x = net.conv(net.input(1, 4, 4, 4), 4)
    y = net.relu(x)
    return net.graph(net.add(net.reshape(y, 64), net.reshape(net.add(x, net.relu(y)), 64)))


def two_results() -> Graph:
    net = Net()
    x = net.relu(net.input(1, 6, 6, 2))
    early = net.conv(x, 2)
    return net.graph(early, net.conv(net.conv(net.conv(x, 8), 8), 2))


def branches() -> Graph:
    net = Net()
    x = net.input(1, 6, 6, 2)
    wide = [net.conv(net.conv(x, 12), 2) for _ in range(3)]
    return net.graph(net.add(net.add(wide[0], wide[1]), wide[2]))


ROWS: dict[str, Any] = {"schedule": "rows", "allocator": "greedy"}

BEDS = {
    "chain": Bed(chain(4, 8, 4)),
    "chain of floats": Bed(chain(4, 8, dtype=DType.FLOAT32)),
    "diamond": Bed(diamond()),
    "branches": Bed(branches()),
    "branches, lazily": Bed(branches(), {"schedule": "lazy", "skip": "all"}),
    "reshaped": Bed(reshaped()),
    "two results": Bed(two_results()),
    "joined": Bed(joined()),
    "joined slowly": Bed(slowly_joined(), {"schedule": "file"}, ("remove-concat",)),
    "joined by nobody knows": Bed(opaquely_joined(), {}, ("remove-concat",)),
    "kept": Bed(chain(4, 8, 4), {"keep_inputs": True}),
    "with the caller": Bed(chain(4, 8, 4), {"external_io": True}),
    "aligned": Bed(chain(3, 5, 3, size=5), {"align": 4}),
    "with scratch": Bed(reduced(), {"kernels": "tflm-reference"}),
    "rows": Bed(image(), ROWS),
    "rows of floats": Bed(image(DType.FLOAT32), ROWS),
    "rows, streamed": Bed(image(), {**ROWS, "input_rows": True}),
    "rows, aligned": Bed(image(), {**ROWS, "input_rows": True, "align": 4}),
    "rows, kept": Bed(image(), {**ROWS, "keep_inputs": True}),
    "rows, summed": Bed(summed(), {**ROWS, "input_rows": True}),
    "rows, in place": Bed(in_place(), {**ROWS, "skip": "all"}),
    "rows, in place, streamed": Bed(in_place(), {**ROWS, "input_rows": True, "skip": "all"}),
    "rows, straight through": Bed(straight_through(), ROWS),
    "rows, recomputed": Bed(bottlenecks(), {**ROWS, "input_rows": True, "recompute": 2.0}),
    "rows, recomputed for little": Bed(bottlenecks(), {**ROWS, "input_rows": True, "recompute": 1.1}),
}
