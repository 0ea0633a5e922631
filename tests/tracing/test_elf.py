"""ELF files, sound and damaged."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from diagmem.model.errors import TraceError
from diagmem.tracing.cortex_m import CORES, linked
from diagmem.tracing.toolchain import Elf, Machine
from tests.tracing.conftest import compiled, require_cortex_m


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_cortex_m()
    place = tmp_path_factory.mktemp("elf")
    return linked([compiled("cortex-m4", place)], "relu", CORES["cortex-m4"], place)


def test_a_linked_file(executable: Path) -> None:
    """What is loaded, where a function is, how floats are passed."""
    elf = Elf.read(executable)
    assert elf.machine is Machine.ARM
    assert not elf.is_object
    assert elf.has_hard_floats
    entry = elf.function("relu") & ~1
    assert any(s.address <= entry < s.address + s.size_bytes for s in elf.segments)
    with pytest.raises(TraceError, match="no function 'relo'; it has: relu"):
        elf.function("relo")


def test_damaged_files_are_refused(executable: Path) -> None:
    """Cut short or with bytes changed, a file gives an answer or a TraceError, nothing else."""
    content, noise = executable.read_bytes(), random.Random(1)
    for _ in range(300):
        damaged = bytearray(content[: noise.choice((len(content), noise.randrange(52, len(content))))])
        for _ in range(noise.randrange(6)):
            damaged[noise.randrange(4, 200 if len(damaged) > 200 else len(damaged))] = noise.randrange(256)
        elf = Elf("damaged.elf", bytes(damaged))
        with contextlib.suppress(TraceError):
            assert elf.machine
        with contextlib.suppress(TraceError):
            assert elf.segments is not None
        with contextlib.suppress(TraceError):
            assert elf.function("relu") >= 0


def test_other_files_are_refused(tmp_path: Path) -> None:
    """What is not ELF is said to be so."""
    path = tmp_path / "kernel.c"
    for content in (b"", b"void relu(void) {}", b"\x7fELF"):
        path.write_bytes(content)
        with pytest.raises(TraceError, match=r"kernel\.c: not a little-endian ELF file"):
            Elf.read(path)
