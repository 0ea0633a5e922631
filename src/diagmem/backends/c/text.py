"""Files of C from templates: what all templates know of a program, and how they are filled in.

In a template `${macro}` is the model's name in capitals, and `{% if … %}` a line that leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from diagmem import __version__
from diagmem.backends.c.arenas import address, address_to_read, arena_type, functions, memories
from diagmem.backends.c.calls import listed_rows, parameters
from diagmem.backends.c.literals import comment, number, numbers, shape_of, string
from diagmem.backends.c.multicore import split_values
from diagmem.backends.c.program import C_TYPES, Program
from diagmem.backends.c.steps import repeated_turns, rows_of_tensors, run_values, sequence_bytes
from diagmem.backends.c.tables import Tables
from diagmem.kernels.work import kernel_shares, macs_as_run, shares_text
from diagmem.model.graph import DType, Tensor

if TYPE_CHECKING:
    from jinja2 import Environment

    from diagmem.backends.c.selftest import SelfTest

_STORED = (DType.INT8, DType.UINT8, DType.INT16)
"""Integer types that are quantised, where they have a scale."""


def origin(program: Program, name: str, model_sha256: str | None) -> str:
    """The comment at the start of every file."""
    bound = "" if program.lower_bound_bytes is None else f" (lower bound {program.lower_bound_bytes})"
    digest = "" if model_sha256 is None else f", sha256 {model_sha256}"
    work = ""
    if program.library.instructions is not None:
        macs = macs_as_run(program.graph, program.library, program.steps)
        work = f"\n * work: {shares_text(kernel_shares(program.graph, program.library, macs))}"
    return f"""\
/* {name}: made by diagmem {__version__}; do not edit.
 * model: {comment(program.graph.name)}{digest}
 * kernels: {program.kernels}; arena: {program.arena_bytes} bytes{bound}{work} */
"""


def rendered(template: str, program: Program, name: str, is_shared: bool = False, **more: Any) -> str:
    """A template filled in for a program. `name`: that of the model in C. `is_shared`: arenas are those of a library of
    several models."""
    model = program.model
    inputs, outputs = ([model.tensors[t] for t in tensors] for tensors in (model.inputs, model.outputs))
    arenas = memories(program, name, is_shared)
    known = {
        "macro": name.upper(),
        "inputs": inputs,
        "outputs": outputs,
        "sides": [(side, found) for side, found in (("input", inputs), ("output", outputs)) if found],
        "pushed": program.graph.tensors[program.graph.inputs[0]] if program.input_rows else None,
        "multicore": program.multicore,
        "arenas": arenas,
        "pools": arenas if program.pools else [],
        "api": functions(program),
        "arena": arena_type(program),
        "arena_to_read": arena_type(program, is_read=True),
    }
    return filled(template, program=program, name=name, **{**known, **more})


def model_source(program: Program, tables: Tables, name: str, is_shared: bool = False, is_tested: bool = False) -> str:
    """NAME.c after its first comment. `is_shared`: the arena is that of a library of several models. `is_tested`: it
    comes with a test of itself."""
    at, calls, numbers = partial(address, program), program.calls, {t: n for n, t in enumerate(program.graph.inputs)}
    constants = (
        *rows_of_tensors(program),
        *(parameters(node, calls[node.op.index], tables) for node in program.nodes),
        *(listed_rows(node, calls[node.op.index]) for node in program.nodes),
        *(repeated_turns(program, node) for node in program.nodes),
    )
    given = {
        "at": at,
        "tables": tables,
        "is_tested": is_tested,
        "constants": constants,
        "input_places": {n: at(_start(program, t)) for t, n in numbers.items()},
        "output_places": {n: address_to_read(program, _start(program, t)) for n, t in enumerate(program.graph.outputs)},
        "next_places": {numbers[t]: at(program.offsets[following]) for t, following in program.next_frames.items()},
        **split_values(program, tables, name),
        **run_values(program, tables, name),
    }
    return rendered("model.c.j2", program, name, is_shared, **given)


def _start(program: Program, tensor: int) -> int:
    return program.offsets[tensor] if tensor in program.offsets else program.storage[tensor].offsets[0]


def readme(program: Program, name: str, weights_bytes: int, test: SelfTest | None = None) -> str:
    """What a firmware engineer has to know. `test`: of itself, if it has one."""
    from diagmem.backends.c.selftest import selftest_bytes

    given: dict[str, Any] = {
        "is_tested": test is not None,
        "test": test,
        "test_bytes": None if test is None else selftest_bytes(program, test),
        "weights_bytes": weights_bytes,
        "forms": Counter(storage.form for storage in program.by_rows.values()),
        "sequence_bytes": sequence_bytes,
    }
    return rendered("README.md.j2", program, name, **given)


def filled(template: str, **values: Any) -> str:
    """A template with nothing but these values."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    # Slow to import, and needed for C only.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        variable_start_string="${",
        variable_end_string="}",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(
            lambda name: files(__package__).joinpath("templates").joinpath(name).read_text(encoding="utf-8")
        ),
    )
    for known in (comment, number, numbers, string, shape_of, has_scale, stored_types):
        environment.globals[known.__name__] = known
    environment.globals |= {"C_TYPES": C_TYPES, "version": __version__}
    return environment


def has_scale(tensor: Tensor) -> bool:
    """Whether one scale tells what its values mean."""
    return tensor.quantisation is not None and not tensor.quantisation.per_channel


def stored_types(tensors: Sequence[Tensor]) -> list[DType]:
    """The integer types of those that are quantised."""
    found = {tensor.dtype for tensor in tensors if has_scale(tensor)}
    return [dtype for dtype in _STORED if dtype in found]
