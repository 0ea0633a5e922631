"""Libraries for build systems: each is built, by the tool itself or by a stand-in for the functions that it offers."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from diagmem import emit_c
from diagmem.backends.c import LAYOUTS, FileLayout, emit
from diagmem.cli import emit as command
from diagmem.verification.tools import STANDARD, WARNINGS
from tests.backends.c.models import compiler, program, tiny, write
from tests.backends.c.test_steps import by_rows, tall

CALLER = '#include "{0}.h"\nint main(void) {{ {0}_invoke(); return {0}_input_0() == 0; }}\n'


def run(command: list[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_line_offers_them_all() -> None:
    assert tuple(command.LAYOUTS) == LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_source_compiles_where_it_lies(layout: FileLayout, tmp_path: Path) -> None:
    files = emit(program(tiny()), layout=layout)
    write(files, tmp_path)
    sources = [path for path in files if path.endswith(".c")]
    run([compiler("gcc"), *STANDARD, *WARNINGS, "-Iinclude", "-fsyntax-only", *sources], tmp_path)
    assert "README.md" in files


@pytest.mark.parametrize("layout", ["plain", "cmake"])
@pytest.mark.parametrize("most_text_bytes", [2**20, 0], ids=["text", "binary"])
@pytest.mark.parametrize("how", ["add_subdirectory", "find_package"])
def test_cmake(layout: FileLayout, most_text_bytes: int, how: str, tmp_path: Path) -> None:
    """A program links NAME::NAME from a subdirectory, or from where it was installed, and runs."""
    cmake = compiler("cmake")
    compiler("gcc")
    write(emit(program(tiny()), layout=layout, most_text_bytes=most_text_bytes), tmp_path / "tiny")
    use = "add_subdirectory(../tiny tiny)" if how == "add_subdirectory" else "find_package(tiny CONFIG REQUIRED)"
    if how == "find_package":
        run([cmake, "-S", "tiny", "-B", "made", "-DCMAKE_BUILD_TYPE=Debug"], tmp_path)
        run([cmake, "--build", "made"], tmp_path)
        run([cmake, "--install", "made", "--prefix", "installed"], tmp_path)
    lists = f"project(app C)\n{use}\nadd_executable(firmware main.c)\ntarget_link_libraries(firmware tiny::tiny)\n"
    files = {"CMakeLists.txt": f"cmake_minimum_required(VERSION 3.13)\n{lists}", "main.c": CALLER.format("tiny")}
    write({path: text.encode() for path, text in files.items()}, tmp_path / "app")
    run([cmake, "-S", "app", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}"], tmp_path)
    run([cmake, "--build", "build"], tmp_path)
    run([str(tmp_path / "build" / "firmware")], tmp_path)


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ([], ["-O2"]),
        (["-DCMAKE_C_FLAGS=-Os"], ["-Os"]),
        (["-DCMAKE_BUILD_TYPE=Debug"], []),
        (["-DCMAKE_BUILD_TYPE=MinSizeRel"], ["-Os"]),
    ],
)
@pytest.mark.parametrize("layout", ["plain", "cmake"])
def test_cmake_optimises_unless_told_otherwise(
    layout: FileLayout, asked: list[str], flags: list[str], tmp_path: Path
) -> None:
    cmake = compiler("cmake")
    compiler("gcc")
    write(emit(program(tiny()), layout=layout, most_text_bytes=0), tmp_path)
    run([cmake, "-S", ".", "-B", "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-GUnix Makefiles", *asked], tmp_path)
    built = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    commands = [entry["command"].split() for entry in built if entry["file"].endswith(".c")]
    assert commands
    assert all([word for word in command if word.startswith("-O")] == flags for command in commands)


@pytest.mark.parametrize("name", ["test", "all", "clean", "Install", "app", "a-b c", "no", "3d"])
def test_names_that_mean_something_to_a_build_system(name: str, tmp_path: Path) -> None:
    """CMake takes whatever a model may be called."""
    cmake = compiler("cmake")
    compiler("gcc")
    write(emit(program(tiny(name=name))), tmp_path)
    run([cmake, "-S", ".", "-B", "build"], tmp_path)


ZEPHYR = """\
cmake_minimum_required(VERSION 3.13)
project(app C)
set(CONFIG_DIAGMEM_TINY y)
set(CONFIG_DIAGMEM_TINY_DEBUG y)
function(zephyr_library_named name)
  add_library(${name} STATIC)
  set(ZEPHYR_CURRENT_LIBRARY ${name} PARENT_SCOPE)
endfunction()
function(zephyr_library_sources)
  foreach(source ${ARGN})
    get_filename_component(path ${source} ABSOLUTE)
    target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${path})
  endforeach()
endfunction()
function(zephyr_library_compile_definitions_ifdef feature)
  if(${${feature}})
    target_compile_definitions(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
  endif()
endfunction()
function(zephyr_include_directories)
  foreach(folder ${ARGN})
    get_filename_component(path ${folder} ABSOLUTE)
    target_include_directories(${ZEPHYR_CURRENT_LIBRARY} PUBLIC ${path})
  endforeach()
endfunction()
add_subdirectory(../module/zephyr module)
add_executable(firmware main.c)
target_link_libraries(firmware diagmem_tiny)
"""


def test_a_zephyr_module(tmp_path: Path) -> None:
    """What Zephyr looks for is there; with a stand-in for its functions a program links the library, and runs."""
    cmake = compiler("cmake")
    compiler("gcc")
    files = emit(program(tiny()), layout="zephyr")
    assert files["zephyr/module.yml"].decode().splitlines() == [
        *('name: "tiny"', "build:", "  cmake: zephyr", "  kconfig: zephyr/Kconfig")
    ]
    assert files["zephyr/Kconfig"].decode().startswith('config DIAGMEM_TINY\n\tbool "The neural network tiny"\n')
    write(files, tmp_path / "module")
    write({"CMakeLists.txt": ZEPHYR.encode(), "main.c": CALLER.format("tiny").encode()}, tmp_path / "app")
    run([cmake, "-S", "app", "-B", "build"], tmp_path)
    run([cmake, "--build", "build"], tmp_path)
    run([str(tmp_path / "build" / "firmware")], tmp_path)


IDF = """\
cmake_minimum_required(VERSION 3.16)
project(app C)
set(CONFIG_COMPILER_OPTIMIZATION_DEBUG y)
macro(idf_component_register)
  cmake_parse_arguments(given "" "" "SRCS;INCLUDE_DIRS;PRIV_INCLUDE_DIRS" ${ARGN})
  set(COMPONENT_LIB component)
  add_library(component STATIC ${given_SRCS})
  target_include_directories(component PUBLIC ${given_INCLUDE_DIRS} PRIVATE ${given_PRIV_INCLUDE_DIRS})
endmacro()
add_subdirectory(../component component)
add_executable(firmware main.c)
target_link_libraries(firmware component)
"""


def test_an_esp_idf_component(tmp_path: Path) -> None:
    """With a stand-in for the function that ESP-IDF offers a program links the component, and runs."""
    cmake = compiler("cmake")
    compiler("gcc")
    write(emit(program(tiny()), layout="esp-idf"), tmp_path / "component")
    write({"CMakeLists.txt": IDF.encode(), "main.c": CALLER.format("tiny").encode()}, tmp_path / "app")
    run([cmake, "-S", "app", "-B", "build"], tmp_path)
    run([cmake, "--build", "build"], tmp_path)
    run([str(tmp_path / "build" / "firmware")], tmp_path)


ARDUINO = """\
struct Port { void begin(long) {} void println(float) {} };
static Port Serial;
static void delay(unsigned long) {}
"""


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_arduino_library(is_streamed: bool, tmp_path: Path) -> None:
    """The example is where the tool looks for it, and builds and runs with a stand-in for Arduino's own functions."""
    name = "tall" if is_streamed else "tiny"
    files = emit(by_rows(tall(), True) if is_streamed else program(tiny()), layout="arduino")
    about = dict(line.split("=", 1) for line in files["library.properties"].decode().splitlines())
    assert {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"} <= set(about)
    assert about["includes"] == f"{name}.h"
    write(files, tmp_path)
    (tmp_path / "Arduino.h").write_text(ARDUINO)
    (tmp_path / "main.cpp").write_text(
        f'#include "Arduino.h"\n#include "examples/{name}_run/{name}_run.ino"\nint main() {{ setup(); loop(); }}\n'
    )
    run([compiler("gcc"), "-std=c99", "-c", f"src/{name}.c", f"src/{name}_weights.c"], tmp_path)
    objects = [f"{name}.o", f"{name}_weights.o"]
    run([compiler("g++"), "-Wall", "-Wextra", "-Werror", "-Isrc", "main.cpp", *objects, "-o", "sketch"], tmp_path)
    run([str(tmp_path / "sketch")], tmp_path)


def test_a_platformio_library() -> None:
    about = json.loads(emit(program(tiny()), layout="platformio")["library.json"])
    assert (about["name"], about["headers"]) == ("tiny", "tiny.h")


SELFTESTS = {
    "zephyr": ("samples/selftest/src/main.c", "int printk(const char *, ...);", "zephyr/kernel.h zephyr/sys/printk.h"),
    "esp-idf": ("examples/selftest/main/main.c", "", ""),
    "cmake": (
        "examples/pico/main.c",
        "void stdio_init_all(void); void sleep_ms(unsigned); int putchar_raw(int);",
        "pico/stdlib.h",
    ),
    "arduino": ("examples/tiny_selftest/tiny_selftest.ino", "", "Arduino.h"),
    "platformio": ("examples/selftest/src/main.cpp", "", "Arduino.h"),
}


@pytest.mark.parametrize("layout", SELFTESTS)
def test_examples_of_the_self_test_compile(layout: FileLayout, tmp_path: Path) -> None:
    """With stand-ins for what the system offers; the test itself is among the sources of the library."""
    example, offered, headers = SELFTESTS[layout]
    files = emit_c(tiny(), selftest=1, layout=layout).files
    write(files, tmp_path)
    for header in headers.split():
        path = tmp_path / "stand_ins" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "#pragma once\n" + (offered or ARDUINO.replace("void println", "void write(char) {} void println"))
        )
    folder = "src" if layout in ("arduino", "platformio") else "include"
    compiler("g++")
    is_c = example.endswith(".c")
    language = ["gcc", "-std=c99", "-x", "c"] if is_c else ["g++", "-x", "c++"]
    flags = ["-Wall", "-Wextra", "-Werror", "-Istand_ins", f"-I{folder}", "-c"]
    run([*language, *flags, example, "-o", "example.o"], tmp_path)
    run(["gcc", "-std=c99", *flags, "-Isrc", "src/tiny_selftest.c", "-o", "test.o"], tmp_path)


@pytest.mark.parametrize(
    ("layout", "path", "key"),
    [
        ("zephyr", "samples/selftest/prj.conf", "CONFIG_MAIN_STACK_SIZE"),
        ("esp-idf", "examples/selftest/sdkconfig.defaults", "CONFIG_ESP_MAIN_TASK_STACK_SIZE"),
    ],
)
def test_the_stack_holds_what_the_self_test_paints(layout: FileLayout, path: str, key: str) -> None:
    """And 4 KB for what prints: their own default is less."""
    files = emit_c(tiny(), selftest=1, layout=layout, cpu="cortex-m4").files
    found = dict(line.split("=") for line in files[path].decode().splitlines())
    painted = re.search(r"SELFTEST_STACK_BYTES (\d+)", files["src/tiny_selftest.c"].decode())
    assert painted is not None
    assert int(painted[1]) + 4096 <= int(found[key]) <= int(painted[1]) + 5120
