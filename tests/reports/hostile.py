"""A small model whose names try to be more than names."""

from __future__ import annotations

from dataclasses import replace

from diagmem import pipeline
from diagmem.frontends.zoo.networks import Builder
from diagmem.model.graph import DType, Graph
from diagmem.planning.plan import Plan

NAMES = (
    "<script>window.harmed = 1</script>",
    "</script><img src=x onerror='window.harmed = 2'>",
    '"><svg onload="window.harmed = 3">',
    "]]><!-- & \u2028 \x00\x1b[31m \ud800",
    "{{ 7 * 7 }} ${window.harmed = 4}",
)


def small_graph() -> Graph:
    b = Builder("small", DType.INT8)
    x = b.conv(b.input(1, 16, 16, 3), 8, 3, stride=2)
    x = b.add(b.conv(b.depthwise(x, 3), 8, 1), x)
    return b.graph(b.softmax(b.flatten(b.average_pool(x, (8, 8)))))


def hostile_graph() -> Graph:
    graph = small_graph()
    tensors = tuple(replace(t, name=f"{NAMES[t.index % len(NAMES)]} {t.index}") for t in graph.tensors)
    return replace(graph, name=NAMES[1], tensors=tensors)


def long_named(graph: Graph) -> Graph:
    """With names as converters make them: the path of each op that was merged into one."""
    path = "functional_1/activation_{0}/Relu;functional_1/batch_normalization_{0}/FusedBatchNormV3;conv2d_{0}/BiasAdd"
    return replace(graph, tensors=tuple(replace(t, name=path.format(t.index)) for t in graph.tensors))


def apart(model: str | Graph) -> Plan:
    """The model as it is, in file order, with nothing shared."""
    return pipeline.plan(model, schedule="file", overlap=False, skip="all").plan
