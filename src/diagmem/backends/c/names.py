"""Names from a model file made fit for C: identifiers and comments."""

from __future__ import annotations

import re

LONGEST_NAME = 48

_STANDARD_HEADERS = frozenset(
    (
        *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math"),
        *("setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "tgmath", "time"),
        *("wchar", "wctype"),
    )
)


def identifier(text: str) -> str:
    """A C identifier that resembles the text. It is also a file's name, and hides no header of the standard library."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")[:LONGEST_NAME].rstrip("_")
    return name if name[:1].isalpha() and name.lower() not in _STANDARD_HEADERS else f"model_{name}".rstrip("_")


def comment(text: str) -> str:
    """Text that may stand in a C comment, whatever it holds: one line of ASCII that neither opens nor closes one."""
    shown = "".join(c if c.isprintable() else "?" for c in text.replace("…", "..."))
    line = shown.encode("ascii", "backslashreplace").decode("ascii")
    return line.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
