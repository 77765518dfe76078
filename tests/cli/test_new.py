"""The skeleton passes lint, runs, and its evidence fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import armillary
from armillary.cli import new, root
from armillary.errors import ExitCode

PACKAGE = Path(str(armillary.__file__)).parent
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package's source and of the linters' settings."""
    shutil.copytree(
        PACKAGE,
        tmp_path / "src" / "armillary",
        ignore=shutil.ignore_patterns("__pycache__", "_committed"),
    )
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    # An editable install finds its own source before PYTHONPATH is asked.
    (tmp_path / "src" / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path = [f for f in sys.meta_path if 'armillary' not in type(f).__module__]\n"
    )
    return tmp_path


def python(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )


def test_skeleton_passes_lint_and_its_tests_and_its_evidence_fails(checkout):
    assert root.run(["new", "graph/new-ring", "--root", str(checkout), "--quiet"]) == ExitCode.OK
    written = ["src/armillary/graph", "tests", "examples"]
    for check in (["check"], ["format", "--check"]):
        result = python(checkout, "-m", "ruff", *check, *written, "src/armillary/catalog.py")
        assert result.returncode == 0, result.stdout
    listed = python(checkout, "-m", "armillary", "list", "--json")
    assert "new-ring" in [entry["slug"] for entry in json.loads(listed.stdout)]
    tests = python(checkout, "-m", "pytest", "-q", "tests", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout
    assert python(checkout, "examples/new_ring.py").stdout.strip() == "2.0"
    samples = checkout / "samples.txt"
    samples.write_text("1\n5\n")
    run = python(checkout, "-m", "armillary", "new-ring", "run", str(samples))
    assert run.stdout.strip() == "3.0"
    bench = python(
        checkout, "-m", "armillary", "bench", "new-ring", "--profile", "quick", "--json", "-"
    )
    assert bench.returncode == ExitCode.OK, bench.stderr
    (claim,) = json.loads(bench.stdout)
    assert claim["verdict"] == "fails"


def test_nothing_is_overwritten(checkout, capsys):
    assert root.run(["new", "graph/ring", "--root", str(checkout), "--quiet"]) == ExitCode.OK
    mark = checkout / "examples" / "ring.py"
    mark.write_text("mine")
    assert root.run(["new", "graph/ring", "--root", str(checkout)]) == ExitCode.BAD_INPUT
    assert "exists already" in capsys.readouterr().err
    assert mark.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ring", "the field is one of"),
        ("grahp/ring", "the field is one of"),
        ("graph/", "lower-case words"),
        ("graph/New_Ring", "lower-case words"),
        ("graph/../../etc", "lower-case words"),
    ],
)
def test_bad_names_are_told(checkout, capsys, name, told):
    assert root.run(["new", name, "--root", str(checkout)]) == ExitCode.BAD_INPUT
    assert told in capsys.readouterr().err


def test_a_folder_that_is_no_checkout_is_told(tmp_path, capsys):
    assert root.run(["new", "graph/ring", "--root", str(tmp_path)]) == ExitCode.BAD_INPUT
    assert "no checkout of Armillary" in capsys.readouterr().err


def test_estimator_name_joins_the_words():
    assert new.Names("rl", "maxmin-morl").estimator == "MaxminMorl"
