"""Names from a model file made fit for C: identifiers and comments."""

from __future__ import annotations

import re

LONGEST_NAME = 48

_BUILD_TARGETS = frozenset(
    (
        *("all", "all_build", "app", "clean", "edit_cache", "help", "install", "list_install_components", "main"),
        *("package", "package_source", "rebuild_cache", "run_tests", "test", "zephyr", "zero_check"),
    )
)
"""What build systems call parts of their own, so that no library may."""

_STANDARD_HEADERS = frozenset(
    (
        *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits", "locale", "math"),
        *("setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio", "stdlib", "string", "tgmath", "time"),
        *("wchar", "wctype"),
    )
)


_BACKSLASH = chr(92)


def identifier(text: str) -> str:
    """A C identifier that resembles the text. It is also the name of a file and of a library: it hides no header of the
    standard library, and no target of a build system."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")[:LONGEST_NAME].rstrip("_")
    is_free = name[:1].isalpha() and name.lower() not in _STANDARD_HEADERS | _BUILD_TARGETS
    return name if is_free else f"model_{name}".rstrip("_")


def string(text: str) -> str:
    """A C string literal of any text, in ASCII: what is not printable, or has a meaning in C, as octal escapes."""
    is_plain = {*range(0x20, 0x7F)} - {*b'"\\?'}
    return f'"{"".join(chr(byte) if byte in is_plain else f"{_BACKSLASH}{byte:03o}" for byte in text.encode())}"'


def comment(text: str) -> str:
    """Text that may stand in a C comment, whatever it holds: one line of ASCII that neither opens nor closes one."""
    shown = "".join(c if c.isprintable() else "?" for c in text.replace("…", "..."))
    line = shown.encode("ascii", "backslashreplace").decode("ascii")
    return line.replace("*/", "* /").replace("/*", "/ *").replace("??/", "? ?/")
