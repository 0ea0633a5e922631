"""Chunks: every loop order of every rearrangement moves the elements that numpy says it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagmem.model.errors import ModelError
from diagmem.model.graph import IntArray, Node
from diagmem.ops import kinds
from diagmem.ops.accesses import Accesses, replayed_separation
from diagmem.ops.kind import axis_of
from diagmem.ops.loops.chunks import FILL, Chunks, RearrangeKind
from diagmem.ops.moving.concatenation import Pack, Split
from diagmem.ops.moving.gather import Gather
from diagmem.ops.moving.pad import MirrorPad, Pad
from diagmem.ops.moving.reshape import Reshape
from diagmem.ops.moving.strided_slice import StridedSlice
from diagmem.ops.moving.transpose import SpaceDepth
from diagmem.ops.orders import Order
from tests.ops.cases import activation, case_modules, ints, node_of

FILLED = -1
MOVED = (
    *("concatenation", "gather", "pack", "pad", "reshape", "space_batch", "space_depth", "split", "strided_slice"),
    "transpose",
)


@pytest.mark.parametrize("case", MOVED)
@given(data=st.data())
def test_moves_what_numpy_moves(case: str, data: st.DataObject) -> None:
    """In every order, the outputs hold what the operation's definition says."""
    node = data.draw(case_modules()[case])
    kind = kinds()[node.op.kind]
    assert isinstance(kind, RearrangeKind)
    arrays = [_numbered(node, position) for position in range(len(node.inputs))]
    for order in kind.orders:
        chunks = kind.chunks(node, order)
        if chunks is not None:
            expected = DEFINITIONS[node.op.kind](node, arrays)
            for got, wanted in zip(_moved(chunks, node, arrays), expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


def _numbered(node: Node, position: int) -> IntArray:
    """An input whose elements are all different, also from those of other inputs."""
    tensor = node.input(position)
    return 1000 * position + np.arange(tensor.elems, dtype=np.int64).reshape(tensor.shape)


def _moved(chunks: Chunks, node: Node, arrays: list[IntArray]) -> list[IntArray]:
    outputs = [np.full(t.elems, FILLED - 1, dtype=np.int64) for t in node.outputs]
    columns = (chunks.position, chunks.source, chunks.pitch, chunks.output, chunks.target, chunks.length)
    for position, source, pitch, output, target, length in zip(*(c.tolist() for c in columns), strict=True):
        k = np.arange(length)
        values = arrays[position].reshape(-1)[source + k * pitch] if source >= 0 else FILLED
        outputs[output][target + k] = values
    return [flat.reshape(t.shape) for flat, t in zip(outputs, node.outputs, strict=True)]


def _ints(node: Node, position: int) -> npt.NDArray[Any]:
    data = node.input(position).data
    assert data is not None
    return data


def _pad(node: Node, x: list[IntArray]) -> list[IntArray]:
    widths = _ints(node, 1).reshape(-1, 2)
    if isinstance(node.attributes, MirrorPad):
        return [np.pad(x[0], widths, mode=node.attributes.mirror)]
    return [np.pad(x[0], widths, constant_values=FILLED)]


def _slice(node: Node, x: list[IntArray]) -> list[IntArray]:
    bounds = zip(_ints(node, 1), _ints(node, 2), strict=True)
    return [x[0][tuple(slice(b, None if s == -1 else b + s) for b, s in bounds)]]


def _strided_slice(node: Node, x: list[IntArray]) -> list[IntArray]:
    index: list[slice | int | None] = []
    for i, (begin, end, stride) in enumerate(zip(*(_ints(node, p).tolist() for p in (1, 2, 3)), strict=True)):
        if node.attributes.new_axis_mask >> i & 1:
            index.append(None)
        elif node.attributes.shrink_axis_mask >> i & 1:
            index.append(begin)
        else:
            index.append(slice(begin, end, stride))
    return [x[0][tuple(index)]]


def _gather(node: Node, x: list[IntArray]) -> list[IntArray]:
    def take(data: IntArray, indices: IntArray, axis: int, batch_dims: int) -> IntArray:
        if not batch_dims:
            return np.take(data, indices, axis)
        rows = [take(d, i, axis - 1, batch_dims - 1) for d, i in zip(data, indices, strict=True)]
        return np.stack(rows)

    return [take(x[0], _ints(node, 1), axis_of(node.attributes.axis, x[0].ndim), node.attributes.batch_dims)]


def _space_to_depth(node: Node, x: list[IntArray]) -> list[IntArray]:
    block, depth = node.attributes.block, x[0].shape[3]
    out = np.zeros(node.output.shape, dtype=np.int64)
    for (n, h, w, c), value in np.ndenumerate(x[0]):
        out[n, h // block, w // block, (h % block * block + w % block) * depth + c] = value
    return [out]


def _depth_to_space(node: Node, x: list[IntArray]) -> list[IntArray]:
    block, depth = node.attributes.block, node.output.shape[3]
    out = np.zeros(node.output.shape, dtype=np.int64)
    for n, h, w, c in np.ndindex(out.shape):
        out[n, h, w, c] = x[0][n, h // block, w // block, (h % block * block + w % block) * depth + c]
    return [out]


def _batched_index(index: tuple[int, ...], block: list[int], batch: int) -> tuple[int, ...]:
    """Where an element lies after SPACE_TO_BATCH_ND without padding."""
    place = 0
    for i, b in zip(index[1:], block, strict=False):
        place = place * b + i % b
    pixels = (i // b for i, b in zip(index[1:], block, strict=False))
    return (place * batch + index[0], *pixels, *index[len(block) + 1 :])


def _space_to_batch(node: Node, x: list[IntArray]) -> list[IntArray]:
    block, rest = _ints(node, 1).tolist(), x[0].ndim - 1 - _ints(node, 1).size
    widths = [[0, 0], *_ints(node, 2).tolist(), *[[0, 0]] * rest]
    out = np.zeros(node.output.shape, dtype=np.int64)
    for index, value in np.ndenumerate(np.pad(x[0], widths, constant_values=FILLED)):
        out[_batched_index(index, block, x[0].shape[0])] = value
    return [out]


def _batch_to_space(node: Node, x: list[IntArray]) -> list[IntArray]:
    block, before = _ints(node, 1).tolist(), [0, *_ints(node, 2)[:, 0].tolist()]
    out = np.zeros(node.output.shape, dtype=np.int64)
    for index in np.ndindex(out.shape):
        shifted = tuple(i + b for i, b in zip(index, before, strict=False)) + index[len(before) :]
        out[index] = x[0][_batched_index(shifted, block, out.shape[0])]
    return [out]


DEFINITIONS: dict[str, Callable[[Node, list[IntArray]], list[IntArray]]] = {
    "CONCATENATION": lambda node, x: [np.concatenate(x, node.attributes.axis)],
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), _pad),
    **dict.fromkeys(
        ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "DENSIFY"), lambda node, x: [x[0].reshape(node.output.shape)]
    ),
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "SPLIT": lambda node, x: np.split(x[1], node.attributes.num_splits, int(_ints(node, 0))),
    "SPLIT_V": lambda node, x: np.split(
        x[0], np.cumsum([t.shape[_ints(node, 2)] for t in node.outputs])[:-1], int(_ints(node, 2))
    ),
    "PACK": lambda node, x: [np.stack(x, node.attributes.axis)],
    "UNPACK": lambda node, x: [np.take(x[0], i, node.attributes.axis) for i in range(node.attributes.count)],
    "TRANSPOSE": lambda node, x: [np.transpose(x[0], _ints(node, 1))],
    "GATHER": _gather,
    "SPACE_TO_DEPTH": _space_to_depth,
    "DEPTH_TO_SPACE": _depth_to_space,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
}


@given(data=st.data())
def test_chunks_in_any_sequence_have_an_exact_separation(data: st.DataObject) -> None:
    """Also where outputs are not written from start to end: the look at chunks' ends equals the replay."""
    which, sources, pitches, lengths = st.integers(0, 1), st.integers(2, 12), st.integers(-1, 3), st.integers(0, 3)
    rows = data.draw(st.lists(st.tuples(which, st.just(FILL) | sources, pitches, which, lengths)))
    position, source, pitch, output, length = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    chunks = Chunks.of(source, length, pitch=pitch, position=position, output=output)
    chunks = chunks.sorted_by(np.array(data.draw(st.permutations(range(len(chunks.length)))), dtype=np.int64))
    for moved in (chunks, chunks.moved_at_once()):
        replayed = replayed_separation(_accesses(moved), 0, 1, 2, 3)
        assert moved.separation(0, 1, 2, 3) == replayed


def _accesses(chunks: Chunks) -> Accesses:
    return Accesses(chunks.steps, (chunks.reads(0), chunks.reads(1)), (chunks.writes(0), chunks.writes(1)))


def test_masks_of_strided_slice() -> None:
    """Masks, the ellipsis, counting from the end and offsets mean what they mean to TFLite."""

    def shape(begin: list[int], end: list[int], strides: list[int], **masks: int) -> tuple[int, ...]:
        inputs = [activation((4, 5, 6)), ints(begin), ints(end), ints(strides)]
        return node_of("STRIDED_SLICE", StridedSlice(**masks), inputs).output.shape  # type: ignore[arg-type]

    assert shape([1], [3], [1]) == (2, 5, 6)
    assert shape([1], [3], [1], begin_mask=1) == (3, 5, 6)
    assert shape([1], [3], [1], end_mask=1) == (3, 5, 6)
    assert shape([-1], [-4], [-2]) == (2, 5, 6)
    assert shape([0, 1], [0, 3], [1, 1], ellipsis_mask=1) == (4, 5, 2)
    assert shape([2, 0, 1], [3, 0, 3], [1, 1, 1], ellipsis_mask=2, shrink_axis_mask=1) == (5, 2)
    assert shape([0, 0, -1], [0, 0, 0], [1, 1, 1], ellipsis_mask=1, new_axis_mask=2, shrink_axis_mask=4) == (4, 5, 1)
    assert shape([-3], [3], [1], offset=True) == (3, 5, 6)
    assert shape([3], [9], [1], begin_mask=1, shrink_axis_mask=1) == (5, 6)


def test_tensor_major_finishes_one_tensor_first() -> None:
    """Stacking writes, and taking apart reads, the stack with gaps; the separation is larger than along the stack."""
    pack = node_of("PACK", Pack(1, 2), [activation((2,)), activation((2,))])
    unpack = node_of("UNPACK", Pack(1, 2), [activation((2, 2))])
    assert [kinds()["PACK"].separation(pack, 1, order) for order in (Order.REFERENCE, Order.TENSOR_MAJOR)] == [2, 3]
    assert [kinds()["UNPACK"].separation(unpack, 0, order) for order in (Order.REFERENCE, Order.TENSOR_MAJOR)] == [0, 1]


@pytest.mark.parametrize(
    ("node", "order"),
    [
        (node_of("SPACE_TO_DEPTH", SpaceDepth(2), [activation((2, 4, 6, 3))]), Order.INPUT_MAJOR),
        (node_of("DEPTH_TO_SPACE", SpaceDepth(2), [activation((2, 2, 3, 8))]), Order.INPUT_MAJOR),
        (node_of("BATCH_TO_SPACE_ND", None, [activation((8, 3, 2)), ints([4]), ints([[0, 0]])]), Order.MEMCPY),
    ],
)
def test_kernels_that_walk_the_input_read_it_in_order(node: Node, order: Order) -> None:
    """They read each element once, from the first to the last."""
    reads = kinds()[node.op.kind].accesses(node, order).reads[0]
    assert reads is not None
    elements, steps, _ = reads.touches()
    np.testing.assert_array_equal(elements[np.argsort(steps, kind="stable")], np.arange(node.input(0).elems))


def test_fill_stays_fill_between_distant_neighbours() -> None:
    """A padded row of a large tensor reads nothing: its offset does not wrap round to a valid one."""
    wide = 1 << 16
    node = node_of("PAD", Pad(), [activation((1, 1, wide)), ints([[0, 0], [0, 1], [0, 0]])])
    assert kinds()["PAD"].separation(node, 0, Order.REFERENCE) == 0


def test_memcpy_never_overlaps_itself() -> None:
    """A chunk copied by memcpy may not touch itself: all of a reshape, rows of an image or a slice."""
    reshape = node_of("RESHAPE", Reshape(new_shape=(12,)), [activation((3, 4))])
    assert kinds()["RESHAPE"].separation(reshape, 0, Order.MEMCPY) == 12
    assert kinds()["RESHAPE"].separation(reshape, 0, Order.ALIAS) == 0
    pad = node_of("PAD", Pad(), [activation((1, 2, 3, 2)), ints([[0, 0], [0, 1], [0, 0], [0, 0]])])
    assert kinds()["PAD"].separation(pad, 0, Order.MEMCPY) == 6
    rows = node_of("SLICE", None, [activation((3, 4)), ints([0, 0]), ints([3, 2])])
    assert kinds()["SLICE"].separation(rows, 0, Order.MEMCPY) == 2
    assert kinds()["SLICE"].separation(rows, 0, Order.REFERENCE) == 0


@pytest.mark.parametrize(
    ("name", "attributes", "inputs"),
    [
        ("ADD", None, [activation((2, 3)), activation((2, 4))]),
        ("ADD", None, [activation((2, 3))]),
        ("PRELU", None, [activation((1, 3)), activation((2, 3))]),
        (
            "CONCATENATION",
            kinds()["CONCATENATION"].decode("CONCATENATION", None),
            [activation((2, 3)), activation((2, 4))],
        ),
        ("CONCATENATION", kinds()["CONCATENATION"].decode("CONCATENATION", None), [activation(())]),
        ("PAD", Pad(), [activation((2, 3)), ints([[1, 1]])]),
        ("PAD", Pad(), [activation((2,)), ints([[1, -1]])]),
        ("MIRROR_PAD", MirrorPad(), [activation((2,)), ints([[0, 2]])]),
        ("RESHAPE", Reshape(), [activation((2, 3)), ints([-1, 4])]),
        ("RESHAPE", Reshape(), [activation((2, 3)), ints([-1, -1])]),
        ("RESHAPE", Reshape(), [activation((2, 3)), ints([-2, -3])]),
        ("SQUEEZE", Reshape(squeeze_dims=(0,)), [activation((2, 1))]),
        ("EXPAND_DIMS", Reshape(), [activation((2,)), ints([0, 1])]),
        ("SLICE", None, [activation((4,)), ints([3]), ints([2])]),
        ("STRIDED_SLICE", StridedSlice(), [activation((4,)), ints([0]), ints([2]), ints([0])]),
        ("STRIDED_SLICE", StridedSlice(), [activation((4,)), ints([0, 0]), ints([1, 1]), ints([1, 1])]),
        ("STRIDED_SLICE", StridedSlice(shrink_axis_mask=1), [activation((4,)), ints([4]), ints([5]), ints([1])]),
        ("SPLIT", Split(3), [ints(0), activation((4,))]),
        ("SPLIT", Split(0), [ints(0), activation((4,))]),
        ("SPLIT", Split(1 << 30), [ints(0), activation((1 << 30,))]),
        ("SPLIT_V", Split(2), [activation((4,)), ints([-1, -1]), ints(0)]),
        ("SPLIT_V", Split(2), [activation((4,)), ints([1, 2]), ints(0)]),
        ("PACK", Pack(0, 2), [activation((4,)), activation((3,))]),
        ("PACK", Pack(2, 1), [activation((4,))]),
        ("UNPACK", Pack(0, 3), [activation((4,))]),
        ("TRANSPOSE", None, [activation((2, 3)), ints([0, 0])]),
        ("GATHER", Gather(0, 1), [activation((2, 3)), ints([0])]),
        ("SPACE_TO_DEPTH", SpaceDepth(2), [activation((1, 3, 2, 1))]),
        ("SPACE_TO_DEPTH", SpaceDepth(0), [activation((1, 3, 2, 1))]),
        ("DEPTH_TO_SPACE", SpaceDepth(2), [activation((1, 1, 1, 6))]),
        ("SPACE_TO_BATCH_ND", None, [activation((1, 3, 1)), ints([2]), ints([[0, 0]])]),
        ("BATCH_TO_SPACE_ND", None, [activation((3, 3, 1)), ints([2]), ints([[0, 0]])]),
        ("BATCH_TO_SPACE_ND", None, [activation((2, 1, 1)), ints([2]), ints([[1, 1]])]),
        ("BATCH_TO_SPACE_ND", None, [activation((2,)), ints([2]), ints([[1, 1]])]),
    ],
)
def test_inconsistent_shapes_are_refused(name: str, attributes: Any, inputs: list[Any]) -> None:
    """What no kernel could run is a ModelError, not a traceback."""
    with pytest.raises(ModelError):
        kinds()[name].output_shapes(name, attributes, inputs)


def test_index_outside_the_data_is_refused() -> None:
    """GATHER's indices are checked where they are used."""
    node = node_of("GATHER", Gather(), [activation((2,)), ints([2])])
    with pytest.raises(ModelError):
        kinds()["GATHER"].separation(node, 0, Order.REFERENCE)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("PAD", [activation((4,)), activation((1, 2))]),
        ("TRANSPOSE", [activation((4,)), activation((1,))]),
        ("GATHER", [activation((4,)), activation((4,))]),
    ],
)
def test_what_only_a_run_knows_may_not_overlap(name: str, inputs: list[Any]) -> None:
    """Paddings, permutations, indices that are computed: the whole output is kept clear of every input."""
    node = node_of(name, kinds()[name].decode(name, None), inputs, out_shapes=[(4,)])
    assert [kinds()[name].separation(node, position, Order.REFERENCE) for position in (0, 1)] == [4, 4]
