"""What every op kind provides, and the small vocabulary that their files share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import wraps
from typing import Any, ClassVar, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from diagmem.model.errors import ModelError
from diagmem.model.graph import DType, Node, Shape, Tensor, pieces, places
from diagmem.model.schedule import Along, Cut
from diagmem.ops.accesses import Accesses, Runs, node_reads, replayed_separation
from diagmem.ops.c_call import CCall, CPointers, CRow, CRows, Unsupported, by_type, cut_to_row, row_call
from diagmem.ops.loops.pixels import all_have_pitches
from diagmem.ops.options import AnyTable, Options
from diagmem.ops.orders import InstructionSet, Order, Variant
from diagmem.ops.signature import MANY, Signature

Array = npt.NDArray[Any]

Inputs = Sequence[Tensor | None]
"""The inputs of an operation; None for one that is absent."""

Shapes = tuple[Shape, ...]

Values = Sequence[Any]
"""An array for each input, None for one that is absent."""
SUM_BYTES = 4
"""Sums over rows are kept in 32 bits, integer or float32."""


class Way(NamedTuple):
    """How elements of one type are computed: by a function of the node and its inputs in numpy, and by a C call."""

    reference: Callable[..., Array]
    call: Callable[[Node], CCall]


class OpKind(ABC):
    """Operations that share a loop nest. One instance, named `KIND`, stands in each file of a family."""

    names: ClassVar[tuple[str, ...]]
    """TFLite's names of the operations."""

    orders: ClassVar[tuple[Order, ...]] = (Order.REFERENCE,)
    """The loop orders that `accesses` can describe. The first is that of our own kernel, unless `default_order` says
    otherwise."""

    without_kernel: ClassVar[tuple[str, ...]] = ()
    """Those of the names that can be planned for other libraries, but have no kernel of ours."""

    tflm_agrees: ClassVar[bool] = False
    """Whether the reference kernels of TensorFlow Lite Micro were read and have the loop order of ours, except as
    `kernels/` says. If not, they may not overlap."""

    int8_version: ClassVar[int] = 2
    """The version of TFLite's operator at which it took 8-bit integers. Version 1 takes float32."""

    is_alias: ClassVar[bool] = False
    """True where the output is the input's bytes under another shape, so that no copy need exist."""

    is_copy: ClassVar[bool] = False
    """True where the output is the input, element by element, so that nothing moves where both lie at one place."""

    keeps_state: ClassVar[bool] = False
    """True for ops with internal state that is in no tensor of the file. There they have one input; `own_states` are
    appended to it when a file is read, and left out when one is written."""

    is_pointwise: ClassVar[bool] = False
    """Whether it treats all pixels alike: a pixel of the output is made of the pixel at its place in each input."""

    clamps: ClassVar[tuple[str, ...]] = ()
    """Those of the names whose kernels clamp all results as the attribute `activation` says, so that it can take the
    place of an operation behind them."""

    monotone: ClassVar[tuple[str, ...]] = ()
    """Those of the names whose results never fall as one input grows, or never rise, for any values of the others: the
    ends of ranges give the ends."""

    joins: ClassVar[tuple[str, ...]] = ()
    """Those of the names whose output is their inputs, side by side along an axis."""

    parts: ClassVar[tuple[str, ...]] = ()
    """Those of the names whose outputs are parts of an input."""

    widened: ClassVar[Mapping[str, str]] = {}
    """Those of the names that compute in float32, and the operation that does the same on integers, which it
    dequantises as it reads them."""

    takes_padding: ClassVar[tuple[str, ...]] = ()
    """Those of the names whose border is read as zeros, or not at all, so that a PAD before them can become a part of
    it."""

    flattens: ClassVar[tuple[str, ...]] = ()
    """Those of the names that take the elements of the data in their order, whatever shape they have."""

    reads_only_shapes: ClassVar[bool] = False
    """Whether it looks at the shapes of its inputs, and not at their values: what it makes is known before a run."""

    takes_pitches: ClassVar[bool] = False
    """Whether the kernel takes the distances between neighbouring images, rows and pixels."""

    table: ClassVar[AnyTable | Mapping[str, AnyTable] | None] = None
    """How a file holds the attributes, by name where names differ in it; None: there are none."""

    takes: ClassVar[Signature] = Signature((1, MANY), (1, MANY), made=None)
    """How many operands it takes, of which types and sizes."""

    def decode(self, name: str, options: Any) -> Any:
        """Attributes from TFLite's options table, which is None where the file has none. Of operations that TFLite does
        not define the options are a mapping from their names."""
        table = self._table(name)
        return None if table is None else table.decode(options)

    def encode(self, node: Node) -> Options:
        """TFLite's options table that decodes to the node's attributes; None where it needs none."""
        table = self._table(node.op.kind)
        return None if table is None else table.encode(node.op, node.input(0).dtype)

    def _table(self, name: str) -> AnyTable | None:
        return self.table.get(name) if isinstance(self.table, Mapping) else self.table

    def signature(self, name: str) -> Signature:
        """What the operation of that name takes. Kinds override this whose names differ in it."""
        return self.takes

    def output_shapes(self, name: str, attributes: Any, inputs: Inputs) -> Shapes | None:
        """Shapes of the outputs; None where only the file knows them. Here, that of the first input."""
        return (input_at(inputs, 0).shape,)

    def can_make(self, node: Node) -> bool:
        """Whether outputs may have the shapes that only the file knows. Kinds override this whose kernels take some
        sizes from the inputs and some from the outputs."""
        return True

    def keeps_channels(self, node: Node) -> bool:
        """Whether output channel c, an index of the last axis, is made of channel c of each input that has as many, and
        alike for all c: without a channel the others stay what they are. Unless the kind is pointwise, the first input
        is the only one with channels."""
        return self.is_pointwise

    def only_moves(self, name: str) -> bool:
        """Whether it computes nothing: where every element keeps its place, and type and scale too, it does nothing."""
        return False

    def index_range(self, node: Node, position: int) -> tuple[int, int] | None:
        """The least and the largest number that make sense in an input that holds indices; None: it holds none."""
        return None

    def default_order(self, node: Node) -> Order | None:
        """The loop order of our own kernel for the node; None where there is none. Kinds with several kernels override
        this."""
        return None if node.op.kind in self.without_kernel else self.orders[0]

    @abstractmethod
    def accesses(self, node: Node, order: Order) -> Accesses:
        """What the kernel touches, in one of the kind's loop orders: the truth about this operation."""

    def lists_all_reads(self, node: Node) -> bool:
        """Whether `accesses` has every read; else the last one of each element, which is enough for a whole run on one
        core."""
        return True

    def separation(self, node: Node, position: int, order: Order, output: int = 0) -> int:
        """separation(output below, input above) in bytes, exact: how far above the output's start the input's start
        must lie, at the least. Clamped at minus the input's size, which also stands for "no limit". A view starts at
        its first element. In an order that the kind does not know, the two may not overlap."""
        if order not in self.orders:
            return node.outputs[output].span_bytes
        exact = self.closed_separation(node, position, order, output)
        floor = -node.input(position).span_bytes
        return floor if exact is None else max(floor, exact)

    def closed_separation(self, node: Node, position: int, order: Order, output: int) -> int | None:
        """The separation before clamping, None for "no limit". Kinds override this replay with a closed form."""
        source, target = node.input(position), node.outputs[output]
        sizes = source.dtype.size_bytes, target.dtype.size_bytes
        at = (places(t.shape, t.strides) if t.view else None for t in (source, target))
        return replayed_separation(self.accesses(node, order), position, output, *sizes, *at)

    def columns_as_rows(self, node: Node, change: ColumnsAsRows) -> Rewritten | None:
        """The operation when its columns become rows; None where it has more than one row of pixels, or cannot."""
        return pixels_as_rows(node, change) if self.is_pointwise else None

    def can_address(self, node: Node) -> bool:
        """Whether the kernel reaches all elements of tensors that are views. Of those in one piece it needs only the
        address; kinds whose kernels take strides override this."""
        if self.takes_pitches:
            return all_have_pitches(node)
        return all(t.is_in_one_piece for t in (*(t for _, t in node.activations()), *node.outputs))

    def analytical(self, node: Node, position: int) -> int | None:
        """O_s in bytes by the paper's analytical method as corrected: never above the exact one."""
        return None

    def paper(self, node: Node, position: int) -> Fraction | None:
        """O_s in bytes by the equations as printed, for comparison only: they can be unsafe."""
        return None

    def accumulator_bytes(self, node: Node) -> int | None:
        """Bytes of the sums with which the operation can take its input one row at a time, where it reduces all rows
        to one; None where it cannot."""
        return None

    def states(self, node: Node) -> tuple[int, ...]:
        """Positions of the inputs that are variables: the kernel reads them, and writes what they are at the next run.
        `accesses` takes them as read to the end."""
        return tuple(range(1, len(node.inputs))) if self.keeps_state else ()

    def own_states(self, node: Node) -> tuple[Tensor, ...]:
        """The variables that it has in no tensor of the file, for a node that is sound: names, shapes and types. They
        are zero at first."""
        return ()

    def macs(self, node: Node) -> int:
        """Multiply-accumulates of one run."""
        return 0

    def ways(self, name: str) -> Mapping[DType, Way]:
        """How it is computed, by the type of the first input, where `reference` and `c_call` do not say it."""
        return {}

    def reference(self, node: Node, inputs: Values) -> tuple[Array, ...]:
        """The outputs, in numpy, and behind them what `states` become. On integers bit for bit what TFLite's reference
        kernels give; on float32 the operations of the C kernel in its order, so that it too agrees bit for bit."""
        way = self.ways(node.op.kind).get(node.input(0).dtype)
        if way is None:
            raise Unsupported("it has no numpy reference")
        return (np.reshape(way.reference(node, *inputs), node.output.shape),)

    def variants(self, node: Node, instructions: InstructionSet) -> tuple[Variant, ...]:
        """Our kernels for the node that use an instruction set, the fastest first: besides the one in plain C, which
        there is as well."""
        return ()

    def cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """How the work of a kernel of ours can be cut for several cores: that of a variant, or that in plain C. Asked
        when planning, where weights need not be known. The units of a cut must be made of what `cut_accesses`
        says, and the kernel must go through each as it does without the others. Here, the stretch that the call says it
        can be narrowed to; else rows, where the kernel for one takes no part of a constant."""
        if stretch := _stretch_cuts(self.c_call, node):
            return stretch
        try:
            arguments = self.c_row_call(node).arguments if self.has_row_kernel(node) else ()
        except Unsupported:
            return ()
        parts = [part for a in arguments for part in (a.tensors if isinstance(a, CPointers) else (a,))]
        takes_constants = any(isinstance(part, CRow | CRows) and part.tensor.is_constant for part in parts)
        return () if takes_constants or not parts else self.cut_to_rows(node, variant)

    def cut_to_rows(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """Several cores share rows of whole tensors, if there is a kernel that makes one."""
        rows = node.output.rows
        is_plain = all(t.view is None for t in (*(t for _, t in node.activations()), *node.outputs))
        is_cut = rows > 1 and is_plain and variant is None and self.accumulator_bytes(node) is None
        return (Cut(Along.ROWS, rows, can_hold=True),) if is_cut else ()

    def cut_accesses(self, node: Node) -> Accesses:
        """What each element of the output is made of, at the step of its number: what parts are made of."""
        return self.accesses(node, Order.REFERENCE)

    def row_cuts(self, node: Node, variant: Variant | None) -> tuple[Cut, ...]:
        """The same of the kernel that makes one row, where there is one. `variant`: its `order` is that of a row."""
        return _stretch_cuts(self.c_row_call, node) or self.cuts(cut_to_row(node), variant)

    def c_call(self, node: Node) -> CCall:
        """How the operation is called in C; raises Unsupported."""
        return by_type(node, {dtype: way.call for dtype, way in self.ways(node.op.kind).items()})

    def has_row_kernel(self, node: Node) -> bool:
        """Whether `c_row_call` knows how to make one row. Asked when planning, where weights need not be known."""
        return False

    def c_row_call(self, node: Node) -> CCall:
        """How one turn is called in C: it makes one row of the output, or takes one row of the input into sums."""
        return self.by_rows(node, self.c_call)

    def by_rows(self, node: Node, call: Callable[[Node], CCall]) -> CCall:
        """How one turn of a kernel is called that `call` calls for whole tensors. Here, that kernel on one row."""
        return row_call(call(cut_to_row(node)), node)


def input_at(inputs: Inputs, position: int) -> Tensor:
    """The input at `position`, which must be there."""
    tensor = inputs[position] if position < len(inputs) else None
    if tensor is None:
        raise ModelError(f"input {position} is missing; the file is damaged")
    return tensor


def _stretch_cuts(call: Callable[[Node], CCall], node: Node) -> tuple[Cut, ...]:
    """Several cores share what a call makes, as it says itself: of calls that need no weights."""
    try:
        found = call(node).stretch
    except Unsupported:
        return ()
    return () if found is None else (Cut(Along.PIXELS, found.units, can_hold=True),)


def only_axis(axes: Sequence[int], rank: int) -> int:
    """The one that is given, counted from the front; shapes are worked out before signatures are checked."""
    if len(axes) != 1:
        raise ModelError(f"one axis is needed, {len(axes)} are given; the file is damaged")
    return axis_of(axes[0], rank)


class Computed(Unsupported):
    """What an operation does depends on values that are computed."""


def known_ints(inputs: Inputs, position: int) -> tuple[int, ...]:
    """The values of an input that holds axes, paddings, a shape; raises Computed where the file has none."""
    tensor = input_at(inputs, position)
    if tensor.data is None:
        raise Computed("what it moves depends on values that are computed, and must be constant")
    return tensor.ints


P = ParamSpec("P")
T = TypeVar("T")


def unless_computed(found: Callable[P, T]) -> Callable[P, T | None]:
    """What a function finds; None where it raises Computed."""

    @wraps(found)
    def known(*args: P.args, **kwargs: P.kwargs) -> T | None:
        with suppress(Computed):
            return found(*args, **kwargs)
        return None

    return known


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; the file may count it from the back."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} does not exist in a tensor of {rank} axes; the file is damaged")
    return axis % rank


def swept(node: Node, reads: Mapping[int, Runs]) -> Accesses:
    """Accesses of a kernel that writes its one output in order, an element at a step. `reads`: input -> its reads.

    Other inputs (filter, bias) are constants as a rule; one that lies in RAM is taken as read whole at every step.
    """
    steps = node.output.elems
    return Accesses(steps, node_reads(node, steps, reads), (Runs.sweep(steps),))


def held_separation(node: Node) -> int | None:
    """The separation of an input that `swept` takes as read whole at every step: up to the end of the last element but
    one."""
    out = node.output
    if out.elems < 2:
        return None
    before_last = pieces(out.shape, out.strides).places_of(np.array([out.elems - 2]))
    return (int(before_last[0]) + 1) * out.dtype.size_bytes


@dataclass(frozen=True, slots=True)
class ColumnsAsRows:
    """One row of pixels, (1, 1, n, c) or (1, n, c), and one column, (1, n, 1, c), are the same bytes in the same order:
    what changes around an operation if its row becomes a column. `shapes`: the tensors that change, by index, and their
    shapes then. `axes`: where each axis that they have now goes. `own`: the constants that serve no other operation."""

    shapes: Mapping[int, Shape]
    axes: Sequence[int]
    own: Collection[int]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What an operation becomes. `constants`: inputs by position, and what they become if they are to change."""

    attributes: Any
    constants: Mapping[int, Tensor] = field(default_factory=dict)


def pixels_as_rows(node: Node, change: ColumnsAsRows) -> Rewritten | None:
    """Every pixel is treated alike: what changes has one shape, what does not is the same for all pixels."""
    shapes = {change.shapes.get(t.index) for t in (*(t for _, t in node.activations()), *node.outputs)}
    constants = [t for t in node.inputs if t is not None and t.is_constant]
    is_alike = len(shapes) == 1 and all(t.elems == t.shape[-1] if t.shape else True for t in constants)
    return Rewritten(node.attributes) if is_alike else None
