"""Inputs and outputs as what they mean: types and scales as constants, numbers in and out. This is NAME_values.c, and
its part of NAME.h; a program that calls none of it need not link it."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.backends.c.arenas import arena_type
from diagmem.backends.c.literals import string
from diagmem.backends.c.program import C_TYPES, Program
from diagmem.model.graph import DType, Tensor

_STORED = (DType.INT8, DType.UINT8, DType.INT16)
"""Integer types that are quantised, where they have a scale."""


def tensor_type(program: Program, name: str) -> str:
    """The struct that says what a tensor is."""
    types = ", ".join(f"{name.upper()}_{dtype.name}" for dtype in C_TYPES)
    ranks = [max(1, len(tensor.shape)) for tensor in (*_inputs(program), *_outputs(program))]
    return f"""\
/* What a tensor is: a stored value q means scale * (q - zero_point). The scale is 0 where there is none. */
enum {{ {types} }};
typedef struct {{
    const char *name;
    int32_t type, rank, shape[{max(ranks, default=1)}], elems, bytes;
    float scale;
    int32_t zero_point;
}} {name}_tensor;
"""


def value_functions(program: Program, name: str) -> str:
    """Declarations of what NAME_values.c holds, and the addresses of tensors with their types."""
    macro = name.upper()
    own = "".join(f"{line}\n" for line in _typed(program, name, is_own=True))
    given = "".join(f"{line}\n" for line in _typed(program, name, is_own=False))
    arena = arena_type(program, is_read=True)
    return f"""\
/* Real numbers in and out: as the scale says, to the nearest stored value, halves away from zero, within the type's
 * range. They return 0 if there is no such tensor, or none that stands for real numbers; else 1. These, and the
 * constants, are in {name}_values.c. */
{"".join(f"extern const {name}_tensor {name}_{side}s[{macro}_{side.upper()}S];{_NEWLINE}" for side in _sides(program))}\
{_declared_inputs(program, name)}int {name}_dequantize_output_in({arena}arena, int index, float *values);
#ifndef {macro}_NO_STATIC_ARENA
{_declared_inputs(program, name, is_own=True)}int {name}_dequantize_output(int index, float *values);
#endif

/* The addresses with their types. */
{given}#ifndef {macro}_NO_STATIC_ARENA
{own}#endif
"""


_NEWLINE = "\n"


def _declared_inputs(program: Program, name: str, is_own: bool = False) -> str:
    if not _inputs(program):
        return ""
    if program.input_rows:
        return "" if is_own else f"int {name}_quantize_row(const float *values, void *row);\n"
    if is_own:
        return f"int {name}_quantize_input(int index, const float *values);\n"
    return f"int {name}_quantize_input_in({arena_type(program)}arena, int index, const float *values);\n"


def _typed(program: Program, name: str, is_own: bool) -> Iterator[str]:
    """`static inline int8_t *tiny_input_0(void)`, and its twin that takes an arena."""
    twin = "" if is_own else "_in"
    inputs = [] if program.input_rows else _inputs(program)
    for side, const, tensors in (("input", "", inputs), ("output", "const ", _outputs(program))):
        parameter, passed = ("void", "") if is_own else (f"{arena_type(program, bool(const))}arena", "arena, ")
        for n, tensor in enumerate(tensors):
            kind = f"{const}{C_TYPES[tensor.dtype]} *"
            call = f"{name}_{side}{twin}({passed}{n})"
            yield f"static inline {kind}{name}_{side}_{n}{twin}({parameter}) {{ return ({kind}){call}; }}"


def values_source(program: Program, name: str) -> str:
    """NAME_values.c after its first comment."""
    macro, sides = name.upper(), _sides(program)
    constants = "\n".join(_constants(name, side, tensors) for side, tensors in sides.items())
    put = _put(program, name) if _inputs(program) else ""
    parts = (
        f'#include "{name}.h"\n\n#include <string.h>\n',
        constants,
        _nearest(name) if "nearest(" in put else "",
        put,
        _get(program, name),
        _calls(program, name),
        f"#ifndef {macro}_NO_STATIC_ARENA\n{_own_calls(program, name)}#endif\n",
    )
    return "\n".join(part for part in parts if part)


def _constants(name: str, side: str, tensors: list[Tensor]) -> str:
    macro = f"{name}_{side}".upper()
    rows = "".join(f"    {_described(f'{macro}_{n}', name, tensor)},\n" for n, tensor in enumerate(tensors))
    return f"const {name}_tensor {name}_{side}s[{macro}S] = {{\n{rows}}};\n"


def _described(macro: str, name: str, tensor: Tensor) -> str:
    scale = f"{macro}_SCALE, {macro}_ZERO_POINT" if _has_scale(tensor) else "0.0f, 0"
    sizes = f"{macro}_RANK, {macro}_SHAPE, {macro}_ELEMS, {macro}_BYTES"
    return f"{{{string(tensor.label)}, {name.upper()}_{tensor.dtype.name},\n     {sizes},\n     {scale}}}"


def _nearest(name: str) -> str:
    return f"""\
/* The stored value from `low` to `high` that is nearest; what is not a number becomes `low`. */
static int32_t nearest(const {name}_tensor *tensor, float value, int32_t low, int32_t high) {{
    const float least = (float)(low - tensor->zero_point), largest = (float)(high - tensor->zero_point);
    float steps = value / tensor->scale;
    steps = !(steps > least) ? least : steps > largest ? largest : steps;
    int32_t whole = (int32_t)steps; /* towards zero */
    const float rest = steps - (float)whole;
    whole += rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0;
    return whole + tensor->zero_point;
}}
"""


def _put(program: Program, name: str) -> str:
    """The function that quantises float32 values."""
    cases = ""
    for dtype in _kinds(_inputs(program)):
        limits = f"{dtype.name}_MIN, {dtype.name}_MAX".replace("UINT8_MIN", "0")
        element = C_TYPES[dtype]
        cases += f"""\
    case {name.upper()}_{dtype.name}:
        for (int32_t i = 0; i < count; ++i) {{
            (({element} *)to)[i] = ({element})nearest(tensor, values[i], {limits});
        }}
        return 1;
"""
    return _switch(f"put(const {name}_tensor *tensor, void *to, int32_t count, const float *values)", name, cases)


def _get(program: Program, name: str) -> str:
    """The function that dequantises stored values to float32."""
    cases = "".join(
        f"""\
    case {name.upper()}_{dtype.name}:
        for (int32_t i = 0; i < count; ++i) {{
            values[i] = tensor->scale * (float)(((const {C_TYPES[dtype]} *)from)[i] - tensor->zero_point);
        }}
        return 1;
"""
        for dtype in _kinds(_outputs(program))
    )
    return _switch(f"get(const {name}_tensor *tensor, const void *from, int32_t count, float *values)", name, cases)


def _switch(function: str, name: str, cases: str) -> str:
    place = "to, values" if function.startswith("put") else "values, from"
    return f"""\
static int {function} {{
    if (tensor->type != {name.upper()}_FLOAT32 && tensor->scale == 0.0f) {{
        return 0;
    }}
    switch (tensor->type) {{
    case {name.upper()}_FLOAT32:
        memcpy({place}, (size_t)count * sizeof(float));
        return 1;
{cases}    default:
        return 0;
    }}
}}
"""


def _calls(program: Program, name: str) -> str:
    arena = arena_type(program, is_read=True)
    get = _passed_on(name, "output", f"int {name}_dequantize_output_in({arena}arena, int index, float *values)")
    if not _inputs(program):
        return get
    if program.input_rows:
        return f"""\
int {name}_quantize_row(const float *values, void *row) {{
    return put(&{name}_inputs[0], row, {name.upper()}_INPUT_0_ROW_ELEMS, values);
}}

{get}"""
    put = f"int {name}_quantize_input_in({arena_type(program)}arena, int index, const float *values)"
    return f"{_passed_on(name, 'input', put)}\n{get}"


def _own_calls(program: Program, name: str) -> str:
    get = _passed_on(name, "output", f"int {name}_dequantize_output(int index, float *values)")
    if program.input_rows or not _inputs(program):
        return get
    put = _passed_on(name, "input", f"int {name}_quantize_input(int index, const float *values)")
    return f"{put}\n{get}"


def _passed_on(name: str, side: str, declaration: str) -> str:
    place = f"{name}_{side}_in(arena, index)" if "arena" in declaration.split("(")[1] else f"{name}_{side}(index)"
    const, function = ("", "put") if side == "input" else ("const ", "get")
    tensor = f"{name}_{side}s[index]"
    return f"""\
{declaration} {{
    {const}void *const place = {place};
    return place == NULL ? 0 : {function}(&{tensor}, place, {tensor}.elems, values);
}}
"""


def _has_scale(tensor: Tensor) -> bool:
    return tensor.quantisation is not None and not tensor.quantisation.per_channel


def _kinds(tensors: list[Tensor]) -> list[DType]:
    """The integer types of those that are quantised."""
    found = {tensor.dtype for tensor in tensors if _has_scale(tensor)}
    return [dtype for dtype in _STORED if dtype in found]


def _sides(program: Program) -> dict[str, list[Tensor]]:
    """Those that have tensors."""
    return {side: found for side, found in (("input", _inputs(program)), ("output", _outputs(program))) if found}


def _inputs(program: Program) -> list[Tensor]:
    return [program.model.tensors[t] for t in program.model.inputs]


def _outputs(program: Program) -> list[Tensor]:
    return [program.model.tensors[t] for t in program.model.outputs]
