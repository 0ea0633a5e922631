"""How build systems find the code: where each file lies, and the files in which they look for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from diagmem import __version__

if TYPE_CHECKING:
    from diagmem.backends.c.program import Program

FileLayout = Literal["plain", "cmake", "arduino", "platformio", "zephyr", "esp-idf"]
LAYOUTS: tuple[FileLayout, ...] = get_args(FileLayout)

BINARY_LAYOUTS: tuple[FileLayout, ...] = ("plain", "cmake")
"""Those whose tools take weights as a binary that the assembler includes."""

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Library:
    """What is laid out: a model, or several. `code`: the files by their names."""

    programs: Mapping[str, Program]
    name: str
    code: Mapping[str, bytes]

    @property
    def macro(self) -> str:
        return self.name.upper()

    @property
    def header(self) -> str:
        return f"{self.name}.h"

    @property
    def headers(self) -> list[str]:
        """What programs may include."""
        return [self.header, *(f"{own}.h" for own in self.programs if own != self.name)]

    @property
    def what(self) -> str:
        """`The neural network NAME`, for people."""
        one = len(self.programs) == 1
        return f"The neural network {self.name}" if one else f"The neural networks {', '.join(self.programs)}"

    @property
    def needs_libm(self) -> bool:
        return b"<math.h>" in self.code[f"{self.name}_kernels.h"]

    def sources(self, folder: str = "") -> list[str]:
        return [f"{folder}{path}" for path in self.code if path.endswith((".c", ".S"))]

    def in_folders(self) -> Files:
        """Headers in include/, all else in src/."""
        return {f"{'include' if path in self.headers else 'src'}/{path}": data for path, data in self.code.items()}

    def in_src(self) -> Files:
        return {f"src/{path}": data for path, data in self.code.items()}


def laid_out(library: Library, layout: FileLayout) -> Files:
    """All files of the library by path, but its README."""
    return _LAYOUTS[layout](library)


def _plain(library: Library) -> Files:
    return {**library.code, "CMakeLists.txt": _cmake_lists(library, "", "").encode()}


def _cmake(library: Library) -> Files:
    return {**library.in_folders(), "CMakeLists.txt": _cmake_lists(library, "include/", "src/").encode()}


def _cmake_lists(library: Library, headers: str, folder: str) -> str:
    """For add_subdirectory, or installed for find_package: either way programs link NAME::NAME."""
    name, sources = library.name, library.sources(folder)
    languages = "C ASM" if any(source.endswith(".S") for source in sources) else "C"
    libm = f"target_link_libraries({name} PUBLIC m)\n" if library.needs_libm else ""
    private = f"\n    PRIVATE ${{CMAKE_CURRENT_SOURCE_DIR}}/{folder.rstrip('/')}" if folder else ""
    included = f"${{CMAKE_CURRENT_SOURCE_DIR}}/{headers}".rstrip("/")
    return f"""\
cmake_minimum_required(VERSION 3.13)
project({name} LANGUAGES {languages})

add_library({name} STATIC {" ".join(sources)})
add_library({name}::{name} ALIAS {name})
target_include_directories({name}
    PUBLIC $<BUILD_INTERFACE:{included}> $<INSTALL_INTERFACE:include>{private})
target_compile_definitions({name} PRIVATE $<$<CONFIG:Debug>:{library.macro}_DEBUG>)
set_target_properties({name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
{libm}\
# Without optimisation the kernels take many times as long: -O2, unless a build type or CMAKE_C_FLAGS says otherwise.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT CMAKE_C_FLAGS MATCHES "-O"
   AND CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
  target_compile_options({name} PRIVATE $<$<COMPILE_LANGUAGE:C>:-O2>)
endif()

install(TARGETS {name} EXPORT {name}Config ARCHIVE DESTINATION lib)
install(FILES {" ".join(f"{headers}{header}" for header in library.headers)} DESTINATION include)
install(EXPORT {name}Config NAMESPACE {name}:: DESTINATION lib/cmake/{name})
"""


def _arduino(library: Library) -> Files:
    from diagmem.backends.c import project

    example = f"examples/{library.name}_run/{library.name}_run.ino"
    return {
        **library.in_src(),
        "library.properties": project.arduino(library.name, library.what).encode(),
        example: _sketch(library).encode(),
    }


def _sketch(library: Library) -> str:
    states = "".join(f"    {name}_reset();\n" for name, program in library.programs.items() if program.states)
    runs = "".join(_run(program, name) for name, program in library.programs.items())
    outputs = "its first output" if len(library.programs) == 1 else "their first outputs"
    return f"""\
// Runs {library.what.replace("The", "the", 1)} again and again, and prints {outputs}.
#include <{library.header}>

void setup() {{
    Serial.begin(115200);
{states}}}

void loop() {{
{runs}    delay(1000);
}}
"""


def _run(program: Program, name: str) -> str:
    """A run with zeros, and its output."""
    macro = name.upper()
    run = f"""\
    for (long i = 0; i < {macro}_INPUT_0_ELEMS; ++i) {{
        {name}_input_0()[i] = 0; /* what your sensor says */
    }}
    {name}_invoke();"""
    if program.input_rows:
        run = f"""\
    for (int y = 0; y < {macro}_INPUT_0_ROWS; ++y) {{
        static {macro}_INPUT_0_TYPE row[{macro}_INPUT_0_ROW_ELEMS]; /* what your sensor says */
        {name}_push_row(row);
    }}"""
    if not program.model.inputs:
        run = f"    {name}_invoke();"
    return f"""\
{run}
    for (long i = 0; i < {macro}_OUTPUT_0_ELEMS; ++i) {{
        Serial.println((float){name}_output_0()[i]);
    }}
"""


def _platformio(library: Library) -> Files:
    from diagmem.backends.c import project

    return {**library.in_src(), "library.json": project.platformio(library.name, library.what).encode()}


def _zephyr(library: Library) -> Files:
    name, option = library.name, f"DIAGMEM_{library.macro}"
    libc = "\tselect REQUIRES_FULL_LIBC\n" if library.needs_libm else ""
    sources = "".join(f"\n    ../{source}" for source in library.sources("src/"))
    texts = {
        # In quotes, for YAML takes some names for something else: no, on, null.
        "zephyr/module.yml": f"name: {json.dumps(name)}\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\n",
        "zephyr/Kconfig": f"""\
config {option}
\tbool "{library.what}"
{libc}\thelp
\t  A neural network as C, made by diagmem: static memory, no dependencies.

config {option}_DEBUG
\tbool "Check the arenas that {name} is given"
\tdepends on {option}
""",
        "zephyr/CMakeLists.txt": f"""\
if(CONFIG_{option})
  zephyr_library_named(diagmem_{name})
  zephyr_library_sources({sources})
  zephyr_library_compile_definitions_ifdef(CONFIG_{option}_DEBUG {library.macro}_DEBUG)
  zephyr_include_directories(../include)
endif()
""",
    }
    return {**library.in_folders(), **{path: text.encode() for path, text in texts.items()}}


def _esp_idf(library: Library) -> Files:
    sources = "".join(f'\n         "{source}"' for source in library.sources("src/"))
    texts = {
        "CMakeLists.txt": f"""\
idf_component_register(
    SRCS{sources}
    INCLUDE_DIRS "include"
    PRIV_INCLUDE_DIRS "src")
if(CONFIG_COMPILER_OPTIMIZATION_DEBUG)
  target_compile_definitions(${{COMPONENT_LIB}} PRIVATE {library.macro}_DEBUG)
endif()
""",
        "idf_component.yml": f"""\
version: "{__version__}"
description: {json.dumps(f"{library.what} as C, made by diagmem")}
""",
    }
    return {**library.in_folders(), **{path: text.encode() for path, text in texts.items()}}


_LAYOUTS: Mapping[FileLayout, Callable[[Library], Files]] = {
    "plain": _plain,
    "cmake": _cmake,
    "arduino": _arduino,
    "platformio": _platformio,
    "zephyr": _zephyr,
    "esp-idf": _esp_idf,
}
