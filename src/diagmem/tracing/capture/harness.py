"""The C program that calls one kernel on this machine under valgrind: buffers filled from a file, watched, marked."""

from __future__ import annotations

from collections.abc import Iterator

from diagmem.tracing.capture.calls import Argument, Call, MemoryArgument, Null, Number, Struct

AFTER_OP = "diagmem_after_op"
"""What traced code calls after each of its operations, with the operation's number."""

_MAIN = """\
#include <stdint.h>
#include <stdio.h>

#include "valgrind_marks.h"

void {function}(void);
{declarations}
int main(int argc, char **argv) {{
    FILE *data = argc == 2 ? fopen(argv[1], "rb") : 0;
    if (!data) return 1;
{setup}    fclose(data);
    DIAGMEM_MARK(DIAGMEM_START, 0, 0);
    ((void (*)({types})){function})({values});
{end}    return 0;
}}
"""

_END = "    DIAGMEM_MARK(DIAGMEM_END, 0, 0);\n"

_AFTER_OP = """
void {name}(int op) {{
    static int done;
    DIAGMEM_MARK(DIAGMEM_END, op, 0);
    if (++done < {ops}) DIAGMEM_MARK(DIAGMEM_START, 0, 0);
}}
"""


def harness(call: Call, ops: int | None = None) -> str:
    """The program's text. It reads the buffers' contents, in order, from the file that is its one argument.

    `ops`: the function runs so many operations and calls `AFTER_OP` after each; None: it is one operation."""
    names = _Names()
    arguments = [names.of(argument) for argument in call.arguments]
    return _MAIN.format(
        function=call.function,
        declarations="".join(names.declarations),
        setup="".join((*_fill(call), *names.assignments)),
        types=", ".join(c_type for c_type, _ in arguments) or "void",
        values=", ".join(value for _, value in arguments),
        end=_END if ops is None else "",
    ) + ("" if ops is None else _AFTER_OP.format(name=AFTER_OP, ops=ops))


class _Names:
    """Gives each buffer and struct a static variable, in the order of `Call.buffers`."""

    def __init__(self) -> None:
        self.declarations: list[str] = []
        self.assignments: list[str] = []
        self.buffers = self.structs = 0

    def of(self, argument: Argument) -> tuple[str, str]:
        """The argument's C type and the expression that passes it."""
        if isinstance(argument, Number):
            c_type = argument.element if argument.element in ("float", "double") else f"{argument.element}_t"
            suffix = "" if c_type in ("float", "double") else "LL" if argument.value < 2**63 else "ULL"
            # The least 64-bit number has no literal of its own.
            return c_type, f"(-{2**63 - 1}LL - 1)" if argument.value == -(2**63) else f"{argument.value!r}{suffix}"
        if isinstance(argument, Null):
            return "void *", "0"
        return "void *", self._buffer(argument) if isinstance(argument, MemoryArgument) else self._struct(argument)

    def _buffer(self, buffer: MemoryArgument) -> str:
        name = f"buffer{self.buffers}"
        self.buffers += 1
        self.declarations.append(f"static unsigned char {name}[{buffer.size_bytes}] __attribute__((aligned(64)));\n")
        return name

    def _struct(self, struct: Struct) -> str:
        name = f"struct{self.structs}"
        self.structs += 1
        fields = [self.of(field) for field in struct.fields]
        members = "".join(f" {c_type} f{i};" for i, (c_type, _) in enumerate(fields))
        self.declarations.append(f"static struct {{{members} }} {name};\n")
        self.assignments += [f"    {name}.f{i} = {value};\n" for i, (_, value) in enumerate(fields)]
        return f"&{name}"


def _fill(call: Call) -> Iterator[str]:
    for number, buffer in enumerate(call.buffers):
        yield f"    if (fread(buffer{number}, {buffer.size_bytes}, 1, data) != 1) return 1;\n"
    for number in call.watched:
        yield f"    DIAGMEM_MARK(DIAGMEM_WATCH, buffer{number}, {call.buffers[number].size_bytes});\n"
