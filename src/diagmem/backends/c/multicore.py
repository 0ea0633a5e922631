"""How C splits work between cores: the barrier, the functions that make some units of an op, and its phases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from diagmem.backends.c.arenas import address, arena_type, enumerator
from diagmem.backends.c.calls import (
    argument_text,
    call_text,
    describe,
    pointers_text,
    row_text,
    rows_text,
    small_numbers,
)
from diagmem.backends.c.program import Program
from diagmem.backends.c.tables import Tables
from diagmem.model.errors import PlanError
from diagmem.model.graph import Node, Tensor
from diagmem.model.schedule import Along, Split
from diagmem.ops.c_call import (
    CCall,
    CChannels,
    CPointers,
    CRow,
    CRows,
    CScratch,
    CStretch,
    CStruct,
    CTable,
    CTurn,
    outermost,
)
from diagmem.planning.cores.multicore import most_held_bytes, unit_bytes

SPAN = "_span.h"
"""What row functions need to make some pixels of a row."""


def splits_of(program: Program, op: int | None = None) -> tuple[Split, ...]:
    """How cores split the steps, or those of one op."""
    found = () if program.multicore is None else program.multicore.splits
    return tuple(split for split in found if op in (None, split.op))


def needs_span(program: Program) -> bool:
    """Whether cores split pixels that a window makes, or a row of it."""
    return any(_is_windowed(program, split) for split in splits_of(program))


def _is_windowed(program: Program, split: Split) -> bool:
    call = program.calls[split.op]
    is_cut = split.cut.along is Along.PIXELS or (split.turns is not None and split.cut.along is not Along.ROWS)
    return is_cut and call is not None and "window" in call.parameters.fields


def split_values(program: Program, tables: Tables, name: str) -> dict[str, Any]:
    """What cores.c.j2 knows beside the program: the parts of each op or row, and their type."""
    if program.multicore is None:
        return {}
    by_op = groupby(splits_of(program), key=lambda split: split.op)
    parts = [[Part(program, tables, split, name) for split in found] for _, found in by_op]
    return {
        "split_ops": len(parts),
        "most_held_bytes": most_held_bytes(program.graph, program.multicore),
        "part_result": _part_result(program),
        "part_parameters": _part_parameters(program),
        "parts": [text for found in parts for text in _parts_of_op(found)],
    }


def _part_parameters(program: Program) -> str:
    """Of a function that makes some units."""
    turn = ", int32_t turn" if program.visits else ""
    return f"{arena_type(program)}arena, int core{turn}, int32_t first, int32_t end, void *held"


def _part_result(program: Program) -> str:
    """What such a function returns: where ops have turns, the place of the first unit; NULL for one without."""
    return "void *" if program.visits else "void "


def _parts_of_op(parts: list[Part]) -> Iterator[str]:
    """The function of an op that runs whole, its phases, and what joins them; of one with turns a function for each
    cut, the ways in which turns are split, and which turn is split in which."""
    node, program = parts[0].node, parts[0].program
    number = node.op.number
    if parts[0].split.turns is None:
        (part,) = parts
        listed = part.listed(phases := f"op{number}_phases")
        yield f"{part.function()}{part.phases(phases)}static const shared_op op{number}_shared = {listed};\n"
        return
    for part in {part.split.cut: part for part in parts}.values():
        yield part.function()
    phases_of = {part.split.phases: f"op{number}_phases{n}" for n, part in enumerate(parts)}
    ways = "".join(f"    {part.listed(phases_of[part.split.phases])},\n" for part in parts)
    tables = {part.split.phases: part.phases(phases_of[part.split.phases]) for part in parts}
    yield f"{''.join(tables.values())}static const shared_op op{number}_shared[] = {{\n{ways}}};\n"
    way_of = way_of_turns(program, node)
    yield small_numbers(f"op{number}_ways", way_of) if len({*way_of}) > 1 else ""


def way_of_turns(program: Program, node: Node) -> list[int]:
    """For each turn 0 where one core runs it alone, else one more than the number of the way in which it is split."""
    found = [0] * program.rows.ops[node.op.index].turns
    for number, split in enumerate(splits_of(program, node.op.index), 1):
        for turn in split.turns or ():
            found[turn] = number
    return found


@dataclass(frozen=True)
class Part:
    """The C function by which a core makes some units of an op, or of a row of it."""

    program: Program
    tables: Tables
    split: Split
    model: str

    @property
    def node(self) -> Node:
        return self.program.graph.nodes[self.split.op]

    @property
    def call(self) -> CCall:
        call = self.program.calls[self.split.op]
        if call is None:
            raise PlanError(f"{self.node.label}: the plan splits an op that does nothing")
        return call

    @property
    def name(self) -> str:
        return f"op{self.node.op.number}_{'part' if self.split.turns is None else self.split.cut.along.value}"

    def function(self) -> str:
        lines, has_turns = list(self._lines()), bool(self.program.visits)
        unused = ["core", "held", *(["turn"] if has_turns else [])]
        used = "".join(f"    (void){what};\n" for what in unused if not any(what in line for line in lines))
        body = "".join(f"    {line}\n" for line in lines)
        returned = f"    return {'NULL' if self.split.turns is None else 'own'};\n" if has_turns else ""
        narrowed = f"    {self.call.parameters.type} part = op{self.node.op.number};\n"
        copied = narrowed if any("part." in line for line in lines) else ""
        opening = f"static {self.model.upper()}_CODE_ATTR {_part_result(self.program)}{self.name}"
        return f"""\
/* {describe(self.node)}: {self.split.cut.along.value} */
{opening}({_part_parameters(self.program)}) {{
{copied}{used}{body}{returned}}}
"""

    def phases(self, name: str) -> str:
        rows = "".join(f"    {{{p.end}, {p.step}, {p.how.name}}},\n" for p in self.split.phases)
        return f"static const phases_of_op {name}[] = {{\n{rows}}};\n"

    def listed(self, phases: str) -> str:
        """A `shared_op`."""
        program, cut, out = self.program, self.split.cut, self.node.output
        is_row = self.split.turns is not None
        at = program.storage[out.index].offsets[0] if is_row else program.offsets[out.index]
        use = program.pools.at(at)
        pool = [] if use is None else [enumerator(use)]
        offset = 0 if is_row else at - (use.start if use is not None else 0)
        size = unit_bytes(program.graph, self.split) if self.split.most_held else 0
        return f"{{{', '.join(map(str, (self.name, phases, cut.units, cut.grain, offset, size, *pool)))}}}"

    def _lines(self) -> Iterator[str]:
        along, has_window = self.split.cut.along, "window" in self.call.parameters.fields
        if self.split.turns is not None:
            yield from self._own_row()
            yield from self._row_under_window() if has_window else self._stretch()
        elif along is Along.ROWS:
            yield from self._rows()
        elif along is Along.CHANNELS:
            yield from self._channels()
        else:
            yield from self._pixels() if has_window else self._stretch()

    def _rows(self) -> Iterator[str]:
        """The kernel for a row makes one after the other."""
        call, node = self.call, self.node
        if any(isinstance(argument, CRows) for argument in call.arguments):
            yield "const void *rows[DIAGMEM_MAX_ROWS];"
        position, target = next(self._output_rows())
        made = f"(unsigned char *)held + (turn - first) * {node.output.row_bytes}"
        yield f"for ({'' if self.program.visits else 'int32_t '}turn = first; turn < end; ++turn) {{"
        yield f"    void *const own = {row_text(target, position, node, self.program)};"
        yield f"    void *const out = held == NULL ? own : {made};"
        yield f"    {call_text(node, call, self.program, self.tables, {position: 'out'})}"
        yield "}"

    def _output_rows(self) -> Iterator[tuple[int, CRow]]:
        """The arguments that are rows of the output, and where they stand."""
        for position, argument in enumerate(self.call.arguments):
            if isinstance(argument, CRow) and argument.tensor is self.node.output:
                yield position, argument

    def _pixels(self) -> Iterator[str]:
        """A stretch of a row after the other, by the kernel's row function."""
        call, node = self.call, self.node
        of, size = f"op{node.op.number}.window", node.output.dtype.size_bytes
        at = f"diagmem_pixel_at(&{of}, first)"
        own = self._moved(node.output, at if size == 1 else f"{size} * {at}")
        apart = f"(unsigned char *)held + (first - begin) * {node.output.size_bytes // self.split.cut.units}"
        source = f"{self._moved(node.input(0))}, {node.input(0).dtype.size_bytes}"
        scratch = "".join(f", {self._scratch}" for a in call.arguments if isinstance(a, CScratch))
        yield "const void *rows[DIAGMEM_MAX_ROWS];"
        yield "const int32_t begin = first;"
        yield "while (first < end) {"
        yield f"    void *const own = {own};"
        yield f"    void *const out = held == NULL ? own : {apart};"
        yield f"    first = diagmem_narrow(&{of}, {source}, first, end, &part.window, rows);"
        yield f"    {call.function}_row(&part, rows, out{scratch});"
        yield "}"

    def _channels(self) -> Iterator[str]:
        """The kernel runs as if there were no other channels."""
        yield from self._narrowed_to_channels()
        given = []
        for argument in self.call.arguments:
            if isinstance(argument, CScratch):
                given.append(self._scratch)
                continue
            assert isinstance(argument, Tensor)
            moves = argument is self.node.output or self._cut_channels.are_of_input
            given.append(self._moved(argument, times(self.node.output.dtype.size_bytes) if moves else ""))
        if self.split.cut.can_hold:
            given[1] = f"held != NULL ? held : {given[1]}"
        yield f"{self.call.function}({', '.join(['&part', *given])});"

    def _own_row(self) -> Iterator[str]:
        """Where the units belong of a turn's row."""
        node, is_pixels = self.node, self.split.cut.along is Along.PIXELS
        size = unit_bytes(self.program.graph, self.split) if is_pixels else node.output.dtype.size_bytes
        for position, argument in self._output_rows():
            row = row_text(argument, position, node, self.program)
            yield f"void *const own = (unsigned char *){row} + {times(size)};"

    def _row_under_window(self) -> Iterator[str]:
        """Some columns, or channels, of a row."""
        call, node, cut = self.call, self.node, self.split.cut
        source, window, element = call.arguments[0], f"op{node.op.number}.window", node.input(0).dtype.size_bytes
        assert isinstance(source, CRows)
        yield "const void *rows[DIAGMEM_MAX_ROWS];"
        yield f"{rows_text(source, node, self.program)};"
        if cut.along is Along.PIXELS:
            yield f"diagmem_narrow_row(&{window}, {element}, first, end - first, &part.window, rows);"
        else:
            yield from self._narrowed_to_channels()
            if self._cut_channels.are_of_input:
                yield f"diagmem_move_rows(&{window}, {times(element)}, rows);"
        out = "held != NULL ? held : own" if cut.can_hold else "own"
        given = (
            self._scratch if isinstance(argument, CScratch) else "turn" if argument is CTurn.NUMBER else out
            for argument in call.arguments[1:]
        )
        yield f"{call.function}(&part, rows, {', '.join(given)});"

    def _stretch(self) -> Iterator[str]:
        """All operands begin further on along their outermost axis, or that of a row."""
        stretch = self._cut_stretch
        yield f"part.{stretch.size} = end - first;"
        for path, step in stretch.moves.items():
            if step:
                yield f"part.{path} += {times(step)};"
        steps, given = iter(stretch.steps), list[str]()

        def text(one: Tensor | CRow, position: int) -> str:
            size = (one.tensor if isinstance(one, CRow) else one).dtype.size_bytes
            return self._moved(one, times(next(steps) * size), position)

        for position, argument in enumerate(self.call.arguments):
            if isinstance(argument, CPointers):
                given.append(pointers_text(argument, [text(one, position) for one in argument.tensors]))
            elif isinstance(argument, Tensor | CRow):
                given.append(text(argument, position))
            else:
                assert argument is CTurn.NUMBER
                given.append("turn")
        given[-1] = f"held != NULL ? held : {given[-1]}"
        yield f"{self.call.function}({', '.join(['&part', *given])});"

    def _moved(self, one: Tensor | CRow, further: str = "", position: int = 0) -> str:
        """The address of an operand, so many bytes further on. `position`: of the argument."""
        if isinstance(one, Tensor):
            return argument_text(one, self.node, self.program, self.tables, further)
        if one.tensor is self.node.output:
            return "own"
        row = row_text(one, position, self.node, self.program)
        return f"(void *)((unsigned char *){row} + {further})" if further else row

    @property
    def _scratch(self) -> str:
        """That of the core."""
        library = self.program.library
        each = library.scratch_of_core(library.scratch_bytes(self.node))
        return address(self.program, self.program.scratch[self.split.op], f"core * {each}")

    @property
    def _cut_channels(self) -> CChannels:
        if self.call.channels is None:
            raise PlanError(f"{self.node.label}: the plan splits channels, which the C backend cannot do for this op")
        return self.call.channels

    def _narrowed_to_channels(self) -> Iterator[str]:
        """The parameters of a kernel for some channels."""
        narrowed = self._cut_channels
        for path in narrowed.sizes:
            yield f"part.{path} = end - first;"
        for path, table in _tables(self.call.parameters, "part"):
            if table.name in narrowed.tables:
                yield f"{path} += {self._elements_before(table)};"
            elif table.name in narrowed.blocks:
                yield f"{path} += first / {self.split.cut.grain} * {narrowed.blocks[table.name]};"

    def _elements_before(self, table: CTable) -> str:
        """Elements of a table before those of channel `first`."""
        units, grain = self.split.cut.units, self.split.cut.grain
        if table.data.size % units == 0:
            return times(table.data.size // units)
        if table.data.size * grain % units:
            raise PlanError(
                f"{self.node.label}: channels of '{table.name}' are stored in different sizes and cannot be split"
            )
        return f"first / {grain} * {table.data.size * grain // units}"

    @property
    def _cut_stretch(self) -> CStretch:
        """How the kernel is narrowed to a stretch of its outermost axis: as its call says, or as calls with a walk over
        elements, or over rows, all are."""
        call, node = self.call, self.node
        fields, units = call.parameters.fields, self.split.cut.units
        if call.stretch is not None:
            return call.stretch
        if "shape" in fields:
            walk = fields["shape"].fields
            axis = outermost(walk["size"])
            steps = [walk[name][axis] for name in ("first", "second")[: len(call.arguments) - 1]]
            return CStretch(units, f"shape.size[{axis}]", (*steps, walk["out"][axis]))
        if "rows" in fields:
            made = units * (1 if self.split.turns is None else node.output.rows)
            return CStretch(units, "rows", (node.input(0).elems // made, node.output.elems // made))
        raise PlanError(f"{node.label}: the plan splits an op that the C backend cannot split")


def times(size: int) -> str:
    """So much for each unit before the first."""
    return {0: "", 1: "first"}.get(size, f"{size} * first")


def _tables(struct: CStruct, path: str) -> Iterator[tuple[str, CTable]]:
    for name, value in struct.fields.items():
        if isinstance(value, CTable):
            yield f"{path}.{name}", value
        elif isinstance(value, CStruct):
            yield from _tables(value, f"{path}.{name}")
