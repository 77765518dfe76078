"""The same checks on every method of the catalogue."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from armillary import catalog

ROOT = Path(__file__).parents[2]
METHODS = catalog.methods()
pytestmark = pytest.mark.skipif(not METHODS, reason="the catalogue is empty")

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.card.slug)

HEAVY = ("torch", "jax", "transformers", "pandas", "sklearn", "scipy", "numpy", "sqlalchemy")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def armillary(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "armillary", *arguments], capture_output=True, text=True, timeout=300
    )


def public_names(method: catalog.Method) -> list[str]:
    return list(importlib.import_module(method.package).__all__)


@each_method
def test_card_is_complete(method):
    card = method.card
    assert card.field in catalog.FIELDS
    assert method.package == f"armillary.{card.field}.{card.slug.replace('-', '_')}"
    for text in (card.title, card.gift, card.paper.title, card.paper.authors, card.paper.venue):
        assert text.strip()
        assert "\n" not in text
    assert len(set(card.claims)) == len(card.claims) > 0


@each_method
def test_card_names_the_claims_of_the_evidence(method):
    experiments = importlib.import_module(method.evidence_module).EXPERIMENTS
    claims = [claim.id for experiment in experiments for claim in experiment.claims]
    assert sorted(claims) == sorted(method.card.claims)


@each_method
def test_folder_has_the_shape_of_all_others(method):
    folder = Path(str(importlib.import_module(method.package).__file__)).parent
    present = {path.name for path in folder.glob("*.py")}
    assert {"__init__.py", "card.py", "evidence.py", "command.py"} < present


@each_method
def test_no_method_imports_another(method):
    folder = Path(str(importlib.import_module(method.package).__file__)).parent
    others = [other.package for other in METHODS if other.package != method.package]
    for path in folder.rglob("*.py"):
        for name in imported_modules(path):
            assert not any(name == o or name.startswith(o + ".") for o in others), f"{path}: {name}"
            assert not name.startswith(("armillary.cli", "armillary.report")), f"{path}: {name}"


def imported_modules(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names


@each_method
def test_importing_package_card_and_command_loads_nothing_heavy(method):
    code = (
        f"import sys, {method.package}, {method.package}.card, {method.command_module}\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


@each_method
def test_public_names_resolve_and_are_documented(method):
    package = importlib.import_module(method.package)
    assert (package.__doc__ or "").strip()
    for name in public_names(method):
        assert (getattr(package, name).__doc__ or "").strip(), f"{name} has no docstring"


@each_method
def test_help_shows_an_example(method):
    shown = armillary(method.card.slug, "--help")
    assert shown.returncode == 0
    assert f"armillary {method.card.slug}" in shown.stdout
    assert "Example" in shown.stdout


@each_method
def test_missing_extra_is_told_in_one_line(method):
    if not method.card.modules:
        pytest.skip("needs no extra")
    roots = sorted({name.split(".")[0] for name in method.card.modules})
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {roots!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import {method.package} as package
from armillary.errors import MissingExtra
told = 0
for name in package.__all__:
    try:
        getattr(package, name)
    except MissingExtra as error:
        assert str(error).startswith(
            "{method.card.slug} needs the extra '{method.card.extra}': "
            "pip install 'armillary[{method.card.extra}]'"), error
        told += 1
assert told, "no public name needs the extra"
from armillary.cli.root import run
assert run(["{method.card.slug}", "--help"]) == 0
assert run(["list"]) == 0
"""
    result = python(code)
    assert result.returncode == 0, result.stderr


@each_method
def test_docs_page_answers_what_users_ask(method):
    page = (ROOT / "docs" / "methods" / f"{method.card.slug}.md").read_text("utf-8")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    for wanted in ("When to use it, and when not", "How", "Evidence", "Limits", "Design notes"):
        assert wanted in headings, f"no section {wanted!r} among {headings}"
    assert f"<!-- evidence:{method.card.slug} -->" in page


@each_method
def test_example_runs(method, tmp_path):
    example = ROOT / "examples" / f"{method.card.slug.replace('-', '_')}.py"
    assert len(example.read_text("utf-8").splitlines()) < 60
    result = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@each_method
def test_smoke_evidence_measures_every_claim_without_a_verdict(method, tmp_path):
    report = tmp_path / "claims.json"
    result = armillary(
        "bench",
        method.card.slug,
        "--profile",
        "smoke",
        "--store",
        f"sqlite:///{tmp_path / 'store.sqlite'}",
        "--json",
        str(report),
    )
    assert result.returncode == 0, result.stderr
    claims = json.loads(report.read_text("utf-8"))
    assert {claim["claim"] for claim in claims} == set(method.card.claims)
    for claim in claims:
        assert claim["verdict"] in (None, "none")
        assert claim["errors"] == []


#: Methods whose pages say that no full run stands behind them yet.
NOT_MEASURED_YET = {"gemq", "tbik"}


@each_method
def test_committed_evidence_is_of_this_method_and_complete(method):
    from armillary.evidence import bundle

    found = bundle.committed(method.card.slug)
    if method.card.slug in NOT_MEASURED_YET:
        assert found is None, f"{method.card.slug} is measured: take it out of NOT_MEASURED_YET"
        return
    assert found is not None, "no committed evidence: armillary bench --profile full"
    assert found.slug == method.card.slug
    assert found.profile == "full"
    assert {claim["claim"] for claim in found.claims} == set(method.card.claims)
    assert all(claim["verdict"] for claim in found.claims)
    experiments = {row.experiment for row in found.rows}
    described = found.environment["experiments"].items()
    assert experiments == {name for name, about in described if about["cases"]}
