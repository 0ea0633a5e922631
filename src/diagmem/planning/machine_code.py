"""Loops as machine code: numba makes it, once on a machine, and it is kept beside the loops.

To load numba takes half a second, more than most plans do. What it made needs llvmlite alone, and a tenth of the time.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, get_type_hints

VERSION, ENTRY = 2, "diagmem_entry"
"""Of how loops are called, by which name."""

MOST_KNOWN = 8
"""Tuples of arrays whose addresses are remembered."""

Native = Callable[..., int]
"""A loop: of integers, arrays of 64 bits, and tuples of such."""


@cache
def can_compile() -> bool:
    """Whether numba is installed, and there is a place to keep what it makes: to compile in each process takes too
    long. Known without loading anything."""
    return find_spec("numba") is not None and next(_writable(Path(__file__)), None) is not None


def is_at_hand() -> bool:
    """Whether what runs machine code is loaded."""
    return "llvmlite.binding" in sys.modules


@cache
def native(module: ModuleType, name: str) -> Native:
    """One of the functions that a module names in LOOPS, compiled together with those that it calls."""
    file_name = f"{module.__name__}.{name}-{_key(module)}.o"
    for folder in _folders(Path(str(module.__file__))):
        if (folder / file_name).is_file():
            return _Native(_loaded((folder / file_name).read_bytes()))
    made = _made(module, name)
    for folder in _writable(Path(str(module.__file__))):
        _keep(folder / file_name, made)
        break
    return _Native(_loaded(made))


def _folders(source: Path) -> Iterator[Path]:
    """Where code is looked for, and kept: where the user says, beside the loops, or at the user's own place."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"])
    yield source.parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    yield (Path(home) if home else Path("~/.cache").expanduser()) / "diagmem"


def _writable(source: Path) -> Iterator[Path]:
    """Those of the folders that can be written to; they are made if need be."""
    for folder in _folders(source):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            yield folder


def _keep(path: Path, content: bytes) -> None:
    """Whole or not at all: others may be looking for it."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)


@cache
def _key(module: ModuleType) -> str:
    """Of what the code is made of, by what, and for which processor."""
    import llvmlite
    import llvmlite.binding as llvm

    loops = [getattr(module, name) for name in module.LOOPS]
    parts = [(loop.__code__.co_code, loop.__code__.co_consts, loop.__code__.co_names) for loop in loops]
    seen = sorted(scope(module).items())
    numbers = [(name, value) for name, value in seen if isinstance(value, int)]
    tuples = [(name, value._fields) for name, value in seen if hasattr(value, "_fields")]
    machine = llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    whole = repr((parts, numbers, tuples, machine, sys.version, llvmlite.__version__, VERSION))
    return hashlib.sha256(whole.encode()).hexdigest()[:20]


def _made(module: ModuleType, name: str) -> bytes:
    """Object code, after a line of the names that it refers to."""
    import llvmlite.binding as llvm
    from numba import cfunc, types

    world = _world(module)
    exec(_entry(getattr(module, name)), world)
    address = types.CPointer(types.int64)
    signature = types.int64(types.CPointer(address), address, address)
    compiled = cfunc(signature, error_model="numpy")(world["entry"])
    text = compiled.inspect_llvm().replace(compiled.native_name, ENTRY)
    declared = (line.split("@", 1)[1] for line in text.splitlines() if line.startswith("declare"))
    names = {line.split("(", 1)[0] for line in declared if not line.startswith("llvm.")}
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
    code: bytes = target.emit_object(llvm.parse_assembly(text))
    return " ".join(sorted(names)).encode() + b"\n" + code


def scope(module: ModuleType) -> dict[str, Any]:
    """What a module's loops see: its own names, and those beside loops that it has from another module."""
    found: dict[str, Any] = {}
    for name in module.LOOPS:
        found |= getattr(module, name).__globals__
    return found | vars(module)


@cache
def _world(module: ModuleType) -> dict[str, Any]:
    """What a module's loops see: each other, to be compiled."""
    from numba import carray, njit

    world = {**scope(module), "carray": carray}
    for loop in module.LOOPS:
        world[loop] = njit(error_model="numpy", forceinline=True)(FunctionType(world[loop].__code__, world, loop))
    return world


def _entry(loop: Callable[..., int]) -> str:
    """A function of plain addresses, lengths and numbers that calls a loop."""
    arrays = numbers = 0
    arguments = []

    def array() -> str:
        nonlocal arrays
        arrays += 1
        return f"carray(arrays[{arrays - 1}], (lengths[{arrays - 1}],))"

    hints = get_type_hints(loop)
    for parameter in inspect.signature(loop).parameters:
        hint = hints[parameter]
        if hint is int:
            arguments.append(f"numbers[{numbers}]")
            numbers += 1
        elif hasattr(hint, "_fields"):
            arguments.append(f"{hint.__name__}({', '.join(array() for _ in hint._fields)})")
        else:
            arguments.append(array())
    return f"def entry(arrays, lengths, numbers):\n    return {loop.__name__}({', '.join(arguments)})\n"


@dataclass(frozen=True)
class _Code:
    """Loaded code; `engine` holds its memory."""

    engine: Any
    address: int


def _loaded(content: bytes) -> _Code:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    names, code = content.split(b"\n", 1)
    for name in names.decode().split():
        # What numba has for errors, of which loops make none.
        if llvm.address_of_symbol(name) is None:
            llvm.add_symbol(name, ctypes.cast(ctypes.pythonapi.Py_FatalError, ctypes.c_void_p).value)
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine()
    )
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return _Code(engine, engine.get_function_address(ENTRY))


class _Native:
    """Calls loaded code."""

    def __init__(self, code: _Code) -> None:
        self.code = code
        self.known: dict[int, tuple[tuple[Any, ...], list[int], list[int]]] = {}
        self.call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 3)(code.address)

    def __call__(self, *arguments: Any) -> int:
        addresses, lengths, numbers = list[int](), list[int](), list[int]()
        for argument in arguments:
            if isinstance(argument, int):
                numbers.append(argument)
            else:
                begins, counts = self._places(argument) if isinstance(argument, tuple) else _places([argument])
                addresses += begins
                lengths += counts
        found: int = self.call(
            (ctypes.c_void_p * len(addresses))(*addresses),
            (ctypes.c_int64 * len(lengths))(*lengths),
            (ctypes.c_int64 * len(numbers))(*numbers),
        )
        return found

    def _places(self, arrays: tuple[Any, ...]) -> tuple[list[int], list[int]]:
        """Those of a tuple are the same from call to call."""
        if id(arrays) not in self.known:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[id(arrays)] = arrays, *_places(arrays)
        _, begins, counts = self.known[id(arrays)]
        return begins, counts


def _places(arrays: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Addresses and lengths."""
    return [array.ctypes.data for array in arrays], [len(array) for array in arrays]
