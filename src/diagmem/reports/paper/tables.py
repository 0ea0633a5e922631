"""Tables I to III and the example of section II-A: published, reproduced by the paper's own procedure, and ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from diagmem.frontends import zoo
from diagmem.model.graph import Graph, Node
from diagmem.ops import kind_of
from diagmem.ops.convolution.depthwise_conv_2d import KIND
from diagmem.planning.planner import Planned
from diagmem.reports.paper.document import Table
from diagmem.reports.paper.procedure import (
    ANALYTICAL,
    EXACT,
    Reproduction,
    reference_overlap,
    reproduce,
    with_other_ties,
)
from diagmem.reports.paper.published import (
    EXAMPLE,
    SPLITTING,
    TABLE_I,
    TABLE_I_PRINTED,
    TABLE_II,
    TABLE_III,
    EstimateRow,
    Layer,
    PeakRow,
    Splitting,
)

KB = 1024


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
        "model",
        "published exact",
        "published estimate",
        "error",
        "true exact",
        "corrected estimate",
        "as printed",
    )
    return Table("Table II: safe overlap O_s in bytes", headings, cells, tuple(notes.texts))


def _estimate_row(row: EstimateRow, notes: Notes) -> tuple[str, ...]:
    node = layer(row.layer)
    exact, estimate = reference_overlap(node, EXACT), reference_overlap(node, ANALYTICAL)
    kind = kind_of(node.op.kind)
    printed = kind.paper(node, 0) if kind else None
    mark = _explain_estimate(row, exact, notes)
    return (
        row.title + mark,
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
    kind = kind_of(behind.op.kind)
    printed = kind.paper(behind, 0) if kind else None
    needed = behind.input(0).size_bytes + behind.output.size_bytes - int(printed or 0)
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
        f"{kb(other.arena_bytes)} KB, which is more than the original, so that no saving is left to print. The "
        "choice decides other rows too; neither gives all eleven."
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
