"""What is handed to others can be installed where there is nothing else, and works there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with a source distribution, and the wheel that was made from it."""
    place = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(place), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_a_wheel_plans_with_core_dependencies_only(built: Path, tmp_path: Path) -> None:
    """In an environment of its own: the command is there, data files too, and nothing else is needed."""
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    [wheel] = built.glob("*.whl")
    alone = {"PATH": str(binaries)}
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(binaries / "pip"), "install", "--quiet", str(wheel)], check=True, cwd=tmp_path, env=own)
    done = subprocess.run(
        [str(binaries / "diagmem"), "plan", "zoo:kws_dscnn_int8", "--target", "nRF52840", "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=alone,
    )
    found = json.loads(done.stdout)
    assert (found["arena_bytes"], found["fits"]) == (4122, True)
    emit = [str(binaries / "diagmem"), "emit", "c", "zoo:kws_dscnn_int8", "-o", str(tmp_path / "firmware")]
    subprocess.run(emit, check=True, cwd=tmp_path, env=alone, capture_output=True)
    assert (tmp_path / "firmware" / "kws_dscnn_int8.h").exists()
    report = [str(binaries / "diagmem"), "report", "zoo:kws_dscnn_int8", "-o", str(tmp_path / "report")]
    subprocess.run(report, check=True, cwd=tmp_path, env=alone, capture_output=True)
    missing = [str(binaries / "python"), "-c", "import pytest"]
    assert subprocess.run(missing, cwd=tmp_path, env=alone, capture_output=True, check=False).returncode != 0


PLAN = ("plan", "zoo:kws_dscnn_int8", "--schedule", "rows", "--effort", "quick", "--json", "-")

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def planned(wheel: Path, place: Path) -> str:
    """What the command prints that is in a wheel, run where it was unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "diagmem", *PLAN]
    return subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=True).stdout


def compiled(wheel: Path) -> set[str]:
    """The modules in a wheel that are compiled."""
    with zipfile.ZipFile(wheel) as archive:
        return {name.split(".")[0] for name in archive.namelist() if name.endswith((".so", ".pyd"))}


@needs_compiler
@pytest.mark.parametrize("variables", [{"CC": "false"}, {"DIAGMEM_PLAIN": "1"}], ids=lambda given: "".join(given))
def test_a_wheel_without_a_compiler_makes_the_same_plan(built: Path, variables: dict[str, str], tmp_path: Path) -> None:
    """From the source distribution: all loops are compiled, or none, and that is said; plans are the same bytes."""
    [source], [wheel] = built.glob("*.tar.gz"), built.glob("*.whl")
    loops = {str(types.relative_to(ROOT / "src").with_suffix("")) for types in ROOT.glob("src/**/*.pxd")}
    assert compiled(wheel) == {*loops, "diagmem/planning/_cython"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--wheel-dir", str(tmp_path), str(source)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [plain] = tmp_path.glob("*.whl")
    assert compiled(plain) == set()
    assert ("loops are not compiled" in done.stdout + done.stderr) == ("CC" in variables)
    assert ("none-any" in plain.name) == ("DIAGMEM_PLAIN" in variables)
    assert planned(plain, tmp_path / "plain") == planned(wheel, tmp_path / "compiled")


def test_a_package_index_shows_no_broken_links(built: Path) -> None:
    """It has no other file of the project: what it shows refers to none."""
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    assert "diagmem plan" in text
    assert re.search(r"^Project-URL: Paper, https://", text, re.M)
    assert not [link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")]


def test_a_source_distribution_has_what_the_tests_need(built: Path) -> None:
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "LICENSE", "Makefile", "docs/c.md", "tests/conftest.py", "tools/replay"} <= names
