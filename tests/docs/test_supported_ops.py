"""The table of supported operations is what the backends say."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.console import ROOT


def test_the_table_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "supported-ops", "--check"], check=False)
    assert done.returncode == 0, "run tools/supported-ops"
