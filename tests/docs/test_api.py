"""The Python API can be found, and its examples are true."""

from __future__ import annotations

import doctest
import io
import pydoc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import diagmem

DOCS = Path(__file__).parents[2] / "docs"
FUNCTIONS = sorted(name for name in diagmem.__all__ if name.islower() and not name.startswith("_"))


def test_help_and_dir_show_it() -> None:
    """Every public name is listed, and help(diagmem) shows its first line."""
    assert dir(diagmem) == sorted(diagmem.__all__)
    said = pydoc.plain(pydoc.render_doc(diagmem))
    assert not [name for name in FUNCTIONS if f"\n    {name}(" not in said]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_are_true(name: str) -> None:
    """Each function has an example in its docstring, and it gives what it says."""
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    (found,) = finder.find(getattr(diagmem, name), name, globs={"diagmem": diagmem})
    assert found.examples
    said = io.StringIO()
    runner.run(found, out=said.write)
    assert not runner.failures, said.getvalue()


def test_the_page_lists_every_name() -> None:
    text = (DOCS / "api.md").read_text()
    assert not [name for name in diagmem.__all__ if f"`{name}" not in text and not name.startswith("_")]


def test_a_plan_is_shown_in_a_line() -> None:
    """However large the model: no dump of graphs."""
    made = diagmem.plan("zoo:vww_96_int8")
    assert max(len(repr(made)), len(repr(made.plan))) < 200


@pytest.mark.parametrize("make", [diagmem.emit_c, diagmem.report])
def test_files_are_shown_in_a_line_and_written(make: Callable[[str], Any], tmp_path: Path) -> None:
    """By their names, not their contents; and all of them are written below a folder that need not be there."""
    made = make("zoo:kws_dscnn_int8")
    files = dict(getattr(made, "files", made))
    assert len(repr(made)) < 400
    assert all(path in repr(made) for path in files)
    folder = made.write(tmp_path / "new" / "folder")
    assert {path: (folder / path).read_bytes() for path in files} == files


def test_results_are_shown_in_a_line() -> None:
    """Bytes, graphs and tables of ops are left out."""
    model = "zoo:kws_dscnn_int8"
    results = (
        *(diagmem.emit_tflm(model), diagmem.inspect(model), diagmem.profile(model)),
        diagmem.diff(model, "zoo:autoencoder_int8"),
    )
    for found in results:
        assert "\n" not in repr(found)
        assert len(repr(found)) < 600, type(found)


def test_files_are_not_written_over_one_another(tmp_path: Path) -> None:
    """A file where a folder should be, or no folder, is one of our errors."""
    planned, file = diagmem.emit_tflm("zoo:kws_dscnn_int8"), tmp_path / "file"
    assert planned.write(file).read_bytes() == planned.data
    with pytest.raises(diagmem.DiagmemError, match="none"):
        planned.write(tmp_path / "none" / "file")
    with pytest.raises(diagmem.DiagmemError, match="file: "):
        diagmem.emit_c("zoo:kws_dscnn_int8").write(file)
    assert file.read_bytes() == planned.data


def test_a_text_is_a_list_of_one() -> None:
    model = "zoo:kws_dscnn_int8"
    assert [verdict.to_json()["on"] for verdict in diagmem.verify(model, on="host", inputs=1)] == ["host"]
    assert diagmem.overlap(model, methods="exact") == diagmem.overlap(model, methods=["exact"])


def test_errors_name_arguments() -> None:
    """The API speaks of its arguments, never of flags of the command line."""
    for options in (
        {"input_rows": True, "schedule": "best"},
        {"recompute": 2.0, "schedule": "file"},
        {"schedule": "fast"},
        {"align": 3},
    ):
        with pytest.raises(diagmem.DiagmemError) as found:
            diagmem.plan("zoo:kws_dscnn_int8", **options)
        assert "--" not in str(found.value)
    for plan in ("none.json", Path("none.json")):
        with pytest.raises(diagmem.DiagmemError, match=r"^none\.json: No such file"):
            diagmem.emit_c("zoo:kws_dscnn_int8", plan=plan)
    with pytest.raises(diagmem.DiagmemError, match="layout 'foo' is not known; known: plain, cmake"):
        diagmem.emit_c("zoo:kws_dscnn_int8", layout="foo")  # type: ignore[arg-type]
    for together in (diagmem.emit_c_together, diagmem.verify_together):
        with pytest.raises(diagmem.DiagmemError, match="models need names: give a mapping"):
            together(["zoo:kws_dscnn_int8"])  # type: ignore[arg-type]
    with pytest.raises(diagmem.DiagmemError, match="inputs is 0: it must be 1 or more"):
        diagmem.verify("zoo:kws_dscnn_int8", inputs=0)
    with pytest.raises(diagmem.DiagmemError, match="place 'hots'"):
        diagmem.verify("zoo:kws_dscnn_int8", on="hots")
    with pytest.raises(TypeError, match="'colour' is no option of a plan"):
        diagmem.plan("zoo:kws_dscnn_int8", colour="red")
