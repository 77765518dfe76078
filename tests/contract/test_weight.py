"""Importing the package and asking for help stay light."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

HEAVY = ("torch", "jax", "transformers", "pandas", "sklearn")


@pytest.mark.parametrize("command", ["import armillary", "armillary --help"])
def test_nothing_heavy_is_loaded(command):
    if command.startswith("import"):
        code = "import armillary"
    else:
        code = "from armillary.cli.root import run; run(['--help'])"
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\n{code}\nprint('LOADED', [m for m in {HEAVY!r} if m in sys.modules])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert loaded.strip().endswith("LOADED []")


def seconds(*arguments: str) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - start)
    return best


def test_import_and_help_take_little_over_a_bare_interpreter():
    # The one absolute time in the tests: a promise to users of the command line (0.35 s, best of
    # five, as the sum of both in one process start each).
    bare = seconds("-c", "pass")
    assert seconds("-c", "import armillary") - bare <= 0.35
    assert seconds("-m", "armillary", "--help") - bare <= 0.35
