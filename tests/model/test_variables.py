"""What variables hold before the first run."""

from __future__ import annotations

import numpy as np
import pytest

from diagmem.model.graph import DType, Quantisation, Tensor


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.INT4])
def test_variables_begin_as_zeros(dtype: DType) -> None:
    """The zero point where numbers are quantised; elsewhere nobody reads one, of whatever size it is."""
    quantised = dtype in (DType.INT8, DType.UINT8, DType.INT16)
    zero_point = 7 if quantised else -(2**63)
    found = Tensor(0, "state", (2, 3), dtype, Quantisation((0.5,), (zero_point,)), is_variable=True).first_values
    assert found.shape == (2, 3)
    assert found.dtype == dtype.numpy
    assert np.all(found == (zero_point if quantised else 0))
