"""The documentation says what is true of the tree."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from armillary import catalog
from armillary.cli.root import COMMANDS

ROOT = Path(__file__).parents[2]


def test_every_path_on_the_map_exists():
    page = (ROOT / "docs" / "map.md").read_text("utf-8")
    named = re.findall(r"`((?:src|tests|scripts|examples|evidence)/[^`]*|[a-z]+\.txt)`", page)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_module_of_the_axis_is_on_the_map():
    page = (ROOT / "docs" / "map.md").read_text("utf-8")
    modules = (ROOT / "src" / "armillary" / "evidence").glob("[a-z]*.py")
    assert [path.name for path in modules if f"/{path.name}`" not in page] == []


def test_every_module_says_what_it_is_for():
    for path in (ROOT / "src" / "armillary").rglob("*.py"):
        assert path.read_text("utf-8").lstrip().startswith('"""'), f"{path} has no docstring"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_to_files_lead_somewhere(page):
    text = (ROOT / page).read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_commands_named_in_the_docs_exist():
    known = {*COMMANDS, *(method.card.slug for method in catalog.methods())}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.splitlines():
                words = line.split("#")[0].replace(".venv/bin/", "").split()
                if words and words[0] == "armillary" and not words[1].startswith("-"):
                    assert words[1] in known, f"{page}: {line}"


def test_tables_of_verdicts_are_up_to_date():
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "readme_table.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_a_claim_that_fails_shows_a_rival_by_which_it_does():
    path = ROOT / "scripts" / "readme_table.py"
    spec = importlib.util.spec_from_file_location("readme_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    near = {"condition": 0, "over": "near", "status": "unclear", "tightest": True}
    beaten = {"condition": 0, "over": "beaten", "status": "missed", "tightest": False}
    other = {"condition": 1, "over": "other", "status": "met", "tightest": True}
    claim = {"verdict": "fails", "conditions": [near, beaten, other]}
    assert module.deciding(claim) == [beaten, other]
    assert module.deciding(claim | {"verdict": "unclear"}) == [near, other]


def test_every_method_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for method in catalog.methods():
        assert f"methods/{method.card.slug}.md" in navigation
