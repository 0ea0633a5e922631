"""`diagmem place`: tables in, tables out, statuses and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diagmem.planning.place.table import conflicts, parse_table
from tests.cli.calling import call

TABLE = "id,lower,upper,size\na,0,4,64\nb,2,6,32\nc,4,8,64\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "buffers.csv"
    path.write_text(TABLE)
    return path


def test_a_table_comes_back_with_offsets(path: Path) -> None:
    """As it was, with a last column; the offsets are a placement of the size that is shown."""
    done = call("place", str(path), "-o", str(path.with_name("out.csv")), "--json", "-")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert {"arena_bytes", "lower_bound_bytes", "optimal", "seconds", "effort"} <= said.keys()
    assert (said["arena_bytes"], said["optimal"], said["buffers"]) == (96, True, 3)
    text = path.with_name("out.csv").read_text()
    table = parse_table(text)
    assert [line.rsplit(",", 1)[0] for line in text.splitlines()] == TABLE.splitlines()
    offsets = [row.offset or 0 for row in table.rows]
    assert list(conflicts(table, offsets)) == []
    assert max(offset + row.size_bytes for row, offset in zip(table.rows, offsets, strict=True)) == 96


def test_separations_let_buffers_overlap(path: Path) -> None:
    """Pairs that may lie on each other take less."""
    separations = path.with_name("apart.csv")
    separations.write_text("below,above,bytes\nb,a,8\nb,c,8\n")
    done = call("place", str(path), "--separations", str(separations), "--json", "-")
    assert json.loads(done.stdout)["arena_bytes"] == 72


def test_a_capacity_is_met_or_not(path: Path) -> None:
    """Status 0 and `fits`, or status 1 and nothing written."""
    assert call("place", str(path), "--capacity", "96").returncode == 0
    out = path.with_name("out.csv")
    done = call("place", str(path), "--capacity", "95", "-o", str(out))
    assert done.returncode == 1
    assert "impossible, 1 B too much" in done.stdout
    assert not out.exists()


def test_what_is_shown_says_how_good_it_is(path: Path) -> None:
    """Proven, or how far off at the most; and that a clock makes it depend on the machine."""
    assert "proven optimal" in call("place", str(path)).stdout
    assert "another run may give another result" in call("place", str(path), "--time-limit", "5").stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not text"),
        (b"", "column 'id' is missing"),
        (b"id,lower,upper,size\na,0,1,x\n", "line 2: size 'x' is not an integer"),
        (b'id,lower,upper,size\n"a,0,1,8\n', "not CSV"),
        (b"id,lower,upper,size\n\x00,0,1,8,9\n", "5 fields"),
    ],
)
def test_bad_tables_are_refused_in_one_line(path: Path, content: bytes, said: str) -> None:
    """Status 2, the file's name, what is wrong, no traceback."""
    path.write_bytes(content)
    done = call("place", str(path))
    assert done.returncode == 2
    assert said in done.stderr
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_that_are_not_there(path: Path) -> None:
    """Each is named, also the second one."""
    assert "nowhere.csv: No such file" in call("place", "nowhere.csv").stderr
    done = call("place", str(path), "--separations", "nowhere.csv")
    assert (done.returncode, "nowhere.csv" in done.stderr) == (2, True)


def test_one_standard_output_for_one_thing(path: Path) -> None:
    """JSON or the table."""
    assert call("place", str(path), "--json", "-", "-o", "-").returncode == 2
    assert call("place", str(path), "-o", "-").stdout.startswith("id,lower,upper,size,offset\na,0,4,64,")
