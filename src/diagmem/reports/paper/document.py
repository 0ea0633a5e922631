"""The document: Tables I to III and the example of section II-A, as the paper prints them, reproduced by its own
procedure, and ours; and the paper's errata. KB is 1024 bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from diagmem.frontends import zoo
from diagmem.frontends.zoo.networks import SAME, VALID, Builder
from diagmem.model.graph import Graph, Node
from diagmem.model.tables import table, tuples
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

PRINTED = tuples(table(__package__, "paper"))
"""What the paper prints, and what is said about it."""

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


TABLE_III = tuple(PeakRow(**row) for row in PRINTED["peaks"])


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation of a zoo model by its shapes: (height, width, channels) of input and output."""

    model: str
    source: tuple[int, int, int]
    target: tuple[int, int, int]


TABLE_I = Layer("mobilenet_v2_1.0_224", (112, 112, 96), (56, 56, 96))
"""Specification of the second depthwise convolution "in MobileNet": it is MobileNet v2's."""


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """A row of Table II: O_s in bytes as printed, and the layer that the row's label names."""

    title: str
    exact_bytes: int
    estimate_bytes: int
    error: str
    layer: Layer


TABLE_II = tuple(EstimateRow(**{**row, "layer": Layer(**row["layer"])}) for row in PRINTED["estimates"])


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

    def mark(self, name: str, **figures: Any) -> str:
        """Refers to the note of that name."""
        text = note(name, **figures)
        if text not in self.texts:
            self.texts.append(text)
        return f" [{self.texts.index(text) + 1}]"


def note(name: str, **figures: Any) -> str:
    text: str = PRINTED["notes"][name]
    return text.format(**figures)


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
    cells = tuple(
        (name, printed, ours) for (name, printed), ours in zip(PRINTED["settings"].items(), found, strict=True)
    )
    headings, own = ("setting", "published", "found [1]"), note("table_i", op=node.op.index)
    return Table("Table I: the second depthwise convolution", headings, cells, (own,), True)


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
        shares = {"of_peak": 100 * lost / peak, "of_overlap": 100 * lost / row.exact_bytes}
        return notes.mark("swapped", lost=lost, peak=peak, **shares)
    v1 = _row("mobilenet_v1_1.0_224")
    behind = layer(Layer("mobilenet_v1_1.0_224", (112, 112, 64), (56, 56, 64)))
    needed = behind.input(0).size_bytes + behind.output.size_bytes - int(printed_overlap(behind) or 0)
    sizes = {"saved": (v1.original_kb - v1.optimised_kb) * KB, "peak": v1.original_kb * KB, "needed": needed}
    return notes.mark("no_overlap", row=row, v1=v1, **sizes)


def _row(model: str) -> PeakRow:
    return next(row for row in TABLE_III if row.model == model)


def table_iii(rows: Sequence[tuple[PeakRow, Graph, Planned]]) -> Table:
    """`rows`: published, the graph, and our plan of it."""
    notes = Notes()
    counted = notes.mark("counted")
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
        marks += notes.mark("in_place")
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
        return notes.mark("exact_only")
    sizes = {"best": kb(best.optimised.arena_bytes), "other": kb(other.optimised.arena_bytes)}
    return notes.mark("analytical_only", title=row.title, saving=_saving(best), **sizes)


def _explain_rounding(row: PeakRow, original: int, optimised: int, notes: Notes) -> str:
    pairs = ((row.original_kb, original), (row.optimised_kb, optimised))
    cut = any(printed == size // KB and round(size / KB) != printed for printed, size in pairs)
    return notes.mark("cut_off") if cut else ""


def _explain_ties(row: PeakRow, graph: Graph, optimised: int, notes: Notes) -> str:
    other = with_other_ties(graph)
    return notes.mark("ties", title=row.title, first=kb(optimised), last=kb(other.arena_bytes))


def splitting_table() -> Table:
    """Section II-A: the example model's second and third operation, split in four."""
    ours, piece = splitting(), SPLITTING
    rows = (
        ("rows of the tensor between, per piece", str(piece.rows), str(ours.rows)),
        ("peak, KB", kb(piece.peak_bytes), kb(ours.peak_bytes)),
        ("elements computed twice", str(piece.repeated_elems), str(ours.repeated_elems)),
    )
    return Table("Section II-A: splitting in four", ("", "published", "computed" + " [1]"), rows, (note("splitting"),))


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


def errata() -> Section:
    slips = Table(
        "Slips", ("where", "what"), tuple((slip["where"], slip["what"]) for slip in PRINTED["slips"]), is_text=True
    )
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
    return Table(
        "Section IV: bytes of weights", ("model", "published", "computed [1]"), tuple(rows), (note("weights"),)
    )


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
            f"{PRINTED['citation']}. Every table and figure, as published and as computed. Made by `diagmem paper`.",
            "KB is 1024 bytes. *Reproduced* is the paper's own procedure on the same graphs; *ours* is `diagmem plan "
            "--schedule best --skip all`: whole layers, every operation kept.",
        ),
        (
            Section("Results", (), (found[2],), pick("before_after", "live")),
            Section("The example model", (), (found[3],), pick("heap", "traces")),
            Section("Safe overlap", (), (found[0], found[1]), pick("four_operations", "separation")),
            Section("The analytical method", (), (), pick("reads", "min_r", "cases")),
            Section(
                "Threads, and the DenseNet anomaly", (PRINTED["threads"],), (), pick("threads", "cores", "densenet")
            ),
            errata(),
        ),
    )
