"""The screens that README shows are what the command prints."""

from __future__ import annotations

from pathlib import Path

from tests.docs.console import ROOT, blocks, run


def test_screens_of_mlperf_tiny(shared: Path, tmp_path: Path) -> None:
    """Each of the four models on its board, whole."""
    shown = [pair for block in blocks(ROOT / "README.md") if block.is_console for pair in block.commands()]
    assert len(shown) == 4
    for command, expected in shown:
        model = command.split()[2]
        (tmp_path / model).write_bytes((shared / "models" / "mlperf_tiny" / model).read_bytes())
        assert run(command, tmp_path).split("\n") == [*expected, ""], command


def test_it_is_short() -> None:
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("\n") <= 150
