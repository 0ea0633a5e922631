"""What kinds say of themselves to the transforms: it is true, and no kind has forgotten to say it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diagmem.model.errors import ModelError
from diagmem.model.graph import Graph, Node, Op, Tensor
from diagmem.ops import Activation, Unsupported, kinds
from diagmem.ops.elementwise.unary import FUSED, Unary
from diagmem.ops.loops.chunks import RearrangeKind
from diagmem.ops.loops.windowed import WindowedKind
from diagmem.transforms._editing import makes_parts
from diagmem.transforms.channel_links import STORED, links_of
from diagmem.transforms.channel_ranges import Range, _checked, _parts, outputs_of
from diagmem.transforms.remove_channels import Keeping, _Closure, narrowed
from diagmem.verification.places import range_faults
from tests.ops.drawing import is_supported
from tests.ops.fitting import SeededDraw, fitted, input_values
from tests.ops.sampling import samples_of

Array = npt.NDArray[Any]

NO_LINKS = {
    **dict.fromkeys(("CONV_2D", "FULLY_CONNECTED"), "every output channel reads all; `Sums` says how"),
    **dict.fromkeys(("TRANSPOSE_CONV", "BATCH_MATMUL"), "every output channel reads all"),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"), "a row is normalised as a whole"),
    **dict.fromkeys(("UNIDIRECTIONAL_SEQUENCE_LSTM", "SVDF"), "units are mixed, and kept from run to run"),
    **dict.fromkeys(("READ_VARIABLE", "ASSIGN_VARIABLE"), "the caller may look at variables"),
    **dict.fromkeys(("PACK", "UNPACK"), "the rank changes; they become views instead"),
    **dict.fromkeys(("FILL", "RANGE", "ZEROS_LIKE", "SHAPE", "RANK", "ONE_HOT", "BROADCAST_ARGS"), "made of numbers"),
    **dict.fromkeys(("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP", "DYNAMIC_UPDATE_SLICE"), "indices would be rewritten"),
    **dict.fromkeys(("TRANSPOSE", "REVERSE_V2", "BROADCAST_TO", "TILE"), "operands would be rewritten"),
    **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), "pixels become channels"),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), "around dilated convolutions only, which are folded"),
    "CUMSUM": "rare; its axis may be that of the channels",
    "CUSTOM:TFLite_Detection_PostProcess": "boxes, not channels",
    **{name: "sound: spectra and frames, not channels" for name in kinds() if name.startswith("CUSTOM:Signal")},
}
"""Kinds of which channels are never linked, and why."""

NO_RANGE = {
    **{name: why for name, why in NO_LINKS.items() if name not in ("CONV_2D", "FULLY_CONNECTED")},
    "MIRROR_PAD": "rare",
    "L2_POOL_2D": "float32 only, where nothing but zeros is known",
    **dict.fromkeys(("CUSTOM:DiagmemMean", "CUSTOM:DiagmemSum"), "they make float32, where nothing but zeros is known"),
    **dict.fromkeys(
        ("REDUCE_PROD", "REDUCE_ALL", "REDUCE_ANY", "ARG_MAX", "ARG_MIN"), "no ends of ranges give the ends"
    ),
}
"""Kinds of whose outputs no range is known, and why."""

NO_ENDS = {
    **dict.fromkeys(("DIV", "SQUARED_DIFFERENCE", "FLOOR_DIV", "FLOOR_MOD", "POW", "ATAN2"), "they rise and fall"),
    **dict.fromkeys(("PRELU", "ADD_N"), "not read from the kernels yet; constants are known"),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), "they make no numbers"),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_OR", "SELECT", "SELECT_V2"), "they take no numbers"),
}
"""Pointwise kinds of several inputs of which ends of ranges do not give the ends, and why."""

NO_CLAMP = {
    **dict.fromkeys(("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"), "no file can hold their activation"),
    **dict.fromkeys(("CONCATENATION", "L2_NORMALIZATION"), "TensorFlow Lite refuses their activation, and so do we"),
    **dict.fromkeys(("SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"), "it is a part of the cell"),
}
"""Kinds with an attribute `activation` that none may be fused into, and why."""

NO_PADDING = dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D"), "an average does not count its own border")
"""Windows that can take over no PAD, and why."""

NO_VIEW = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "DENSIFY"), "they move nothing; `is_alias`"),
    **{
        name: "elements are computed"
        for name, kind in kinds().items()
        if kind.is_pointwise and isinstance(kind, RearrangeKind)
    },
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), "what is added lies nowhere"),
    **dict.fromkeys(("RANGE", "ZEROS_LIKE", "SHAPE", "RANK"), "made of numbers"),
    **dict.fromkeys(("BROADCAST_TO", "TILE", "REVERSE_V2"), "no strides above 0 say it"),
    **dict.fromkeys(("TRANSPOSE", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), "few kernels take such strides"),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), "few kernels take such strides"),
    **dict.fromkeys(("GATHER", "GATHER_ND"), "indices are seldom constant"),
    **dict.fromkeys(("READ_VARIABLE", "ASSIGN_VARIABLE"), "`state-in-place` removes them"),
}
"""Kinds that rearrange, whose tensors become no parts of others, and why."""


def nodes(name: str, count: int) -> Iterator[tuple[Node, list[Array | None]]]:
    """Small random nodes and what their inputs hold."""
    for seed in range(count):
        node = fitted(samples_of(name).sample(name, SeededDraw(f"{name} {seed}")), seed)
        yield node, list(input_values(node, np.random.default_rng(seed)))


def computed(node: Node, values: Collection[Array | None]) -> tuple[Array, ...] | None:
    try:
        with np.errstate(all="ignore"):
            return kinds()[node.op.kind].reference(node, list(values))
    except (Unsupported, ModelError):
        return None


def graph_of(node: Node) -> Graph:
    tensors = {t.index: t for t in (*node.inputs, *node.outputs) if t is not None}
    return Graph("one", tuple(tensors[index] for index in sorted(tensors)), (node.op,), (), ())


def narrow(node: Node, chance: np.random.Generator) -> tuple[Keeping, Node] | None:
    """The node with some of its output's channels, and what else is left then; None if all are."""
    graph = graph_of(node)
    closure = _Closure(graph, {t.index: Range.whole(t) for t in graph.tensors}, lambda op: True)
    for output in node.outputs:
        kept = closure.kept[output.index]
        kept |= chance.random(len(kept)) < 0.5
        kept[chance.integers(max(1, len(kept)))] |= len(kept) > 0
    keeping = closure.result()
    return None if keeping.is_complete else (keeping, narrowed(keeping).nodes[0])


@pytest.mark.parametrize("name", [name for name in kinds() if name not in NO_LINKS])
def test_without_some_channels_the_others_stay_what_they_are(name: str) -> None:
    """Of any node: cut as its links say, operands and attributes rewritten, it gives the channels that are left."""
    tried = 0
    for number, (node, values) in enumerate(nodes(name, 300)):
        whole = computed(node, values)
        links = links_of(node)
        if whole is None or not links or not all(t.elems for t in node.outputs):
            continue
        found = narrow(node, np.random.default_rng(number))
        if found is None:
            continue
        keeping, less = found
        left = [
            p for p, t in enumerate(node.inputs) if t is None or name != "CONCATENATION" or keeping.kept[t.index].any()
        ]
        given = [
            None if t is None else t.data if t.is_constant else cut(keeping, node.inputs[p], values[p])
            for p, t in zip(left, less.inputs, strict=True)
        ]
        made = computed(less, given)
        assert made is not None
        for output, want, cut_output, have in zip(node.outputs, whole, less.outputs, made, strict=True):
            assert cut_output.shape == have.shape
            assert cut(keeping, output, want).tobytes() == have.tobytes(), (node, less)
        tried += 1
        if tried == 20:
            return
    assert tried > 3


def cut(keeping: Keeping, tensor: Tensor | None, values: Array | None) -> Array:
    """The channels that are left."""
    whole = np.asarray(values)
    return whole if tensor is None or not tensor.shape else whole[..., keeping.kept[tensor.index]]


def test_links_are_known_or_left_out_on_purpose() -> None:
    """A new kind links its channels (`keeps_channels`, `parts`, `is_alias`, its weights), or stands in the list."""
    linked = {name for name in kinds() if any(links_of(node) for node, _ in nodes(name, 60))}
    assert linked.isdisjoint(NO_LINKS)
    assert {*kinds()} == linked | {*NO_LINKS}


@pytest.mark.parametrize("name", [name for name in kinds() if name not in NO_RANGE])
def test_no_result_leaves_its_range(name: str) -> None:
    """Whatever the ranges of the inputs are; and ranges are known of every kind that is not left out on purpose."""
    known = 0
    for seed, (node, values) in enumerate(nodes(name, 60)):
        chance, graph = np.random.default_rng(seed), graph_of(node)
        found = {t.index: Range.of_constant(t) if t.is_constant else drawn_range(t, chance) for t in graph.tensors}
        made = dict(_parts(node, found)) if makes_parts(node.op) else ranged(node, found)
        known += len(made)
        if made and len(node.outputs) == 1 and computed(node, values) is not None:
            assert not list(range_faults(graph, {**found, **made}))
    assert known or name == "PADV2", "what it adds is seldom 0"


@pytest.mark.parametrize("name", NO_RANGE)
def test_ranges_are_known_or_left_out_on_purpose(name: str) -> None:
    """Of these kinds nothing is ever known."""
    for node, _ in nodes(name, 10):
        whole = {t.index: Range.whole(t) for t in graph_of(node).tensors}
        assert not makes_parts(node.op) or not list(_parts(node, whole))
        assert not ranged(node, whole)


def test_ends_of_ranges_give_the_ends_or_not_on_purpose() -> None:
    """Of every pointwise kind of several inputs; of one input all values are tried."""
    pairs = {name for name, kind in kinds().items() if kind.is_pointwise and kind.signature(name).inputs[1] > 1}
    assert names_of("monotone").isdisjoint(NO_ENDS)
    assert pairs == {*NO_ENDS} | (names_of("monotone") & pairs)


def ranged(node: Node, found: Mapping[int, Range]) -> dict[int, Range]:
    try:
        made = outputs_of(node, [None if t is None else found[t.index] for t in node.inputs])
    except (Unsupported, ModelError):
        return {}
    return {} if made is None else {node.output.index: _checked(node, made)}


def drawn_range(tensor: Tensor, chance: np.random.Generator) -> Range:
    """Of integers many a constant; of float32 zeros, or anything."""
    whole = Range.whole(tensor)
    if tensor.dtype not in STORED:
        limit = np.where(chance.random(len(whole.low)) < 0.5, 0.0, np.inf)
        return Range(np.maximum(whole.low, -limit), np.minimum(whole.high, limit))
    one, other = chance.integers(int(whole.low.min()), int(whole.high.max()), (2, len(whole.low)), endpoint=True)
    other = np.where(chance.random(len(one)) < 0.4, one, other)
    return Range(np.minimum(one, other).astype(float), np.maximum(one, other).astype(float))


def names_of(trait: str) -> set[str]:
    return {name for name, kind in kinds().items() if name in getattr(kind, trait)}


@pytest.mark.parametrize("name", sorted(names_of("clamps")))
def test_an_activation_may_be_fused(name: str) -> None:
    """It gives the bytes of the activation behind the operation, for every type and every activation."""
    tried = 0
    for node, values in nodes(name, 60):
        plain = replace(node, op=replace(node.op, attributes=replace(node.attributes, activation=Activation.NONE)))
        for clamp, activation in FUSED.items():
            fused = replace(node, op=replace(node.op, attributes=replace(node.attributes, activation=activation)))
            behind = Node(Op(1, clamp, (0,), (1,), Unary()), node.outputs, node.outputs)
            if not all(map(is_supported, (plain, fused, behind))):
                continue
            (before,), (made,) = computed(plain, values) or (None,), computed(fused, values) or (None,)
            (want,) = computed(behind, [before]) or (None,)
            assert want is not None
            assert made is not None
            assert want.tobytes() == made.tobytes(), (fused, values)
            tried += 1
    assert tried > 20


def test_activations_are_fused_or_left_out_on_purpose() -> None:
    """Every kind that has the attribute says that it clamps, or stands in the list."""
    having = {name for name in kinds() for node, _ in nodes(name, 1) if hasattr(node.attributes, "activation")}
    assert names_of("clamps").isdisjoint(NO_CLAMP)
    assert having == names_of("clamps") | {*NO_CLAMP}


@pytest.mark.parametrize("name", sorted(names_of("flattens")))
def test_what_flattens_takes_any_shape(name: str) -> None:
    """The same elements in one row, where the data is an image that is one row of them."""
    tried = 0
    for node, values in nodes(name, 300):
        data, kind = node.input(0), kinds()[name]
        if kind.accumulator_bytes(node) is not None and is_supported(node):
            flat = replace(node, inputs=(replace(data, shape=(1, data.elems)), *node.inputs[1:]))
            given = [np.asarray(values[0]).reshape(1, -1), *values[1:]]
            (want,), (made,) = computed(node, values) or (None,), computed(flat, given) or (None,)
            assert want is not None
            assert made is not None
            assert want.tobytes() == made.tobytes()
            tried += 1
    assert tried > 3


def test_windows_take_over_paddings_or_not_on_purpose() -> None:
    """Every kind that slides a window."""
    sliding = {name for name, kind in kinds().items() if isinstance(kind, WindowedKind)}
    assert names_of("takes_padding").isdisjoint(NO_PADDING)
    assert sliding == names_of("takes_padding") | {*NO_PADDING}


def test_parts_become_views_or_not_on_purpose() -> None:
    """Every kind that moves elements."""
    moving = {name for name, kind in kinds().items() if isinstance(kind, RearrangeKind)}
    views = names_of("joins") | names_of("parts")
    assert views.isdisjoint(NO_VIEW)
    assert moving == views | {*NO_VIEW}
