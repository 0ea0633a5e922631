"""The cycle model against measurements that others published: every program of docs/latency.md, the bad ones too.

    python benchmarks/bench_cycles.py SOURCES [--suite SUITE]

SOURCES holds git work trees, each called OWNER+NAME as on GitHub; a suite whose sources are not there is left out with
a word. Programs are compiled by the compiler that is installed, which is not always the one that was used there; what
that changes is part of the error. Every other program was used to choose constants; the error that timing.toml states
is the mean over those that were kept aside.
"""

from __future__ import annotations

import csv
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diagmem.costs.cycles import Clock, Spent
from diagmem.targets import chip_named, timing_of
from diagmem.verification import cortex_m, tools
from diagmem.verification.cycles import Counted

START = r"""
#include <stdint.h>
#include <string.h>
extern uint32_t stack_top[], data_begin[], data_end[], data_source[], bss_begin[], bss_end[];
int start_and_run(void);
static uint32_t host(uint32_t call, uint32_t argument) {
#ifdef __riscv
    register uint32_t a0 __asm__("a0") = call, a1 __asm__("a1") = argument;
    __asm__ volatile(".option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop"
                     : "+r"(a0) : "r"(a1) : "memory");
    return a0;
#else
    register uint32_t r0 __asm__("r0") = call, r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
#endif
}
void _exit(int status) { (void)status; host(0x18, 0x20023); for (;;) {} }
__attribute__((used)) static void fault(void) { _exit(1); }
__attribute__((noinline)) void harness_begin(void) { __asm__ volatile(""); }
__attribute__((noinline)) void harness_end(void) { __asm__ volatile(""); }
void reset(void) {
#ifndef __riscv
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20;
#endif
    memcpy(data_begin, data_source, (size_t)((char *)data_end - (char *)data_begin));
    memset(bss_begin, 0, (size_t)((char *)bss_end - (char *)bss_begin));
    host(0x18, start_and_run() ? 0x20023 : 0x20026);
}
#ifdef __riscv
__attribute__((section(".vectors"), naked, used)) static void start(void) {
    __asm__ volatile(".option arch, +zicsr\n la sp, stack_top\n la t0, fault\n csrw mtvec, t0\n tail reset");
}
#else
__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_top, reset, fault, fault, fault, fault, fault};
#endif
"""
"""Of every program: where it starts; `start_and_run` is its own, and returns 0 if the results are right."""


@dataclass(frozen=True)
class Program:
    """`published`: cycles of each part between harness_begin and harness_end, by its name. `core`: of the tables;
    `board`: an emulated one that runs its code. `chip`: with its flash; None where nothing waits for it. `main`: C of
    `start_and_run`. `why_bad`: what is known to differ."""

    suite: str
    name: str
    core: str
    board: str
    published: dict[str, float]
    sources: Sequence[Path]
    main: str
    flags: Sequence[str]
    includes: Sequence[Path] = ()
    chip: str | None = None
    core_flags: Sequence[str] | None = None

    def clock(self) -> Clock:
        timing = timing_of(self.core)
        if timing is None:
            raise SystemExit(f"no table of {self.core}")
        return Clock(timing, None if self.chip is None else chip_named(self.chip))


@dataclass(frozen=True)
class Row:
    """`is_kept_aside`: not looked at when constants were chosen."""

    program: Program
    part: str
    published: float
    spent: Spent
    is_kept_aside: bool = field(default=False)

    @property
    def error_percent(self) -> float:
        return 100 * (self.spent.cycles / self.published - 1)


def run(program: Program) -> Iterator[Row]:
    core = cortex_m.CORES[program.board]
    if program.core_flags is not None:
        core = replace(core, flags=tuple(program.core_flags))
    clock = program.clock()
    with tempfile.TemporaryDirectory(prefix="diagmem-bench-") as place:
        directory = Path(place)
        build(program, core, directory)
        said, status = cortex_m.emulate(core, directory, clock=clock)
        if status:
            raise tools.ToolError(f"it ended with status {status}: {said[-300:]}")
        counted = Counted.read(directory, core.made_by.tool("objdump"), clock.timing)
    for part, (name, published) in enumerate(program.published.items()):
        yield Row(program, name, published, counted.by_part[part])


def build(program: Program, core: cortex_m.Core, directory: Path) -> None:
    tools.write_firmware(directory, "cortex_m.ld")
    (directory / "start.c").write_text(START)
    (directory / "main.c").write_text("void harness_begin(void);\nvoid harness_end(void);\n" + program.main)
    gcc = [core.made_by.tool("gcc"), *core.made_by.flags, *core.flags, "-w"]
    includes = [f"-I{path}" for path in (*program.includes, *{source.parent for source in program.sources})]
    objects: list[str] = []
    for source in (*program.sources, directory / "main.c", directory / "start.c"):
        objects.append(f"{len(objects)}.o")
        own = [*program.flags, *includes] if source.name != "start.c" else ["-O2"]
        tools.build([*gcc, *own, "-c", str(source), "-o", objects[-1]], directory)
    first = cortex_m.VECTORS_BYTES if core.vectors_at is None else 0
    numbers = {
        "VECTORS_AT": core.flash_at if core.vectors_at is None else core.vectors_at,
        "VECTORS_BYTES": cortex_m.VECTORS_BYTES,
        "FLASH_AT": core.flash_at + first,
        "FLASH_BYTES": cortex_m.BOARD_BYTES - first,
        "RAM_AT": core.ram_at,
        "RAM_BYTES": cortex_m.BOARD_BYTES,
        "SLOW_AT": core.slow_at,
        "SLOW_BYTES": cortex_m.BOARD_BYTES,
        "end": core.ram_at + cortex_m.BOARD_BYTES // 2,
    }
    sizes = [f"-Wl,--defsym={name}={number}" for name, number in numbers.items()]
    link = ["-nostartfiles", core.made_by.library, "-T", "cortex_m.ld", "-Wl,--gc-sections", *sizes]
    tools.build([*gcc, *link, *objects, "-lm", "-o", "firmware.elf"], directory)


# pqm4: STM32L4R5ZI at 24 MHz, where flash does not wait.

KEM = """
#include <string.h>
#include "api.h"
static unsigned char a[CRYPTO_BYTES], b[CRYPTO_BYTES], sk[CRYPTO_SECRETKEYBYTES], pk[CRYPTO_PUBLICKEYBYTES];
static unsigned char ct[CRYPTO_CIPHERTEXTBYTES];
int start_and_run(void) {
    harness_begin(); crypto_kem_keypair(pk, sk); harness_end();
    harness_begin(); crypto_kem_enc(ct, a, pk); harness_end();
    harness_begin(); crypto_kem_dec(b, ct, sk); harness_end();
    return memcmp(a, b, sizeof a);
}
"""

SIGN = """
#include <string.h>
#include "api.h"
static unsigned char sk[CRYPTO_SECRETKEYBYTES], pk[CRYPTO_PUBLICKEYBYTES], sm[CRYPTO_BYTES + 32], m[CRYPTO_BYTES + 32];
int start_and_run(void) {
    size_t length = 32;
    harness_begin(); crypto_sign_keypair(pk, sk); harness_end();
    crypto_sign(sm, &length, m, 32, sk);
    harness_begin(); const int status = crypto_sign_open(m, &length, sm, length, pk); harness_end();
    return status;
}
"""

RANDOM = """
#include <stddef.h>
#include <stdint.h>
#include "randombytes.h"
int randombytes(uint8_t *to, size_t bytes) {
    static uint32_t state = 1;
    for (; bytes > 0; --bytes) {
        state = state * 1664525u + 1013904223u;
        *to++ = (uint8_t)(state >> 24);
    }
    return 0;
}
"""


SCHEMES = r"ml-(kem|dsa)|kyber|dilithium|(light|fire)?saber"


def pqm(root: Path, own: str, suite: str, core: str, board: str, kinds: Sequence[str]) -> Iterator[Program]:
    """Of mupq's benchmarks: key generation, encapsulation, decapsulation; or key generation and verification, for
    signing takes a number of attempts that is random."""
    common = root / "mupq+mupq" / "common"
    (table,) = (root / own).glob("benchmarks*.csv")
    with table.open() as file:
        rows = [row for row in csv.reader(file) if len(row) > 8 and "executions" in row[0] and row[2].isdigit()]
    for row in rows:
        scheme, implementation = row[0].partition(" ")[0], row[1]
        folders = [root / own / f"crypto_{kind}" / scheme / implementation for kind in ("kem", "sign")]
        is_kem = folders[0].is_dir()
        folder = folders[0] if is_kem else folders[1]
        if implementation not in kinds or not folder.is_dir() or not re.match(SCHEMES, scheme):
            continue
        names = ("keypair", "encaps", "decaps") if is_kem else ("keypair", "verify")
        cycles = (row[2], row[5], row[8]) if is_kem else (row[2], row[8])
        sources = [path for path in sorted(folder.iterdir()) if path.suffix in (".c", ".S", ".s")]
        keccak = root / own / "common" / "keccakf1600.S"
        yield Program(
            suite,
            f"{scheme} {implementation}",
            *(core, board),
            {name: float(count) for name, count in zip(names, cycles, strict=True)},
            [*sources, common / "fips202.c", keccak if keccak.exists() else common / "keccakf1600.c"],
            "#include <stddef.h>\n" + RANDOM + (KEM if is_kem else SIGN),
            ["-O3", "-std=gnu99", "-fno-common", "-DMUPQ", "-DMUPQ_NAMESPACE=", "-DPQM4"],
            [folder, common, root / own / "common"],
        )


def pqm4(root: Path) -> Iterator[Program]:
    yield from pqm(root, "mupq+pqm4", "pqm4", "cortex-m4f", "cortex-m4", ("m4f", "m4fspeed", "m4fstack"))


def pqm3(root: Path) -> Iterator[Program]:
    """STM32F207ZG at 30 MHz, where flash does not wait."""
    yield from pqm(root, "mupq+pqm3", "pqm3", "cortex-m3", "cortex-m3", ("m3", "m3speed", "m3stack", "m3speedstack"))


RP2040_MS = {"ml-kem-512": 35.7, "ml-kem-768": 56.6, "ml-kem-1024": 85.7, "ml-dsa-65": 72.2}
"""arXiv 2603.19340: key generation, encapsulation and decapsulation together; of ml-dsa-65 verification. 133 MHz."""


def rp2040(root: Path) -> Iterator[Program]:
    """PQClean's C on a Raspberry Pi Pico, with -Os, run from external flash."""
    for name, ms in RP2040_MS.items():
        kind = "kem" if "kem" in name else "sign"
        folder = root / "PQClean+PQClean" / f"crypto_{kind}" / name / "clean"
        space = f"PQCLEAN_{name.replace('-', '').upper()}_CLEAN_"
        main = KEM if kind == "kem" else SIGN
        main = re.sub(r"\b(CRYPTO_|crypto_)", rf"{space}\1", main)
        main = main.replace('"api.h"\n', '"api.h"\n#include <stddef.h>\n')
        if kind == "kem":
            main = main.replace("harness_end();\n    harness_begin();", "")
        else:
            main = re.sub(r"harness_begin\(\); (\S+keypair\(pk, sk\);) harness_end\(\);", r"\1", main)
        sources = [*sorted(folder.glob("*.c")), root / "PQClean+PQClean/common/fips202.c"]
        yield Program(
            *("rp2040", name, "cortex-m0+", "cortex-m0", {"": ms * 133_000}, sources, RANDOM + main),
            ["-Os", "-ffunction-sections", "-fdata-sections"],
            [folder, root / "PQClean+PQClean/common"],
            "RP2040",
            ("-mcpu=cortex-m0plus",),
        )


# Embench 0.5.

EMBENCH = """
#include "support.h"
void start_trigger(void) {}
void stop_trigger(void) {}
void initialise_board(void) {}
int start_and_run(void) {
    initialise_benchmark();
    warm_caches(1);
    harness_begin();
    volatile int result = benchmark();
    harness_end();
    return !verify_benchmark(result);
}
"""


def embench(root: Path, results: str, suite: str, core: str, board: str, flags: Sequence[str]) -> Iterator[Program]:
    """Runs for a clock of 1 MHz, which takes as many thousands of cycles as it took milliseconds."""
    path = root / "embench+embench-iot-results" / "results" / f"{results}.json"
    told = json.loads(path.read_text())["absolute speed results"]["detailed results"]
    own = root / "embench+embench-iot"
    for name, ms in told.items():
        sources = sorted((own / "src" / name).glob("*.c"))
        main = "#define CPU_MHZ 1\n" + EMBENCH
        includes = [own / "support"]
        defined = ["-O2", "-ffunction-sections", "-DCPU_MHZ=1", "-DWARMUP_HEAT=1"]
        sources = [*sources, own / "support" / "beebsc.c"]
        yield Program(suite, name, core, board, {"": ms * 1000.0}, sources, main, defined, includes, None, flags)


def embench_m4(root: Path) -> Iterator[Program]:
    flags = ("-march=armv7-m", "-mtune=cortex-m4", "-mfloat-abi=soft", "--specs=nano.specs")
    yield from embench(root, "cortexm4-armv7m-gcc-9.2-o2", "embench M4", "cortex-m4", "cortex-m4", flags)


def embench_ri5cy(root: Path) -> Iterator[Program]:
    yield from embench(root, "ri5cy-rv32imc-gcc-9.2-o2", "embench RI5CY", "ri5cy", "riscv32", ("-march=rv32imc",))


# microTVM: STM32L4R5ZI at 120 MHz, weights and code in flash.

MICROTVM = """
#include <stddef.h>
#include <stdint.h>
#include "tvmgen_default.h"
static uint8_t input[{input_bytes}], output[4096];
static uint8_t memory[400000] __attribute__((aligned(16)));
static size_t used;
void *TVMBackendAllocWorkspace(int type, int id, uint64_t bytes, int code, int bits) {{
    void *const found = memory + used;
    used += ((size_t)bytes + 15) / 16 * 16;
    return found;
}}
int TVMBackendFreeWorkspace(int type, int id, void *pointer) {{
    used = (size_t)((uint8_t *)pointer - memory);
    return 0;
}}
int start_and_run(void) {{
    struct tvmgen_default_inputs in = {{input}};
    struct tvmgen_default_outputs out = {{output}};
    for (size_t i = 0; i < sizeof input; ++i) input[i] = (uint8_t)(i * 37);
    harness_begin();
    const int32_t status = tvmgen_default_run(&in, &out);
    harness_end();
    return status;
}}
"""

MICROTVM_MS = {"vww": 337.0, "kws": 144.0, "ic": 389.0, "ad": 11.7}
"""Of mlcommons/tiny_results_v1.0, closed/OctoML, NUCLEO_L4R5ZI."""


def microtvm(root: Path) -> Iterator[Program]:
    own = root / "mlcommons+tiny_results_v1.0" / "closed/OctoML/code/microtvm_native/NUCLEO_L4R5ZI"
    cmsis = root / "ARM-software+CMSIS_5" / "CMSIS"
    for name, ms in MICROTVM_MS.items():
        place = own / name
        if not place.is_dir():
            raise SystemExit(f"{place} is not there")
        cmake = (place / "CMakeLists.txt").read_text()
        size = re.search(r"MAX_DB_INPUT_SIZE=(\d+)", cmake)
        includes = [place / "include", place / "crt_config", place / "crt/include"]
        includes += [cmsis / "NN/Include", cmsis / "Core/Include", cmsis / "DSP/Include"]
        sources = sorted((place / "model/codegen/host/src").glob("*.c"))
        main = MICROTVM.format(input_bytes=size[1] if size else 32768)
        flags = ["-O2", "-ffunction-sections", "-fdata-sections", "-include", "stdint.h"]
        published = {"": ms * 120_000}
        yield Program(
            *("microTVM", name, "cortex-m4f", "cortex-m4", published, sources, main, flags, includes), "STM32L4R5ZI"
        )


# ExecuTorch with CMSIS-NN on an Alif E8: layers of MobileNetV2, one by one.

LAYER = """
#include <string.h>
#include "arm_nnfunctions.h"
enum {{ IN = {size} * {size} * {depth}, OUT = ({size} / {stride}) * ({size} / {stride}) * {out} }};
static int8_t in[IN], out[OUT], weights[{weights}], scratch[1 << 17];
static int32_t bias[{out}], multiplier[{out}], shift[{out}];
int start_and_run(void) {{
    const cmsis_nn_context context = {{scratch, sizeof scratch}};
    const cmsis_nn_per_channel_quant_params quant = {{multiplier, shift}};
    const cmsis_nn_dims in_dims = {{1, {size}, {size}, {depth}}};
    const cmsis_nn_dims out_dims = {{1, {size} / {stride}, {size} / {stride}, {out}}};
    const cmsis_nn_dims bias_dims = {{1, 1, 1, {out}}}, filter_dims = {{{filter}}};
    const {kind}_params params = {{
        128, -128, {multiplied}{{{stride}, {stride}}}, {{{pad}, {pad}}}, {{1, 1}}, {{-128, 127}},
    }};
    for (int i = 0; i < {out}; ++i) multiplier[i] = 1 << 30, shift[i] = -6;
    for (int i = 0; i < IN; ++i) in[i] = (int8_t)(i * 37);
    for (int i = 0; i < {weights}; ++i) weights[i] = (int8_t)(i * 53);
    harness_begin();
    const int status = {function}(
        &context, &params, &quant, &in_dims, in, &filter_dims, weights, &bias_dims, bias, &out_dims, out);
    harness_end();
    return status;
}}
"""

MOBILENET_V2 = (
    ("conv", 224, 3, 32, 2, 13_754_047),
    ("depthwise", 112, 32, 32, 1, 13_715_766),
    ("point", 112, 32, 16, 1, 4_915_937),
    ("point", 112, 16, 96, 1, 24_249_462),
    ("depthwise", 112, 96, 96, 2, 10_286_711),
    ("point", 56, 96, 24, 1, 2_791_555),
    ("point", 56, 24, 144, 1, 10_329_014),
    ("depthwise", 56, 144, 144, 1, 15_319_785),
)
"""pytorch/executorch, issue 17651: kind, size of the image, channels, those of the output, stride, cycles."""


def executorch(root: Path) -> Iterator[Program]:
    own = root / "ARM-software+CMSIS-NN"
    folders = ("ConvolutionFunctions", "NNSupportFunctions", "FullyConnectedFunctions", "TransposeFunctions")
    sources = [
        path
        for folder in folders
        for path in sorted((own / "Source" / folder).glob("*.c"))
        if not re.search("f16|f32|f64", path.name)
    ]
    if not sources:
        raise OSError(f"{own} is not there")
    for number, (kind, size, depth, out, stride, published) in enumerate(MOBILENET_V2, 1):
        taps = 1 if kind == "point" else 9
        is_deep = kind == "depthwise"
        main = LAYER.format(
            size=size,
            depth=depth,
            out=out,
            stride=stride,
            pad=taps // 9,
            weights=taps * out * (1 if is_deep else depth),
            filter=f"1, 3, 3, {out}" if is_deep else f"{out}, {taps // 3 or 1}, {taps // 3 or 1}, {depth}",
            kind="cmsis_nn_dw_conv" if is_deep else "cmsis_nn_conv",
            multiplied="1, " if is_deep else "",
            function="arm_depthwise_conv_wrapper_s8" if is_deep else "arm_convolve_wrapper_s8",
        )
        name = f"{number} {kind} {size}x{size}x{depth} to {out}"
        yield Program(
            *("executorch", name, "cortex-m55", "cortex-m55", {"": float(published)}, sources, main),
            ["-Ofast", "-ffunction-sections", "-fdata-sections"],
            [own / "Include"],
        )


SUITES: dict[str, Callable[[Path], Iterator[Program]]] = {
    "pqm4": pqm4,
    "embench-m4": embench_m4,
    "microtvm": microtvm,
    "pqm3": pqm3,
    "rp2040": rp2040,
    "embench-ri5cy": embench_ri5cy,
    "executorch": executorch,
}


def main(arguments: Sequence[str]) -> None:
    if not arguments:
        raise SystemExit(__doc__)
    root = Path(arguments[0]).resolve()
    chosen = arguments[2].split(",") if "--suite" in arguments else list(SUITES)
    for suite in chosen:
        try:
            programs = list(SUITES[suite](root))
        except OSError as error:
            print(f"{suite}: left out: {error}")
            continue
        show([row for number, program in enumerate(programs) for row in attempted(program, number % 2 == 1)])


def attempted(program: Program, is_kept_aside: bool) -> list[Row]:
    """Its rows; none, with a word, where it cannot be built or does not run."""
    try:
        return [replace(row, is_kept_aside=is_kept_aside) for row in run(program)]
    except tools.ToolError as error:
        print(f"{program.suite} {program.name}: {error}")
        return []


def show(rows: Sequence[Row]) -> None:
    for row in rows:
        name = f"{row.program.name} {row.part}".strip()
        waits = f"{row.spent.code_wait:>12,} {row.spent.data_wait:>12,}" if row.program.chip else ""
        aside = "aside" if row.is_kept_aside else ""
        print(f"{name:32}{row.published:>14,.0f}{row.spent.cycles:>14,.0f}{row.error_percent:>8.1f} {aside:6}{waits}")
    for title, kept in (("chosen on", False), ("kept aside", True)):
        errors = [row.error_percent for row in rows if row.is_kept_aside is kept]
        if errors:
            mean = sum(map(abs, errors)) / len(errors)
            print(f"  {title}: {len(errors)}, mean {mean:.1f} %, from {min(errors):.1f} to {max(errors):.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
