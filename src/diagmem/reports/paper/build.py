"""The document: all tables and figures in the paper's order, and its errata."""

from __future__ import annotations

from collections.abc import Sequence

from diagmem.frontends.zoo import build
from diagmem.frontends.zoo.networks import SAME, VALID, Builder
from diagmem.model.graph import Graph, Node
from diagmem.ops import kind_of
from diagmem.planning.planner import Planned
from diagmem.reports.inspection import inspect
from diagmem.reports.paper.document import Document, Figure, Section, Table
from diagmem.reports.paper.procedure import ANALYTICAL, EXACT, reference_overlap
from diagmem.reports.paper.published import CITATION, PeakRow
from diagmem.reports.paper.tables import splitting_table, table_i, table_ii, table_iii

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
    rows = tuple(_unsafe_row(*shape) for shape in ((230, 3, 64, 7), (56, 256, 512, 1), (112, 16, 96, 3)))
    return Table(
        "Layers of real networks for which the printed formula is unsafe (float, O_s in bytes)",
        ("layer", "exact", "as printed", "too large by, elements", "corrected"),
        rows,
    )


def _unsafe_row(size: int, depth: int, channels: int, kernel: int) -> tuple[str, ...]:
    node = _conv(size, depth, channels, kernel)
    kind = kind_of(node.op.kind)
    printed, exact = kind.paper(node, 0) if kind else None, reference_overlap(node, EXACT)
    if printed is None or exact is None:
        raise ValueError(f"{node.label}: the paper has no formula for it")
    target = node.output.shape
    words = f"{kernel}x{kernel}, stride 2, {size}x{size}x{depth} → {target[1]}x{target[2]}x{target[3]}"
    excess = float(printed - exact) / node.output.dtype.size_bytes
    return words, str(exact), f"{float(printed):.0f}", f"{excess:g}", str(reference_overlap(node, ANALYTICAL))


def _conv(size: int, depth: int, channels: int, kernel: int) -> Node:
    builder = Builder("layer")
    padding = SAME if kernel == 1 else VALID
    return builder.graph(builder.conv(builder.input(1, size, size, depth), channels, kernel, 2, padding)).nodes[0]


def _weights() -> Table:
    """Section IV quotes sizes of weights."""
    rows = []
    for name, printed in (("mobilenet_v1_0.25_128_int8", "623 KB"), ("mobilenet_v1_0.25_224", "about 2.5 MB")):
        found = inspect(build(name)).weights_bytes
        rows.append((name, printed, f"{found / 1024:.1f} KB"))
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
            f"{CITATION}. Every table and figure, published beside computed. Made by `diagmem paper`.",
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
