"""What surrounds the code: how build systems find it, and what a firmware engineer has to know."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from diagmem import __version__
from diagmem.backends.c.literals import comment
from diagmem.backends.c.program import Program
from diagmem.backends.c.steps import sequence_bytes
from diagmem.backends.c.text import rendered


def origin(program: Program, name: str, model_sha256: str | None) -> str:
    """The comment at the start of every file."""
    bound = "" if program.lower_bound_bytes is None else f" (lower bound {program.lower_bound_bytes})"
    digest = "" if model_sha256 is None else f", sha256 {model_sha256}"
    return f"""\
/* {name}: made by diagmem {__version__}; do not edit.
 * model: {comment(program.graph.name)}{digest}
 * kernels: {program.kernels}; arena: {program.arena_bytes} bytes{bound} */
"""


ARDUINO = (
    *("apollo3", "esp32", "mbed", "mbed_giga", "mbed_nano", "mbed_nicla", "mbed_opta", "mbed_portenta", "mbed_rp2040"),
    *("nrf52", "renesas_portenta", "renesas_uno", "rp2040", "sam", "samd", "silabs", "stm32", "teensy", "zephyr"),
)
"""Arduino's names of architectures whose int has 32 bits and whose constants stay in flash: neither AVR nor ESP8266."""

PLATFORMIO = (
    *("atmelsam", "espressif32", "freescalekinetis", "gd32v", "maxim32", "native", "nordicnrf52", "nxpimxrt", "nxplpc"),
    *("raspberrypi", "renesas-ra", "sifive", "siliconlabsefm32", "ststm32", "teensy"),
)
"""PlatformIO's names of the same."""


def arduino(name: str, what: str) -> str:
    return f"""\
name={name}
version={__version__}
author=diagmem
maintainer=diagmem
sentence={what} as C.
paragraph=Made by diagmem: static memory, no dependencies.
category=Data Processing
url=
architectures={",".join(ARDUINO)}
includes={name}.h
"""


def platformio(name: str, what: str) -> str:
    about = {
        "name": name,
        "version": __version__,
        "description": f"{what} as C, made by diagmem",
        "frameworks": "*",
        "platforms": list(PLATFORMIO),
        "headers": f"{name}.h",
    }
    return json.dumps(about, indent=2) + "\n"


def readme(program: Program, name: str, weights_bytes: int) -> str:
    """What a firmware engineer has to know."""
    given: dict[str, Any] = {
        "weights_bytes": weights_bytes,
        "forms": Counter(storage.form for storage in program.by_rows.values()),
        "sequence_bytes": sequence_bytes,
    }
    return rendered("README.md.j2", program, name, **given)
