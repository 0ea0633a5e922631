"""The document: Tables I to III and the example of section II-A, as the paper prints them, reproduced by its own
procedure, and ours; and the paper's errata. KB is 1024 bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from diagmem.frontends import zoo
from diagmem.frontends.zoo.networks import SAME, VALID, Builder
from diagmem.model.graph import Graph, Node
from diagmem.ops import kind_of
from diagmem.ops.convolution.depthwise_conv_2d import KIND
from diagmem.ops.orders import Order
from diagmem.planning.needs.build_problem import build_problem
from diagmem.planning.needs.footprint import Footprint, SeparationRule, footprint
from diagmem.planning.needs.problem import Problem
from diagmem.planning.options import Options
from diagmem.planning.order.search import file_order
from diagmem.planning.place.fit import Offsets
from diagmem.planning.place.local_search import modified_heap, reordered_heap
from diagmem.planning.plan import Plan
from diagmem.planning.planner import Planned
from diagmem.reports.drawing import KB
from diagmem.reports.inspection import inspect
from diagmem.reports.pages import Document, Figure, Section, Table

CITATION = (
    "P. Blacker, C. P. Bridges, S. Hadfield: Diagonal Memory Optimisation for Machine Learning on Micro-controllers"
)

EXAMPLE = "mobilenet_v1_0.25_128_int8"
"""The model that the paper explains itself with."""


@dataclass(frozen=True, slots=True)
class PeakRow:
    """A row of Table III: peak memory in KB. `is_sequential`: one of the six that the paper calls so."""

    model: str
    title: str
    original_kb: int
    optimised_kb: int
    saving: str
    is_sequential: bool


TABLE_III = (
    PeakRow("mobilenet_v1_1.0_224", "MobileNet v1 1.0 224", 4704, 3136, "33.3 %", True),
    PeakRow("mobilenet_v1_1.0_224_int8", "MobileNet v1 1.0 224 (8 bit)", 1176, 784, "33.3 %", True),
    PeakRow("mobilenet_v1_0.25_224", "MobileNet v1 0.25 224", 1176, 786, "33.2 %", True),
    PeakRow("mobilenet_v1_0.25_128_int8", "MobileNet v1 0.25 128 (8 bit)", 96, 64, "33.1 %", True),
    PeakRow("mobilenet_v2_0.35_224", "MobileNet v2 0.35 224", 2940, 2352, "20 %", True),
    PeakRow("mobilenet_v2_1.0_224", "MobileNet v2 1.0 224", 5880, 4704, "20 %", True),
    PeakRow("inception_v4", "Inception v4", 10879, 10079, "7.35 %", False),
    PeakRow("inception_resnet_v2", "Inception ResNet v2", 8399, 5504, "34.4 %", False),
    PeakRow("nasnet_mobile", "Nasnet Mobile", 4540, 4540, "None", False),
    PeakRow("densenet_121", "DenseNet 121", 8624, 8232, "4.55 %", False),
    PeakRow("resnet50_v2", "ResNet 50 v2", 10976, 10976, "None", False),
)


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation of a zoo model by its shapes: (height, width, channels) of input and output."""

    model: str
    source: tuple[int, int, int]
    target: tuple[int, int, int]


TABLE_I = Layer("mobilenet_v2_1.0_224", (112, 112, 96), (56, 56, 96))
"""Specification of the second depthwise convolution "in MobileNet": it is MobileNet v2's."""

V1_PEAK = Layer("mobilenet_v1_1.0_224", (112, 112, 32), (112, 112, 64))
INCEPTION_PEAK = Layer("inception_resnet_v2", (147, 147, 32), (147, 147, 64))

TABLE_I_PRINTED = (
    ("input shape (w, h, c)", "112, 112, 96"),
    ("filter shape (w, h, x, y)", "3, 3, 96, 1"),
    ("output shape (w, h, c)", "56, 56, 96"),
    ("stride (w, h)", "2, 2"),
    ("dilation (w, h)", "1, 1"),
)


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of Table II: O_s in bytes as printed, and the layer that the row's label names."""

    title: str
    exact_bytes: int
    estimate_bytes: int
    error: str
    layer: Layer


TABLE_II = (
    EstimateRow("mobilenet v1 1.0 224", 1204224, 1193376, "0.18 %", V1_PEAK),
    EstimateRow("mobilenet v2 1.0 224", 1605632, 1598400, "0.15 %", TABLE_I),
    EstimateRow("Inception ResNet v2", 2746884, 2746884, "0 %", INCEPTION_PEAK),
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """Section II-A: two operations split by rows of the second one's output."""

    pieces: int
    rows: int
    peak_bytes: int
    repeated_elems: int


SPLITTING = Splitting(4, 18, 66 * 1024, 6144)


OVERLAPPED = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D")
"""Convolutions and poolings overlap in the paper's own procedure, nothing else does."""

EXACT, ANALYTICAL = "exact", "analytical"


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`method`: how O_s was computed for `optimised`."""

    original: Plan
    optimised: Plan
    method: str


def reproduce(graph: Graph, is_sequential: bool) -> dict[str, Reproduction]:
    """The two figures of a row of Table III, by the method that O_s comes from.

    It is the paper's own procedure (sections II-D and IV), as far as its figures tell it. Only intermediate tensors are
    counted, in the order in which the model's file creates them. The sequential models are placed by a plain heap from
    the last tensor to the first, one tensor moved to the end; the connected ones by the heap of section IV.
    """
    if is_sequential:
        original = _placed(_apart(graph), reordered_heap)
        return {
            m: Reproduction(original, _placed(_overlapped(graph, m), reordered_heap), m) for m in (EXACT, ANALYTICAL)
        }
    apart = _apart(graph)
    original = _smaller(_placed(apart, _FORWARDS), _placed(apart, _BACKWARDS))
    overlapped = _placed(_overlapped(graph, ANALYTICAL), _BACKWARDS)
    return {ANALYTICAL: Reproduction(original, _smaller(original, overlapped), ANALYTICAL)}


def with_other_ties(graph: Graph) -> Plan:
    """The connected models' optimised plan if ties go to the tensor created last."""
    return _placed(_overlapped(graph, ANALYTICAL), partial(_BACKWARDS, latest_first=True))


def reference_overlap(node: Node, method: str) -> int | None:
    """O_s in bytes of the reference kernel, by the method; None where the paper does not overlap."""
    kind = kind_of(node.op.kind)
    if kind is None or node.op.kind not in OVERLAPPED:
        return None
    if method == ANALYTICAL:
        return kind.analytical(node, 0)
    return node.output.size_bytes - kind.separation(node, 0, Order.REFERENCE)


def printed_overlap(node: Node) -> Fraction | None:
    """O_s in bytes by equation (11) as printed; None where the paper has no formula."""
    kind = kind_of(node.op.kind)
    return kind.paper(node, 0) if kind else None


def _rule(method: str) -> SeparationRule:
    def separation(node: Node, position: int, output: int) -> int | None:
        overlap = reference_overlap(node, method) if position == 0 else None
        return None if overlap is None else node.outputs[output].size_bytes - overlap

    return separation


def _apart(graph: Graph) -> Footprint:
    return footprint(graph, Options(external_io=True, overlap=False))


def _overlapped(graph: Graph, method: str) -> Footprint:
    return footprint(graph, Options(external_io=True), _rule(method))


_FORWARDS, _BACKWARDS = (partial(modified_heap, backwards=backwards) for backwards in (False, True))
"""The heap of section IV, from the first tensor on, or from the last."""


def _placed(needs: Footprint, place: Callable[[Problem], Offsets]) -> Plan:
    order = file_order(needs)
    problem = build_problem(needs, order)
    return Plan.of(needs.graph, needs.options, order, problem, place(problem))


def _smaller(first: Plan, second: Plan) -> Plan:
    return min(first, second, key=lambda plan: plan.arena_bytes)


class Notes:
    """Footnotes in the order in which cells first refer to them."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]"


def kb(size_bytes: float) -> str:
    return f"{size_bytes / KB:.1f}"


def layer(place: Layer) -> Node:
    """The operation of a zoo model with these shapes."""
    for node in zoo.build(place.model).nodes:
        shapes = [t.shape[1:] for t in (*node.inputs[:1], node.output) if t is not None]
        if shapes == [place.source, place.target]:
            return node
    raise ValueError(f"{place.model} has no layer {place.source} -> {place.target}")


def table_i() -> Table:
    node = layer(TABLE_I)
    window, source, target = KIND.window(node), node.input(0).shape, node.output.shape
    rows, cols = window.rows, window.cols
    found = (
        f"{source[2]}, {source[1]}, {source[3]}",
        f"{cols.kernel}, {rows.kernel}, {source[3]}, {node.attributes.multiplier}",
        f"{target[2]}, {target[1]}, {target[3]}",
        f"{cols.stride}, {rows.stride}",
        f"{cols.dilation}, {rows.dilation}",
    )
    cells = tuple((name, printed, ours) for (name, printed), ours in zip(TABLE_I_PRINTED, found, strict=True))
    note = f"The layer is op {node.op.index} of MobileNet v2 1.0 224. MobileNet v1 has no layer of these shapes."
    return Table(
        "Table I: the second depthwise convolution", ("setting", "published", "found [1]"), cells, (note,), True
    )


def table_ii() -> Table:
    notes = Notes()
    cells = tuple(_estimate_row(row, notes) for row in TABLE_II)
    headings = (
        *("model", "published exact", "published estimate", "error"),
        *("true exact", "corrected estimate", "as printed"),
    )
    return Table("Table II: safe overlap O_s in bytes", headings, cells, tuple(notes.texts))


def _estimate_row(row: EstimateRow, notes: Notes) -> tuple[str, ...]:
    node = layer(row.layer)
    exact, estimate = reference_overlap(node, EXACT), reference_overlap(node, ANALYTICAL)
    printed = printed_overlap(node)
    return (
        row.title + _explain_estimate(row, exact, notes),
        str(row.exact_bytes),
        str(row.estimate_bytes),
        row.error,
        str(exact),
        str(estimate),
        "-" if printed is None else f"{float(printed):g}" if printed.denominator > 1 else str(printed),
    )


def _explain_estimate(row: EstimateRow, exact: int | None, notes: Notes) -> str:
    if row.exact_bytes == exact:
        return ""
    v2 = layer(TABLE_I)
    if row.exact_bytes == reference_overlap(v2, EXACT):
        peak = _row("mobilenet_v2_1.0_224").original_kb * KB
        lost = row.exact_bytes - row.estimate_bytes
        return notes.mark(
            "The labels of the first two rows are swapped: these figures are those of Table I's layer, of MobileNet "
            f"v2. The error is given relative to that model's original peak ({lost} of {peak} bytes is "
            f"{100 * lost / peak:.2f} %); relative to O_s it is {100 * lost / row.exact_bytes:.2f} %."
        )
    v1 = _row("mobilenet_v1_1.0_224")
    saved = (v1.original_kb - v1.optimised_kb) * KB
    behind = layer(Layer("mobilenet_v1_1.0_224", (112, 112, 64), (56, 56, 64)))
    needed = behind.input(0).size_bytes + behind.output.size_bytes - int(printed_overlap(behind) or 0)
    return notes.mark(
        f"Not an O_s: {row.exact_bytes} bytes is what MobileNet v1 saves, {v1.original_kb} KB less {v1.optimised_kb} "
        f"KB ({saved} bytes). {row.estimate_bytes} is what it saves by the printed formula, when the depthwise layer "
        f"behind sets the peak: {v1.original_kb * KB} less {needed} bytes. The true O_s of the layer at MobileNet "
        "v1's peak is in the first row."
    )


def _row(model: str) -> PeakRow:
    return next(row for row in TABLE_III if row.model == model)


def table_iii(rows: Sequence[tuple[PeakRow, Graph, Planned]]) -> Table:
    """`rows`: published, the graph, and our plan of it."""
    notes = Notes()
    counted = notes.mark(
        "Published and reproduced figures count intermediate tensors only. Ours count the graph's input and output "
        "as well, and are checked byte by byte; the bound holds for all orders of the operations and all placements."
    )
    headings = (
        *("model", "published original", "published optimised", "reproduced original", "reproduced optimised", "O_s"),
        *("ours, no overlap" + counted, "ours" + counted, "lower bound" + counted),
    )
    cells = tuple(_peak_row(row, graph, plan, notes) for row, graph, plan in rows)
    return Table("Table III: peak memory in KB, original and optimised", headings, cells, tuple(notes.texts))


def closest(row: PeakRow, found: Mapping[str, Reproduction]) -> Reproduction:
    """The reproduction whose saving is nearest to the printed one."""
    printed = 0.0 if row.saving == "None" else float(row.saving.split()[0])
    return min(found.values(), key=lambda r: abs(printed - _saving(r)))


def _saving(found: Reproduction) -> float:
    return 100 * (1 - found.optimised.arena_bytes / found.original.arena_bytes)


def _peak_row(row: PeakRow, graph: Graph, plan: Planned, notes: Notes) -> tuple[str, ...]:
    found = reproduce(graph, row.is_sequential)
    best = closest(row, found)
    original, optimised = best.original.arena_bytes, best.optimised.arena_bytes
    marks = _explain_method(row, found, best, notes) + _explain_rounding(row, original, optimised, notes)
    if abs(optimised / KB - row.optimised_kb) >= 1:
        marks += _explain_ties(row, graph, optimised, notes)
    if not row.is_sequential:
        marks += notes.mark(
            "Ours are lower than the paper's procedure allows because element-wise operations work in place and "
            "concatenations overlap (section III of the paper describes the former; its results leave it out), the "
            "order of operations is searched, and addresses are optimal. Leaving out element-wise overlap also is "
            "why the paper finds DenseNet an anomaly, and no saving for NASNet and ResNet."
        )
    return (
        row.title + marks,
        str(row.original_kb),
        str(row.optimised_kb),
        kb(original),
        kb(optimised),
        best.method,
        kb(plan.baseline_bytes),
        kb(plan.arena_bytes),
        kb(plan.lower_bound_bytes) + ("" if plan.optimal else " (not met)"),
    )


def _explain_method(row: PeakRow, found: Mapping[str, Reproduction], best: Reproduction, notes: Notes) -> str:
    if len(found) < 2:
        return ""
    other = next(r for r in found.values() if r is not best)
    if best.method == EXACT:
        return notes.mark(
            "The text says that all results use the analytical method. Rows marked so only match the exact O_s: the "
            "analytical one gives a little more."
        )
    return notes.mark(
        f"{row.title}: this row only matches the analytical O_s, {kb(best.optimised.arena_bytes)} KB or "
        f"{_saving(best):.1f} % saved; the exact one gives {kb(other.optimised.arena_bytes)} KB."
    )


def _explain_rounding(row: PeakRow, original: int, optimised: int, notes: Notes) -> str:
    pairs = ((row.original_kb, original), (row.optimised_kb, optimised))
    cut = any(printed == size // KB and round(size / KB) != printed for printed, size in pairs)
    return notes.mark("Fractions of a KB are cut off in print, not rounded.") if cut else ""


def _explain_ties(row: PeakRow, graph: Graph, optimised: int, notes: Notes) -> str:
    other = with_other_ties(graph)
    return notes.mark(
        f"{row.title}: a tie-break. The paper does not say which tensor its heap takes when two would end at the "
        f"same address. Taking the one that has waited longest gives {kb(optimised)} KB, taking the one created last "
        f"{kb(other.arena_bytes)} KB, which is more than the original: no saving to print. The choice decides other "
        "rows too; neither gives all eleven."
    )


def splitting_table() -> Table:
    """Section II-A: the example model's second and third operation, split in four."""
    ours, piece = splitting(), SPLITTING
    rows = (
        ("rows of the tensor between, per piece", str(piece.rows), str(ours.rows)),
        ("peak, KB", kb(piece.peak_bytes), kb(ours.peak_bytes)),
        ("elements computed twice", str(piece.repeated_elems), str(ours.repeated_elems)),
    )
    note = (
        "A 3x3 window of stride 2 over an even number of rows needs one row beyond the piece, not two: padding is "
        "at the end only. The last piece needs none."
    )
    return Table("Section II-A: splitting in four", ("", "published", "computed" + " [1]"), rows, (note,))


def splitting() -> Splitting:
    """Computed from the window's taps."""
    nodes = zoo.build(EXAMPLE).nodes
    wide = max(nodes, key=lambda node: node.output.size_bytes)
    after = nodes[wide.op.index + 1]
    window, between = KIND.window(after).rows, wide.output
    per_piece = window.size_out // SPLITTING.pieces
    output, source = window.taps()
    needed = [{int(row) for row in source[output // per_piece == piece]} for piece in range(SPLITTING.pieces)]
    row_bytes = between.size_bytes // window.size_in
    most = max(map(len, needed))
    repeated = sum(map(len, needed)) - len(set().union(*needed))
    peak = wide.input(0).size_bytes + after.output.size_bytes + most * row_bytes
    return Splitting(SPLITTING.pieces, most, peak, repeated * between.elems // window.size_in)


SLIPS = (
    (
        "eq. (5), (6)",
        "Padding is not clamped at 0: where the window does not reach the input's end they give P = -1, and an "
        "overlap that is unsafe.",
    ),
    (
        "eq. (11)",
        "Even with P clamped it is unsafe where S_w > S_h·I_w/O_w (unequal strides): the line touches one corner only.",
    ),
    ("eq. (11)", "The estimate can be negative; it must be clamped at 0."),
    ("eq. (1)", "The inequalities point the wrong way: 0 ≤ i ≤ i_c is meant."),
    ("eq. (2)", "O_d should be I_d."),
    ("eq. (3)", "Height and width are swapped: S_h and P_h belong to the rows."),
    ("section III-D", "The gradient called di/do is do/di."),
    ("eq. (15)", "It is I_d - 1 lower than it need be; safe."),
    (
        "Algorithm 2",
        "maxF_o and minR_o are never updated, so maxW is not a maximum over steps and minR not one over later steps.",
    ),
    (
        "section III-F",
        "It says that vectorised kernels have the reference kernel's O_s. CMSIS-NN's 1x1 convolution on cores "
        "without MVE loops over output channels outermost and leaves O_s = 2 bytes; a plan holds for one kernel "
        "library on one kind of core.",
    ),
    ("Table II", "Labels swapped, one row not an O_s at all, errors relative to another quantity: see its notes."),
    ("Table III", "Rows mix the exact and the analytical method; element-wise overlap is left out: see its notes."),
    ("section II-A", "18 rows, 66 KB and 6144 elements should be 17, 65 KB and 3072: see above."),
)


def errata() -> Section:
    slips = Table("Slips", ("where", "what"), SLIPS, is_text=True)
    return Section(
        "Errata",
        ("Found by comparing each formula with a simulation of the loops that tags every byte of memory.",),
        (slips, _unsafe_layers(), _weights()),
    )


def _unsafe_layers() -> Table:
    return Table(
        "Layers of real networks for which the printed formula is unsafe (float, O_s in bytes)",
        ("layer", "exact", "as printed", "too large by, elements", "corrected"),
        tuple(_unsafe_row(*shape) for shape in ((230, 3, 64, 7), (56, 256, 512, 1), (112, 16, 96, 3))),
    )


def _unsafe_row(size: int, depth: int, channels: int, kernel: int) -> tuple[str, ...]:
    builder = Builder("layer")
    padding = SAME if kernel == 1 else VALID
    made = builder.conv(builder.input(1, size, size, depth), channels, kernel, 2, padding)
    node = builder.graph(made).nodes[0]
    printed, exact = printed_overlap(node), reference_overlap(node, EXACT)
    if printed is None or exact is None:
        raise ValueError(f"{node.label}: the paper has no formula for it")
    target = node.output.shape
    words = f"{kernel}x{kernel}, stride 2, {size}x{size}x{depth} → {target[1]}x{target[2]}x{target[3]}"
    excess = float(printed - exact) / node.output.dtype.size_bytes
    return words, str(exact), f"{float(printed):.0f}", f"{excess:g}", str(reference_overlap(node, ANALYTICAL))


def _weights() -> Table:
    """Section IV quotes sizes of weights."""
    rows = []
    for name, printed in (("mobilenet_v1_0.25_128_int8", "623 KB"), ("mobilenet_v1_0.25_224", "about 2.5 MB")):
        found = inspect(zoo.build(name)).weights_bytes
        rows.append((name, printed, f"{kb(found)} KB"))
    note = "Weights and biases of the network with 1001 classes; the paper does not say what it counts."
    return Table("Section IV: bytes of weights", ("model", "published", "computed [1]"), tuple(rows), (note,))


THREADS = (
    "The paper finds that threads with a region of the output each make diagonal memory optimisation useless, and "
    "leaves open whether other ways are safe. They are, if cores share the next part of the work in phases with a "
    "barrier after each: two cores run the networks of docs/multicore.md in the arena of one, bit for bit, 1.97 to "
    "2.01 times as fast."
)
"""What the paper leaves open, answered."""


def tables(rows: Sequence[tuple[PeakRow, Graph, Planned]]) -> tuple[Table, ...]:
    """Tables I to III, and the example of section II-A."""
    return table_i(), table_ii(), table_iii(rows), splitting_table()


def document(found: Sequence[Table], figures: Sequence[Figure]) -> Document:
    """`found`: as `tables` gives them."""
    named = {figure.name: figure for figure in figures}

    def pick(*names: str) -> tuple[Figure, ...]:
        return tuple(named[name] for name in names if name in named)

    return Document(
        "The paper, reproduced",
        (
            f"{CITATION}. Every table and figure, as published and as computed. Made by `diagmem paper`.",
            "KB is 1024 bytes. *Reproduced* is the paper's own procedure on the same graphs; *ours* is `diagmem plan "
            "--schedule best --skip all`: whole layers, every operation kept.",
        ),
        (
            Section("Results", (), (found[2],), pick("before_after", "live")),
            Section("The example model", (), (found[3],), pick("heap", "traces")),
            Section("Safe overlap", (), (found[0], found[1]), pick("four_operations", "separation")),
            Section("The analytical method", (), (), pick("reads", "min_r", "cases")),
            Section("Threads, and the DenseNet anomaly", (THREADS,), (), pick("threads", "cores", "densenet")),
            errata(),
        ),
    )
