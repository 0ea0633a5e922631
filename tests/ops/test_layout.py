"""The directory of op kinds keeps its shape: C files are found by name, and private modules stay in their package."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from diagmem.ops import kind_of, kinds
from diagmem.ops.kernel_templates import SUFFIX, kernels_of

SOURCE = Path(__file__).parents[2] / "src" / "diagmem"
C_FILES = {path: path.read_text() for path in sorted((SOURCE / "ops").rglob("*.[ch]"))}
MADE = {
    path.parent / name: text
    for path in sorted((SOURCE / "ops").rglob(f"*{SUFFIX}"))
    for name, text in kernels_of(path.name, path.read_text())
}
PRIVATE = re.compile(
    r"^\s*from diagmem\.ops((?:\.\w+)*)\.(_\w+) import|^\s*from diagmem\.ops((?:\.\w+)*) import (_\w+)", re.M
)


def test_names_of_c_files_are_unique() -> None:
    """A kernel is called by the name of its file alone."""
    assert len(MADE) > 10
    counts = Counter(path.name for path in (*C_FILES, *MADE))
    assert [name for name, count in counts.items() if count > 1] == []


def test_includes_are_where_they_are_said_to_be() -> None:
    """An editor or compiler finds what a file includes, though the C backend only looks at names."""
    included = [
        (path, name)
        for path, text in (C_FILES | MADE).items()
        for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
    ]
    assert [(path.name, name) for path, name in included if not (path.parent / name).is_file()] == []


def test_private_modules_are_imported_beside_them_only() -> None:
    """A module of ops/ whose name begins with an underscore is imported only within its own package."""
    found = {
        (path, f"diagmem.ops{match[1] or match[3] or ''}")
        for path in sorted(SOURCE.rglob("*.py"))
        for match in PRIVATE.finditer(path.read_text())
    }
    assert found
    wrong = {
        (str(path), package)
        for path, package in found
        if package != ".".join(path.parent.relative_to(SOURCE.parent).parts)
    }
    assert wrong == set()


def test_a_kind_is_found_by_name_as_among_all() -> None:
    """A kind that is loaded alone, because its file has the name, is the one that all files together give."""
    for name, kind in kinds().items():
        assert kind_of.__wrapped__(name) is kind
    assert kind_of("NO_SUCH_OPERATION") is None


def test_lines_of_c_fit_the_page() -> None:
    """120 columns, as .clang-format says."""
    texts = {**{path: path.read_text() for path in SOURCE.rglob("*.[ch]")}, **MADE}
    assert [path.name for path, text in texts.items() if max(map(len, text.splitlines())) > 120] == []


def test_a_template_gives_what_a_hand_would_write() -> None:
    """Lines for other kernels are left out, comments are filled and aligned, long lines are broken behind a comma."""
    text = MADE[SOURCE / "ops" / "convolution" / "conv_2d_w8_f32.c"]
    assert "$" not in text
    assert "diagmem_filter_u8" not in text
    assert "8-bit weights. For each output pixel, a block of output channels at a time: the\n * window is read" in text
    assert "    const int8_t *filter; /* blocks" in text
    assert "    const float *scales;  /* [out_depth], of the filter */\n" in text
    broken = "p->scales, &p->output, c, together,\n                                        out);\n"
    assert broken in text
