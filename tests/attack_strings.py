"""Texts that try to be more than text, in every language that something is emitted in."""

from __future__ import annotations

MARK = "HARM"
"""What the attacks would have run. It may be shown, but never where it means anything."""

ATTACKS = (
    "*/",
    f"*/ int {MARK}(void); /*",
    f'*/ system("{MARK}") /*',
    f"\n#include <{MARK}.h>\n",
    f"\\\n#error {MARK}",
    f"??/\n#error {MARK}",
    f'"><script>{MARK}()</script>',
    f"</script><img src=x onerror='{MARK}()'>",
    f"$(touch {MARK}) `touch {MARK}` ; touch {MARK}",
    "%s%n{0}{name}",
    f"${{{MARK}}} @{MARK}@",
    f"]]><!-- {MARK} &",
    f"é漢\u2028\u202e\u2029 {MARK}",
    f"a\x00b\x1b[31m\r\n#error {MARK}",
    "../../" + MARK,
    "/",
    "*",
    "\\",
)


def attack(number: int) -> str:
    """One of them, and its number, so that names stay different."""
    return f"{ATTACKS[number % len(ATTACKS)]} {number}"
