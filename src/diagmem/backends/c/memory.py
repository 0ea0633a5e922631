"""The memory that a model brings along: static arrays, aligned as the arena must be."""

from __future__ import annotations

from diagmem.backends.c.program import Program

_ALIGNED_TYPES = {2: "int16_t", 4: "int32_t", 8: "int64_t"}

_WIDE_ALIGNMENT = """\
#if defined(__GNUC__)
#define ALIGNED __attribute__((aligned({macro}_ARENA_ALIGN)))
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define ALIGNED _Alignas({macro}_ARENA_ALIGN)
#else
#error this compiler cannot align the arena: define {macro}_NO_STATIC_ARENA and give one of your own
#endif
"""


def wide_alignment(program: Program, name: str) -> str:
    """What is needed where no plain type is aligned so widely."""
    return _WIDE_ALIGNMENT.format(macro=name.upper()) if _is_wide(program) else ""


def static_memory(program: Program, macro: str, variable: str) -> str:
    """An array of `macro`_BYTES where `macro`_ATTR puts it."""
    aligned = _ALIGNED_TYPES.get(program.align_bytes)
    alignment = f"    {aligned} alignment;\n" if aligned else ""
    return f"""\
static {"ALIGNED " if _is_wide(program) else ""}{macro}_ATTR union {{
    unsigned char bytes[{macro}_BYTES];
{alignment}}} {variable};
"""


def _is_wide(program: Program) -> bool:
    return program.align_bytes > max(_ALIGNED_TYPES)
