"""The parts of an op that several cores share, in C: a function that makes some of its units, and its phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from diagmem.backends.c.addresses import address, arena_type, enumerator
from diagmem.backends.c.calls import argument_text, call_text, describe, pointers_text, row_text
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node, Tensor
from diagmem.model.multicore import Along, Split
from diagmem.ops import CCall, CChannels, CPointers, CRow, CRows, CScratch, CStretch, CStruct, CTable, CTurn
from diagmem.ops.c_call import outermost
from diagmem.planning.cores.multicore import unit_bytes


def turn_parameter(program: Program, type_name: str = "") -> str:
    """The parameter, or argument, that says which turn it is, where ops have turns."""
    return f", {type_name}turn" if program.visits else ""


def part_parameters(program: Program) -> str:
    """Of a function that makes some units."""
    turn = turn_parameter(program, "int32_t ")
    return f"{arena_type(program)}arena, int core{turn}, int32_t first, int32_t end, void *held"


def part_result(program: Program) -> str:
    """What such a function returns: where ops have turns, the place of the first unit; NULL for one without."""
    return "void *" if program.visits else "void "


def part_of_op(program: Program, tables: Tables, split: Split, name: str) -> str:
    """The part function of an op that runs whole, its phases, and what joins them."""
    node = program.graph.nodes[split.op]
    number = node.op.number
    made = part_function(program, split, name, f"op{number}_part", list(_body(program, tables, split, node)))
    shared = shared_text(program, split, f"op{number}_part", f"op{number}_phases")
    return f"""\
{made}{phases_text(split, f"op{number}_phases")}\
static const shared_op op{number}_shared = {shared};
"""


def called(program: Program, node: Node) -> CCall:
    """The call of an op that cores share."""
    call = program.calls[node.op.index]
    if call is None:
        raise PlanError(f"{node.label}: the plan has cores share what moves nothing")
    return call


def part_function(program: Program, split: Split, name: str, function: str, lines: list[str]) -> str:
    """The function that makes some units, by these lines; of a turn, the first of them says where `own` is."""
    node = program.graph.nodes[split.op]
    unused = ["core", "held", *(["turn"] if program.visits else [])]
    used = "".join(f"    (void){what};\n" for what in unused if not any(what in line for line in lines))
    body = "".join(f"    {line}\n" for line in lines)
    own = "NULL" if split.turns is None else "own"
    returned = f"    return {own};\n" if program.visits else ""
    narrowed = f"    {called(program, node).parameters.type} part = op{node.op.number};\n"
    copied = narrowed if any("part." in line for line in lines) else ""
    return f"""\
/* {describe(node)}: {split.cut.along.value} */
static {name.upper()}_CODE_ATTR {part_result(program)}{function}({part_parameters(program)}) {{
{copied}{used}{body}{returned}}}
"""


def phases_text(split: Split, name: str) -> str:
    rows = "".join(f"    {{{p.end}, {p.step}, {p.how.name}}},\n" for p in split.phases)
    return f"static const phases_of_op {name}[] = {{\n{rows}}};\n"


def shared_text(program: Program, split: Split, part: str, phases: str) -> str:
    """A `shared_op`."""
    out, cut = program.graph.nodes[split.op].output, split.cut
    is_row = split.turns is not None
    at = program.storage[out.index].offsets[0] if is_row else program.offsets[out.index]
    use = program.pools.at(at)
    pool = [] if use is None else [enumerator(use)]
    offset = 0 if is_row else at - (use.start if use is not None else 0)
    size = unit_bytes(program.graph, split) if split.most_held else 0
    fields = (part, phases, cut.units, cut.grain, offset, size, *pool)
    return f"{{{', '.join(map(str, fields))}}}"


def _body(program: Program, tables: Tables, split: Split, node: Node) -> Iterator[str]:
    call = called(program, node)
    if split.cut.along is Along.ROWS:
        yield from _rows(program, tables, call, node)
    elif split.cut.along is Along.CHANNELS:
        yield from _channels(program, tables, split, call, node)
    elif "window" in call.parameters.fields:
        yield from _pixels(program, tables, split, call, node)
    else:
        yield from _stretch(program, tables, split, call, node)


def _rows(program: Program, tables: Tables, call: CCall, node: Node) -> Iterator[str]:
    """The kernel for a row makes one after the other."""
    if any(isinstance(argument, CRows) for argument in call.arguments):
        yield "const void *rows[DIAGMEM_MAX_ROWS];"
    position = next(n for n, a in enumerate(call.arguments) if isinstance(a, CRow) and a.tensor is node.output)
    target = call.arguments[position]
    assert isinstance(target, CRow)
    made = f"(unsigned char *)held + (turn - first) * {node.output.row_bytes}"
    yield f"for ({'' if program.visits else 'int32_t '}turn = first; turn < end; ++turn) {{"
    yield f"    void *const own = {row_text(target, position, node, program)};"
    yield f"    void *const out = held == NULL ? own : {made};"
    yield f"    {call_text(node, call, program, tables, {position: 'out'})}"
    yield "}"


def _pixels(program: Program, tables: Tables, split: Split, call: CCall, node: Node) -> Iterator[str]:
    """A stretch of a row after the other, by the kernel's row function."""
    of, size = f"op{node.op.number}.window", node.output.dtype.size_bytes
    at = f"diagmem_pixel_at(&{of}, first)"
    own = argument_text(node.output, node, program, tables, at if size == 1 else f"{size} * {at}")
    apart = f"(unsigned char *)held + (first - begin) * {node.output.size_bytes // split.cut.units}"
    source = f"{argument_text(node.input(0), node, program, tables)}, {node.input(0).dtype.size_bytes}"
    scratch = "".join(f", {scratch_of_core(program, node)}" for a in call.arguments if isinstance(a, CScratch))
    yield "const void *rows[DIAGMEM_MAX_ROWS];"
    yield "const int32_t begin = first;"
    yield "while (first < end) {"
    yield f"    void *const own = {own};"
    yield f"    void *const out = held == NULL ? own : {apart};"
    yield f"    first = diagmem_narrow(&{of}, {source}, first, end, &part.window, rows);"
    yield f"    {call.function}_row(&part, rows, out{scratch});"
    yield "}"


def _stretch(program: Program, tables: Tables, split: Split, call: CCall, node: Node) -> Iterator[str]:
    """All operands begin further on along their outermost axis."""

    def moved(one: Tensor | CRow, position: int, further: str) -> str:
        assert isinstance(one, Tensor)
        return argument_text(one, node, program, tables, further)

    yield from stretch_lines(call, split, node, moved)


def _channels(program: Program, tables: Tables, split: Split, call: CCall, node: Node) -> Iterator[str]:
    """The kernel runs as if there were no other channels."""
    narrowed = channels_of(call, node)
    yield from narrowed_to_channels(call, split, node)
    given = []
    for argument in call.arguments:
        if isinstance(argument, CScratch):
            given.append(scratch_of_core(program, node))
            continue
        assert isinstance(argument, Tensor)
        moves = argument is node.output or narrowed.are_of_input
        further = times(node.output.dtype.size_bytes) if moves else ""
        given.append(argument_text(argument, node, program, tables, further))
    if split.cut.can_hold:
        given[1] = f"held != NULL ? held : {given[1]}"
    yield f"{call.function}({', '.join(['&part', *given])});"


def channels_of(call: CCall, node: Node) -> CChannels:
    if call.channels is None:
        raise PlanError(f"{node.label}: the plan has cores share channels, which C cannot cut")
    return call.channels


def narrowed_to_channels(call: CCall, split: Split, node: Node) -> Iterator[str]:
    """The parameters of a kernel for some channels."""
    narrowed = channels_of(call, node)
    for path in narrowed.sizes:
        yield f"part.{path} = end - first;"
    for path, table in _tables(call.parameters, "part"):
        if table.name in narrowed.tables:
            yield f"{path} += {_moved(table, split, node)};"
        elif table.name in narrowed.blocks:
            yield f"{path} += first / {split.cut.grain} * {narrowed.blocks[table.name]};"


def stretch_of(call: CCall, split: Split, node: Node) -> CStretch:
    """How a kernel is narrowed to a stretch of its outermost axis: as its call says, or as calls with a walk over
    elements, or over rows, all are."""
    fields, units = call.parameters.fields, split.cut.units
    if call.stretch is not None:
        return call.stretch
    if "shape" in fields:
        walk = fields["shape"].fields
        axis = outermost(walk["size"])
        steps = [walk[name][axis] for name in ("first", "second")[: len(call.arguments) - 1]]
        return CStretch(units, f"shape.size[{axis}]", (*steps, walk["out"][axis]))
    if "rows" in fields:
        made = units * (1 if split.turns is None else node.output.rows)
        return CStretch(units, "rows", (node.input(0).elems // made, node.output.elems // made))
    raise PlanError(f"{node.label}: the plan has cores share what C cannot cut")


Moved = Callable[[Tensor | CRow, int, str], str]
"""The text of an address: of what, at which argument, and how many bytes further on."""


def stretch_lines(call: CCall, split: Split, node: Node, moved: Moved) -> Iterator[str]:
    """The parameters of a kernel for a stretch, and its call. `moved`: the addresses of operands."""
    stretch = stretch_of(call, split, node)
    yield f"part.{stretch.size} = end - first;"
    for path, step in stretch.moves.items():
        if step:
            yield f"part.{path} += {times(step)};"
    steps, given = iter(stretch.steps), list[str]()

    def text(one: Tensor | CRow, position: int) -> str:
        size = (one.tensor if isinstance(one, CRow) else one).dtype.size_bytes
        return moved(one, position, times(next(steps) * size))

    for position, argument in enumerate(call.arguments):
        if isinstance(argument, CPointers):
            given.append(pointers_text(argument, [text(one, position) for one in argument.tensors]))
        elif isinstance(argument, Tensor | CRow):
            given.append(text(argument, position))
        else:
            assert argument is CTurn.NUMBER
            given.append("turn")
    given[-1] = f"held != NULL ? held : {given[-1]}"
    yield f"{call.function}({', '.join(['&part', *given])});"


def times(size: int) -> str:
    """So much for each unit before the first."""
    return {0: "", 1: "first"}.get(size, f"{size} * first")


def _tables(struct: CStruct, path: str) -> Iterator[tuple[str, CTable]]:
    for name, value in struct.fields.items():
        if isinstance(value, CTable):
            yield f"{path}.{name}", value
        elif isinstance(value, CStruct):
            yield from _tables(value, f"{path}.{name}")


def _moved(table: CTable, split: Split, node: Node) -> str:
    """Elements of a table before those of channel `first`."""
    units, grain = split.cut.units, split.cut.grain
    if table.data.size % units == 0:
        return times(table.data.size // units)
    if table.data.size * grain % units:
        raise PlanError(f"{node.label}: the channels of '{table.name}' are not alike, so that cores cannot share them")
    return f"first / {grain} * {table.data.size * grain // units}"


def scratch_of_core(program: Program, node: Node) -> str:
    """That of the core."""
    library = program.library
    each = library.scratch_of_core(library.scratch_bytes(node))
    return address(program, program.scratch[node.op.index], f"core * {each}")
