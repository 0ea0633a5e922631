"""Windows as the C kernels take them."""

from __future__ import annotations

from diagmem.model.sliding_window import Window1D
from diagmem.ops.c_call import MAX_ROWS, MAX_TAPS, CStruct, Unsupported
from diagmem.ops.loops.windowed import WindowedLoop

MOST_TAPS = 4096
"""Along an axis. A kernel keeps a pointer for each row on the stack; a window of a pool may be any size."""

MOST_REACH_ELEMS = (1 << 31) - 1
"""That kernels count in 32 bits, from the start of an image to the last tap of a window, also where it is outside."""


def c_window(loop: WindowedLoop) -> CStruct:
    """The `diagmem_window` of a loop."""
    image, out, rows, cols = loop.image, loop.out, loop.rows, loop.cols
    pitches_in, pitches_out = loop.pitches_in, loop.pitches_out
    if max(rows.kernel, cols.kernel) > MOST_TAPS:
        raise Unsupported(f"a window of {rows.kernel}x{cols.kernel} pixels; at most {MOST_TAPS}x{MOST_TAPS}")
    for axis, pitch in (rows, pitches_in.row), (cols, pitches_in.pixel):
        if _reach(axis) * pitch > MOST_REACH_ELEMS:
            raise Unsupported(
                f"a window that reaches over {_reach(axis) * pitch} elements, with stride {axis.stride} and dilation "
                f"{axis.dilation}; at most {MOST_REACH_ELEMS}"
            )
    return CStruct(
        "diagmem_window",
        {
            "batches": image.batch,
            "in_height": image.height,
            "in_width": image.width,
            "in_depth": image.depth,
            "in_image": pitches_in.image,
            "in_row": pitches_in.row,
            "in_pitch": pitches_in.pixel,
            "out_height": out.height,
            "out_width": out.width,
            "out_depth": out.depth,
            "out_image": pitches_out.image,
            "out_row": pitches_out.row,
            "out_pitch": pitches_out.pixel,
            "kernel_h": rows.kernel,
            "kernel_w": cols.kernel,
            "stride_h": rows.stride,
            "stride_w": cols.stride,
            "dilation_h": rows.dilation,
            "dilation_w": cols.dilation,
            "pad_top": rows.pad_before,
            "pad_left": cols.pad_before,
        },
    )


def _reach(axis: Window1D) -> int:
    """More than any tap, of any output or of the one behind the last, is away from the first element."""
    return axis.size_out * axis.stride + axis.kernel * axis.dilation + axis.pad_before


def window_limits(loop: WindowedLoop) -> dict[str, int]:
    """What a kernel keeps on the stack: a pointer for each row and each pixel of the window."""
    return {MAX_ROWS: loop.rows.kernel, MAX_TAPS: loop.rows.kernel * loop.cols.kernel}
