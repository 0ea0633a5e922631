"""What runs a model: the rows of its tensors, one step of each op, and the sequence of steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from diagmem.backends.c.arenas import arena_of, in_its_arena
from diagmem.backends.c.calls import call_text, describe, row_function, small_numbers, with_copies
from diagmem.backends.c.literals import comment, initialiser, numbers, shape_of
from diagmem.backends.c.multicore import way_of_turns
from diagmem.backends.c.program import Program
from diagmem.backends.c.repeats import Piece, Repeat, pieces_bytes, repeats, repeats_bytes
from diagmem.backends.c.tables import Tables
from diagmem.model.graph import Node
from diagmem.model.schedule import PUSH, Step
from diagmem.ops.c_call import CName, CRows, CStruct

LEAST_SAVED_BYTES = 100
"""By stretches that are repeated: about as much code goes over them."""

_FORMS = {"linear": "one behind the other", "ring": "in a ring", "table": "anywhere"}


def run_values(program: Program, tables: Tables, name: str) -> dict[str, Any]:
    """What run.c.j2 knows beside the program: one call after the other or, where ops have turns, a list of steps; on
    one core or on several."""
    nodes = [node for node in program.nodes if _runs_alone(program, node)] if program.visits else []
    calls = (program.calls[node.op.index] for node in nodes)
    straight = [] if program.visits else list(_straight(program, tables, name))
    return {
        "cases": [(node.op.number, describe(node), _case(node, program, tables, name)) for node in nodes],
        "has_windows": any(isinstance(a, CRows) for call in calls if call is not None for a in call.arguments),
        "straight": straight,
        "uses_arena": any("AT(" in line for line in straight),
        "again": [node.op.number for node in program.nodes if is_repeated(program, node)],
        "has_still": any(program.calls[node.op.index] is None for node in program.nodes),
        **(_sequence(program) if program.visits else {"repeats": None}),
        **({"ways": _ways(program)} if program.visits and program.multicore is not None else {}),
        **({"PUSH": PUSH, "pushed_row": _pushed_row(program)} if program.input_rows else {}),
    }


def _pushed_row(program: Program) -> str:
    """The call that finds where a row from the caller goes, but for its last argument: which row it is."""
    index = program.graph.inputs[0]
    found = row_function(program, program.graph.tensors[index])
    return f"{found}(&rows{index}, {arena_of(program, index)}"


def _sequence(program: Program) -> dict[str, Any]:
    """The steps, as a list or as repeats."""
    found = step_repeats(program)
    stored = _operations(program) if found is None else [op for repeat in found for op in repeat.items]
    return {"repeats": found, "stored_steps": np.array(stored), "step_type": f"uint{8 * step_bytes(program)}_t"}


def _runs_alone(program: Program, node: Node) -> bool:
    """Whether one core runs some of its steps alone."""
    op = node.op.index
    if program.multicore is None:
        return True
    if program.calls[op] is None:
        return False
    return program.multicore.of_op(op) is None if op not in program.visits else 0 in way_of_turns(program, node)


def sequence_bytes(program: Program) -> int:
    """Flash that the sequence of steps and the tables of rows take."""
    width, in_pieces = program.offset_bytes, program.in_pieces
    plain = (len(storage.table or ()) for tensor, storage in program.by_rows.items() if tensor not in in_pieces)
    tables = width * sum(plain) + sum(pieces_bytes(found, width) for found in in_pieces.values())
    again = sum(len(program.visits[node.op.index]) for node in program.nodes if is_repeated(program, node))
    found = step_repeats(program)
    steps = len(program.steps) * step_bytes(program) if found is None else repeats_bytes(found, step_bytes(program))
    return tables + again + steps


def step_bytes(program: Program) -> int:
    """Of the operation of a step."""
    return 1 if program.state.ops < 256 else 2


def step_repeats(program: Program) -> tuple[Repeat, ...] | None:
    """The steps as stretches that are repeated; None where they are few, and a plain list takes less."""
    found = repeats(_operations(program), step_bytes(program))
    saved = len(program.steps) * step_bytes(program) - repeats_bytes(found, step_bytes(program))
    return found if saved >= LEAST_SAVED_BYTES else None


def _operations(program: Program) -> list[int]:
    """The op of each step. A row from the caller is that after the last op."""
    ops, numbered = program.state.ops, program.graph.ops
    return [ops if step.op == PUSH else numbered[step.op].number for step in program.steps]


def rows_of_tensors(program: Program) -> Iterator[str]:
    """How the tensors lie of which rows are passed on: a constant `rowsN` for each, and its table if it has one."""
    for index, storage in program.by_rows.items():
        tensor, name, how = program.graph.tensors[index], f"rows{index}", in_its_arena(program, storage)
        about = f"/* '{comment(tensor.label)}': {shape_of(tensor)}, {_FORMS[storage.form]} */\n"
        if how.table is None:
            rule = {"height": how.height, "base": how.base, "period": how.period, "pitch": how.pitch}
            yield f"{about}{_constant('diagmem_rows', name, rule)}"
        elif index in program.in_pieces:
            further = how.table[0] - storage.offsets[0]
            pieces = [piece.moved(further) for piece in program.in_pieces[index]]
            yield f"{about}{_in_pieces(name, how.height, pieces)}"
        else:
            rows = {"height": how.height, "table": CName(f"{name}_table")}
            yield f"{about}{_table(name, how.table)}{_constant('diagmem_rows', name, rows)}"


def _constant(kind: str, name: str, fields: Mapping[str, Any]) -> str:
    return f"static const {kind} {name} = {initialiser(CStruct(kind, fields), {})};\n"


def _table(name: str, places: Sequence[int]) -> str:
    lines = "\n".join(numbers(np.array(places)))
    return f"static const DIAGMEM_OFFSET {name}_table[{len(places)}] = {{\n{lines}\n}};\n"


def _in_pieces(name: str, height: int, pieces: Sequence[Piece]) -> str:
    """A table that is gone over again and again, piece by piece; the one with most rows is known at once."""
    begins = accumulate((piece.rows for piece in pieces), initial=0)
    starts = accumulate((len(piece.entries) for piece in pieces), initial=0)
    found = [
        {"begin": begin, "rows": piece.rows, "at": at, "period": len(piece.offsets), "moves": int(bool(piece.drift))}
        for piece, begin, at in zip(pieces, begins, starts, strict=False)
    ]
    longest, *others = (CStruct("diagmem_piece", fields) for fields in sorted(found, key=lambda piece: -piece["rows"]))
    fields: dict[str, Any] = {"height": height, "table": CName(f"{name}_table"), "longest": longest}
    listed = ""
    if others:
        lines = "".join(f"    {{{', '.join(map(str, piece.fields.values()))}}},\n" for piece in others)
        listed = f"static const diagmem_piece {name}_others[{len(others)}] = {{\n{lines}}};\n"
        fields["others"] = CName(f"{name}_others")
    places = [at for piece in pieces for at in piece.entries]
    return f"{_table(name, places)}{listed}{_constant('diagmem_row_pieces', name, fields)}"


def _case(node: Node, program: Program, tables: Tables, name: str) -> list[str]:
    """The lines that run one step of an op."""
    call = program.calls[node.op.index]
    body = "/* stays where it is */" if call is None else call_text(node, call, program, tables)
    again = f"turn = op{node.op.number}_turns[turn];" if is_repeated(program, node) else ""
    return with_copies(node, body, program, tables, name, again)


def is_repeated(program: Program, node: Node) -> bool:
    """Whether some rows are recomputed."""
    visits = program.visits.get(node.op.index, ())
    return len(visits) > len(set(visits))


def repeated_turns(program: Program, node: Node) -> str:
    """The rows in the order in which they are made, where some are recomputed."""
    if not is_repeated(program, node):
        return ""
    return small_numbers(f"op{node.op.number}_turns", program.visits[node.op.index])


def _straight(program: Program, tables: Tables, name: str) -> Iterator[str]:
    """One op after the other. On several cores the first runs alone what they do not split, and they wait for it."""
    macro, split = name.upper(), program.multicore
    calls = program.calls
    running = [Step(node.op.index) for node in program.nodes if calls[node.op.index] is not None]
    waits = {} if split is None else dict(zip(running, split.barriers_after(running), strict=True))
    for node in program.nodes:
        op, call = node.op.index, calls[node.op.index]
        text = f"/* {describe(node)}: stays where it is */" if call is None else call_text(node, call, program, tables)
        if call is None or split is None:
            yield from with_copies(node, text, program, tables, name)
        elif split.of_op(op) is not None:
            yield f"run_shared(&op{node.op.number}_shared, arena, team, core, cores);"
        else:
            yield from ("if (core == 0) {", f"    {text}", "}")
            yield from [f"{macro}_BARRIER(team, core, cores);"] if waits[Step(op)] else []
        yield f"{macro}_AFTER_OP({node.op.number});"


def _ways(program: Program) -> dict[int, str]:
    """How cores share a step of an op, by its number; ops that one core runs are left out."""
    ways = {n.op.number: "&still" if program.calls[n.op.index] is None else _way(program, n) for n in program.nodes}
    return {number: way for number, way in ways.items() if way is not None}


def _way(program: Program, node: Node) -> str | None:
    """How a turn of an op is shared, in C; None where one core does them all."""
    number, teamwork = node.op.number, program.multicore
    if node.op.index not in program.visits:
        is_shared = teamwork is not None and teamwork.of_op(node.op.index) is not None
        return f"&op{number}_shared" if is_shared else None
    ways = way_of_turns(program, node)
    if len({*ways}) == 1:
        return f"op{number}_shared" if ways[0] else None
    way = f"&op{number}_shared[op{number}_ways[turn] - 1]"
    return f"op{number}_ways[turn] == 0 ? NULL : {way}" if 0 in ways else way
