"""What convolutions and poolings share: a 2-D window slides over the input, pixel by pixel of the output.

Here stand the paper's bound as corrected, and what its equations as printed have in common. The exact separation is
that of every pixel loop: O(height + width) work.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from diagmem.model.graph import ExplicitPadding, Nhwc, Node, Window1D, Window2D
from diagmem.ops.accesses import Accesses, Runs
from diagmem.ops.c_call import MAX_ROWS, MAX_TAPS, CCall, CStruct, Unsupported, window_row_call
from diagmem.ops.kind import ColumnsAsRows, Inputs, OpKind, Rewritten, held_separation, swept
from diagmem.ops.loops.pixels import Pitches, PixelLoop
from diagmem.ops.orders import Order


@dataclass(frozen=True, slots=True)
class WindowedLoop(PixelLoop):
    """A pixel loop whose rows and columns are windows."""

    rows: Window1D
    cols: Window1D

    @property
    def output_pixels(self) -> int:
        """Of the output."""
        return self.out.batch * self.out.height * self.out.width

    @property
    def output_pairs(self) -> int:
        """Neighbours in a row of the output; the last one of an odd row is alone."""
        return self.out.batch * self.out.height * -(-self.out.width // 2)

    def reads(self) -> Runs:
        """A run for each window row where that is enough, else one for each pixel of the window."""
        if self.groups > 1 or self.cols.dilation > 1 or not self.lists_all_reads:
            return PixelLoop.reads(self)
        y, in_y = self.rows.taps()
        x, first_x = self.cols.first_reads()
        count = self.cols.tap_counts()[x]
        n = np.arange(self.out.batch, dtype=np.int64)[:, None, None]
        return Runs.of(
            ((n * self.image.height + in_y[:, None]) * self.image.width + first_x) * self.image.depth,
            count * self.image.depth,
            ((n * self.out.height + y[:, None]) * self.out.width + x) * self.out.depth,
            stride=0,
            hold=self.out.depth,
        )

    def line_separation(self) -> int:
        """An upper bound of the separation, in bytes, from a truncated line: the paper's analytical method, corrected.

        When u bytes are written, nothing below max(0, a*u + b) is read any more. `a` is the paper's slope, from one
        output row to the next. Reads and steps are affine in (n, y, x, group), so the highest line of slope `a` under
        all reads touches a corner of that box; b is the least over the corners. The paper takes a single corner, which
        is unsafe for unequal strides, and does not clamp its padding.
        """
        image, out, rows, cols = self.image, self.out, self.rows, self.cols
        pixel_in, pixel_out = image.depth * self.in_size, out.depth * self.out_size
        a = Fraction(rows.stride * image.width * pixel_in, out.width * pixel_out)
        b = min(
            ((n * image.height + y * rows.stride - rows.pad_before) * image.width + x * cols.stride - cols.pad_before)
            * pixel_in
            + group * self.group_in * self.in_size
            - a
            * (((n * out.height + y) * out.width + x) * pixel_out + ((group + 1) * self.group_out - 1) * self.out_size)
            for n, y, x, group in itertools.product(*((0, count - 1) for count in (*out[:3], self.groups)))
        )
        last = (self.steps - 1) * self.out_size
        crossing = min(max(Fraction(0), -b / a), Fraction(last))
        return math.ceil(max(crossing - max(Fraction(0), a * crossing + b), last - max(Fraction(0), a * last + b)))

    def analytical_overlap(self) -> int:
        """O_s in bytes, by the bound of `line_separation`."""
        return max(0, self.steps * self.out_size - self.line_separation())

    def printed_pixels(self) -> int:
        """What equations (8), (13) and (15) have in common as printed, in pixels. P_h and P_w, equations (5) and (6),
        are below zero where a window does not reach the input's end."""
        p_h, p_w = _unclamped_padding(self.rows), _unclamped_padding(self.cols)
        rows = (p_h + self.rows.stride) * self.image.width
        return self.out.width * self.cols.stride - rows - self.cols.stride - p_w

    def printed_overlap(self, a: Fraction, b: int) -> Fraction:
        """Equation (11) as printed, clamped at 0: O_s in bytes from the line's slope and offset in elements."""
        return max(Fraction(0), (self.steps + min(b / a, a * self.steps + b - self.steps)) * self.out_size)


def _unclamped_padding(axis: Window1D) -> int:
    out, stride, dilation = axis.size_out, axis.stride, axis.dilation
    return (out * stride - stride + axis.kernel * dilation - dilation - axis.size_in + 1) // 2


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
            **c_image("in", image, pitches_in),
            **c_image("out", out, pitches_out),
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


def c_image(prefix: str, shape: Nhwc, pitches: Pitches) -> dict[str, int]:
    """The size of an image, and the elements between neighbours in it."""
    size = {"height": shape.height, "width": shape.width, "depth": shape.depth}
    between = {"image": pitches.image, "row": pitches.row, "pitch": pitches.pixel}
    return {f"{prefix}_{name}": value for name, value in (size | between).items()}


def _reach(axis: Window1D) -> int:
    """More than any tap, of any output or of the one behind the last, is away from the first element."""
    return axis.size_out * axis.stride + axis.kernel * axis.dilation + axis.pad_before


def window_limits(loop: WindowedLoop) -> dict[str, int]:
    """What a kernel keeps on the stack: a pointer for each row and each pixel of the window."""
    return {MAX_ROWS: loop.rows.kernel, MAX_TAPS: loop.rows.kernel * loop.cols.kernel}


Array = npt.NDArray[Any]


def tap_images(image: Array, rows: Window1D, cols: Window1D, fill: float) -> Iterator[tuple[int, int, Array]]:
    """(row tap, column tap, what the output pixels read there): NHWC arrays of the output's height and width. Pixels
    outside the image read `fill`; taps that are outside for all outputs are left out, but for one if all are."""
    batch, _, _, depth = image.shape
    for k_y, k_x in itertools.product(_taps_inside(rows), _taps_inside(cols)):
        (to_y, from_y), (to_x, from_x) = _places(rows, k_y), _places(cols, k_x)
        pixels = np.full((batch, rows.size_out, cols.size_out, depth), fill, image.dtype)
        pixels[:, to_y, to_x] = image[:, from_y, from_x]
        yield k_y, k_x, pixels


def tap_counts(rows: Window1D, cols: Window1D) -> Array:
    """For each output pixel (row, column), how many taps lie inside the image."""
    counts: Array = np.multiply.outer(rows.tap_counts(), cols.tap_counts())
    return counts


def _taps_inside(axis: Window1D) -> range:
    """The taps that lie inside the image for any output. The windows of a hostile file have billions of others."""
    reach = (axis.size_out - 1) * axis.stride
    first = max(0, -((reach - axis.pad_before) // axis.dilation))
    end = min(axis.kernel, (axis.size_in - 1 + axis.pad_before) // axis.dilation + 1)
    return range(first, end) if first < end else range(1)


def _places(axis: Window1D, tap: int) -> tuple[slice, slice]:
    """The outputs for which the tap lies inside the image, and what they read there."""
    at = tap * axis.dilation - axis.pad_before
    first = max(0, -(at // axis.stride))
    end = max(first, min(axis.size_out, (axis.size_in - 1 - at) // axis.stride + 1))
    start = at + first * axis.stride
    return slice(first, end), slice(start, start + (end - first) * axis.stride, axis.stride)


class OrderedLoop(Protocol):
    """A pixel loop in one of the orders that kernels go through it."""

    @property
    def steps(self) -> int: ...

    def reads(self) -> Runs: ...

    def separation(self) -> int | None: ...


class PixelKind(OpKind):
    """An op kind whose kernel goes over the pixels of its output, and reads the data for each."""

    takes_pitches = True

    @abstractmethod
    def loop(self, node: Node) -> PixelLoop:
        """Its loops in the plain order."""

    def ordered(self, node: Node, order: Order) -> OrderedLoop:
        """Its loops in one of the kind's orders."""
        return self.loop(node)

    def accesses(self, node: Node, order: Order) -> Accesses:
        loop = self.ordered(node, order)
        return replace(swept(node, {self.takes.data: loop.reads()}), steps=loop.steps)

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        return self.ordered(node, order).separation() if position == self.takes.data else held_separation(node)

    def lists_all_reads(self, node: Node) -> bool:
        return self.loop(node).lists_all_reads

    def has_row_kernel(self, node: Node) -> bool:
        return self.lists_all_reads(node)


class WindowedKind(PixelKind):
    """An op kind whose kernel slides a window over its first input."""

    @abstractmethod
    def window_over(self, attributes: Any, inputs: Inputs) -> Window2D:
        """The window, its padding resolved."""

    def window(self, node: Node) -> Window2D:
        """The node's window."""
        return self.window_over(node.attributes, node.inputs)

    def groups(self, node: Node) -> int:
        """Groups of channels that do not mix. Here, each channel is one."""
        return int(node.input(0).shape[-1])

    def loop(self, node: Node) -> WindowedLoop:
        window = self.window(node)
        return WindowedLoop.of(node.input(0), node.output, window.rows, window.cols, self.groups(node))

    def columns_as_rows(self, node: Node, change: ColumnsAsRows) -> Rewritten | None:
        """A window over one row becomes a window over one column."""
        a = node.attributes
        if len(change.axes) != 4 or any(len(t.shape) != 4 or t.shape[1] != 1 for t in (node.input(0), node.output)):
            return None
        pairs = [(f"{name}_h", f"{name}_w") for name in ("stride", "dilation", "kernel") if hasattr(a, f"{name}_h")]
        fields = {name: getattr(a, other) for h, w in pairs for name, other in ((h, w), (w, h))}
        padding = a.padding
        if isinstance(padding, ExplicitPadding):
            padding = ExplicitPadding(padding.left, padding.right, padding.top, padding.bottom)
        return Rewritten(replace(a, padding=padding, **fields))

    def analytical(self, node: Node, position: int) -> int | None:
        return self.loop(node).analytical_overlap() if position == 0 else None

    def by_rows(self, node: Node, call: Callable[[Node], CCall]) -> CCall:
        return window_row_call(call(node), node, self.loop(node).rows)
