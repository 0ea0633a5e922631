"""Sparse constants: what a file leaves out is 0, wherever it says that the others stand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tflite as schema

from diagmem.frontends import tflite
from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Graph, Op, Tensor
from diagmem.ops.moving.reshape import Reshape
from tests.ops.single_op import answered, is_installed
from tests.tflite_files import GraphFile

Array = npt.NDArray[Any]

BLOCK = 2


class SparseFile(GraphFile):
    """DENSIFY of one matrix. `order`: in which levels are walked; beyond 1, the blocks of columns. `sparse`: the level
    that only lists what there is; `spoilt` takes an index too far."""

    def __init__(self, dense: Array, order: tuple[int, ...], sparse: int, spoilt: bool = False) -> None:
        dtype = DType(dense.dtype.name)
        tensors = (
            Tensor(0, "sparse", dense.shape, dtype, is_constant=True, data=dense),
            Tensor(1, "out", dense.shape, dtype),
            Tensor(2, "in", (1,), DType.FLOAT32),
        )
        super().__init__(Graph("model", tensors, (Op(0, "DENSIFY", (0,), (1,), Reshape()),), (2,), (1,)))
        self.order, self.sparse, self.spoilt = order, sparse, spoilt
        self.levels, self.values = _encoded(dense, order, sparse)

    def data(self, values: Array) -> int:
        return super().data(self.values)

    def tensor_at(self, tensor: Tensor, buffer: int) -> int:
        if tensor.index:
            return super().tensor_at(tensor, buffer)
        blocked = {"BlockMap": self.ints([1])} if len(self.order) > 2 else {}
        levels = self.offsets([self.level(*level) for level in self.levels])
        own = self.table("SparsityParameters", TraversalOrder=self.ints(self.order), DimMetadata=levels, **blocked)
        return self.tensor(tensor.name, tensor.shape, tensor.dtype, buffer, None, Sparsity=own)

    def level(self, size: int, segments: list[int], indices: list[int]) -> int:
        if not segments:
            return self.table("DimensionMetadata", Format=schema.DimensionType.DENSE, DenseSize=size)
        kind = schema.SparseIndexVector.Int32Vector
        far = [index + 100 * self.spoilt for index in indices]
        return self.table(
            "DimensionMetadata",
            Format=schema.DimensionType.SPARSE_CSR,
            ArraySegmentsType=kind,
            ArraySegments=self.table("Int32Vector", Values=self.ints(segments)),
            ArrayIndicesType=kind,
            ArrayIndices=self.table("Int32Vector", Values=self.ints(far)),
        )


def _encoded(dense: Array, order: tuple[int, ...], sparse: int) -> tuple[list[tuple[int, list[int], list[int]]], Array]:
    """The levels of a matrix, and the values that are stored: dense below the sparse level, so some of them are 0."""
    rows, columns = dense.shape
    cube = dense.reshape(rows, columns // BLOCK, BLOCK) if len(order) > 2 else dense
    cube = cube.transpose(order)
    outer = cube.shape[:sparse]
    segments, indices, values = [0], [], []
    for place in itertools.product(*map(range, outer)):
        for index in range(cube.shape[sparse]):
            part = cube[place][index]
            if np.any(part):
                indices.append(index)
                values.append(np.asarray(part).reshape(-1))
        segments.append(len(indices))
    plain: list[tuple[int, list[int], list[int]]] = [(size, [], []) for size in cube.shape]
    plain[sparse] = (0, segments, indices)
    return plain, np.concatenate(values)


def drawn(dtype: type) -> Array:
    rng = np.random.default_rng(5)
    found: Array = (rng.integers(-50, 50, (6, 8)) * (rng.integers(0, 3, (6, 8)) == 0)).astype(dtype)
    return found


CASES = [((0, 1), 1), ((1, 0), 1), ((0, 1), 0), ((0, 1, 2), 1), ((1, 0, 2), 1), ((0, 1, 2), 0)]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float16])
@pytest.mark.parametrize(("order", "sparse"), CASES)
def test_all_numbers_are_there(order: tuple[int, ...], sparse: int, dtype: type) -> None:
    """In any order of axes, with blocks and without; LiteRT reads the same."""
    dense = drawn(dtype)
    content = SparseFile(dense, order, sparse).content()
    found = tflite.parse(content, "model").tensors[0].data
    assert found is not None
    np.testing.assert_array_equal(found, dense)
    if is_installed("litert"):
        (answer,) = answered("litert", [(content, [np.zeros(1, np.float32)], 1)])
        assert isinstance(answer, list), answer
        np.testing.assert_array_equal(answer[0], dense)


@pytest.mark.parametrize(("order", "sparse"), CASES)
def test_indices_outside_are_refused(order: tuple[int, ...], sparse: int) -> None:
    with pytest.raises(ModelError, match="do not fit its shape"):
        tflite.parse(SparseFile(drawn(np.float32), order, sparse, spoilt=True).content(), "model")
