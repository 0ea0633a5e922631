"""docs/options.md lists the options of a plan: each with its meaning as the command line shows it."""

from __future__ import annotations

from pathlib import Path

from diagmem.planning.options import OF_A_PLAN

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def rows() -> list[str]:
    """The table of the page, as it should be."""
    found = []
    for option in OF_A_PLAN.values():
        value = option.unit or ", ".join(option.choices) or "true, false"
        found.append(f"| `{option.name}` | {value} | {option.meaning.replace('  [', ' [')} |")
    return found


def test_the_page_lists_them_all() -> None:
    """In their order, and nothing else."""
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert listed == rows(), "the table of docs/options.md should be:\n" + "\n".join(rows())
