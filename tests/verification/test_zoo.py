"""Every model of the zoo as C on the host: as it is or, if its weights are large, narrower and on a smaller image."""

from __future__ import annotations

import pytest

from diagmem.frontends import zoo
from diagmem.model.graph import Graph
from diagmem.verification.host import run_on_host
from diagmem.verification.reference import sample_inputs
from tests.backends.c.models import compiler, program, with_weights
from tests.frontends.zoo.families import densenet, inception_resnet_v2, inception_v4, nasnet, resnet_v2

LARGEST_WEIGHTS_BYTES = 20 * 10**6

REDUCED = {
    "inception_v4": lambda name: inception_v4(name, width=0.125, resolution=139),
    "inception_resnet_v2": lambda name: inception_resnet_v2(name, blocks=(2, 2, 2), width=0.125, resolution=139),
    "nasnet_mobile": lambda name: nasnet(name, cells=1, width=0.25, resolution=96),
    "densenet_121": lambda name: densenet(name, layers=(3, 4, 5, 4), width=0.5, resolution=64),
    "resnet50_v2": lambda name: resnet_v2(name, width=0.25, resolution=64),
}


def _graph(name: str) -> Graph:
    graph = REDUCED[name](name) if name in REDUCED else zoo.build(name)
    assert sum(t.size_bytes for t in graph.tensors if t.is_constant) < LARGEST_WEIGHTS_BYTES
    return with_weights(graph)


@pytest.mark.deep
@pytest.mark.parametrize("name", zoo.models())
def test_runs_as_c(name: str) -> None:
    """Planned with all overlaps, every operation gives numpy's bits, and the sanitizers are silent."""
    compiler("gcc")
    graph = _graph(name)
    made = program(graph)
    assert run_on_host(made, sample_inputs(graph, 7)[6:]).failure is None
