"""The zoo's graphs are those of the published files, operation for operation."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.frontends import zoo
from diagmem.frontends.source import Source
from diagmem.model.errors import PlanError
from diagmem.model.graph import DType, Graph
from tests.frontends.zoo import families
from tests.frontends.zoo.canonical import canonical_text, digest
from tests.frontends.zoo.families import (
    densenet,
    inception_resnet_v2,
    inception_v4,
    mobilenet_v1,
    mobilenet_v2,
    nasnet,
    resnet_v2,
    squeezenet,
)

NAMES = tuple(zoo.models())
MLPERF_FILES = {
    "vww_96_int8": "vww_96_int8",
    "kws_dscnn_int8": "kws_ref_model",
    "resnet8_int8": "pretrainedResnet_quant",
    "autoencoder_int8": "ad01_int8",
}
WITHOUT_FILE = {"squeezenet_1.1_int8"}
DIGESTS = dict(line.split() for line in (Path(__file__).parent / "digests.txt").read_text().splitlines())


def published(shared: Path, name: str) -> Graph:
    if name in MLPERF_FILES:
        return Source(shared / "models" / "mlperf_tiny" / f"{MLPERF_FILES[name]}.tflite").graph
    return Source(shared / "models" / "paper" / "slim" / f"{name}.tflite").graph


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_FILE])
def test_graph_equals_the_published_file(name: str, shared: Path) -> None:
    """Kinds, attributes, types, shapes, wiring and order are those of the file."""
    assert canonical_text(zoo.build(name)).splitlines() == canonical_text(published(shared, name)).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_graph_has_its_digest(name: str) -> None:
    """The digest was taken from the published file (but for SqueezeNet's), so it stands in where that is absent."""
    assert digest(zoo.build(name)) == DIGESTS[name]


def test_every_digest_belongs_to_a_model() -> None:
    """No model is without a digest, no digest without a model, no two models are the same."""
    assert set(DIGESTS) == set(NAMES)
    assert len(set(DIGESTS.values())) == len(DIGESTS)


@pytest.mark.parametrize("name", NAMES)
def test_activations_are_numbered_in_the_order_of_the_ops(name: str) -> None:
    """The input first, then one activation for each operation, then the constants: planners that break ties by number
    see the published order. No name occurs twice."""
    graph = zoo.build(name)
    assert graph.inputs == (0,)
    assert [op.outputs for op in graph.ops] == [(i + 1,) for i in range(len(graph.ops))]
    assert [t.is_constant for t in graph.tensors] == [t.index > len(graph.ops) for t in graph.tensors]
    assert len({t.name for t in graph.tensors}) == len(graph.tensors)
    assert graph.name == name


def test_squeezenet_has_the_published_size() -> None:
    """SqueezeNet 1.1 has 1,235,496 parameters and, at 224 pixels, 13x13 logits to average."""
    graph = zoo.build("squeezenet_1.1_int8")
    weights = [t for t in graph.tensors if t.is_constant and "shape" not in t.name]
    assert sum(t.elems for t in weights) == 1_235_496
    assert graph.nodes[-3].input(0).shape == (1, 13, 13, 1000)


def test_building_the_largest_model_is_light() -> None:
    """A model of 223 MB of weights is built in a few megabytes: weights are never materialised."""
    tracemalloc.start()
    try:
        graph = zoo.build("inception_resnet_v2")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(t.size_bytes for t in graph.tensors if t.is_constant) > 220_000_000
    assert all(t.data is None or t.elems <= 8 for t in graph.tensors)
    assert peak < 10_000_000


@pytest.mark.parametrize("wrong", ["mobilenet_v1_0.25_128", "resnet50", "kws"])
def test_unknown_name_suggests_close_ones(wrong: str) -> None:
    """One line that names what was asked for, and models with a similar name."""
    with pytest.raises(PlanError, match=wrong) as error:
        zoo.build(wrong)
    assert "\n" not in str(error.value)
    assert "did you mean" in str(error.value) or "diagmem zoo" in str(error.value)


def test_hopeless_name_points_at_the_list() -> None:
    with pytest.raises(PlanError, match="diagmem zoo"):
        zoo.build("\n<b>")


RESOLUTIONS = st.integers(75, 160)
WIDTHS = st.floats(0.05, 1.5)
DTYPES = st.sampled_from([DType.FLOAT32, DType.INT8])
FAMILIES = (
    mobilenet_v1,
    mobilenet_v2,
    inception_v4,
    inception_resnet_v2,
    nasnet,
    densenet,
    resnet_v2,
    squeezenet,
)


@given(st.sampled_from(FAMILIES), WIDTHS, RESOLUTIONS, DTYPES, st.integers(2, 20))
def test_families_scale(
    family: Callable[..., Graph], width: float, resolution: int, dtype: DType, classes: int
) -> None:
    """Any width and any resolution from 75 pixels give a graph with the wanted input, output and element type."""
    graph = family("scaled", width=width, resolution=resolution, dtype=dtype, classes=classes)
    assert graph.tensors[graph.inputs[0]].shape == (1, resolution, resolution, 3)
    assert graph.tensors[graph.outputs[0]].shape == (1, classes)
    assert {t.dtype for t in graph.tensors if not t.is_constant} == {dtype}


@pytest.mark.parametrize(
    ("shallow", "name"),
    [
        (partial(inception_v4, blocks=(0, 0, 0)), "inception_v4"),
        (partial(inception_resnet_v2, blocks=(0, 0, 0)), "inception_resnet_v2"),
        (partial(nasnet, cells=1), "nasnet_mobile"),
        (partial(densenet, layers=(1, 1)), "densenet_121"),
        (partial(resnet_v2, units=(1, 1)), "resnet50_v2"),
        (partial(families.keyword_spotting, blocks=0), "kws_dscnn_int8"),
    ],
)
def test_depth_scales(shallow: Callable[[str], Graph], name: str) -> None:
    """With fewer blocks there are fewer operations, and the network still goes from image to classes."""
    small, full = shallow(name), zoo.build(name)
    assert len(small.ops) < 0.5 * len(full.ops)
    assert small.tensors[small.outputs[0]].shape == full.tensors[full.outputs[0]].shape


@pytest.mark.parametrize("name", NAMES)
def test_layers_take_what_came_before(name: str) -> None:
    """A layer's inputs are layers above it in the list, and each layer but the last is taken by one below."""
    layers = zoo.models()[name].layers
    taken = [inputs for _, inputs, *_ in layers]
    assert all(0 <= source < number for number, inputs in enumerate(taken) for source in inputs)
    assert {source for inputs in taken for source in inputs} == set(range(len(layers) - 1))
