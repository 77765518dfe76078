"""A method made for the tests: its evidence module is written into a folder and put on the path."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path

CARD = """
from armillary.catalog import Card, Paper
CARD = Card("{slug}", "theory", "A planted method", "Nothing.", Paper("T", "A", "V"), ("better",))
"""

HEAD = """
import math, os, signal, sys, time
from armillary import evidence
from armillary.evidence import (
    Ablation, Artefact, Case, Claim, Condition, Contender, Experiment, Metric, Need, Stat, Timing,
)

def setup(cell):
    return {"seed": cell.seed, "n": cell.case.x.get("n", 1.0)}

def ours(work, cell):
    return {"error": 1.0 / (2 + work["seed"]) + 0.1 * work["n"]}

def peer(work, cell):
    return {"error": 2.0 / (2 + work["seed"]) + 0.2 * work["n"]}

BETTER = Claim(
    "better", "The error is at most 0.9 of the peer's.", "nothing",
    (Condition(Stat("error", over=("peer",), form="ratio", pool="geomean"), at_most=0.9),),
)

def experiment(id="main", **given):
    settings = dict(
        cases={p: (Case("one", {"n": 1.0}), Case("two", {"n": 2.0})) for p in ("smoke", "quick")},
        setup=setup,
        contenders=(Contender("ours", ours), Contender("peer", peer)),
        metrics=(Metric("error"),),
        claims=(BETTER,),
        seeds={"smoke": 1, "quick": 3},
    )
    return Experiment(id=id, **(settings | given))
"""

PLAIN = "EXPERIMENTS = (experiment(),)"


def plant(monkeypatch, folder: Path, body: str = PLAIN, slug: str = "planted") -> str:
    """Write the method, put it into the catalogue of this process; gives its package's name."""
    package = write(folder, body, slug)
    monkeypatch.syspath_prepend(str(folder))
    for module in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
        monkeypatch.delitem(sys.modules, module)
    importlib.invalidate_caches()
    monkeypatch.setattr("armillary.catalog.BUILT_IN", (package,))
    return package


def write(folder: Path, body: str = PLAIN, slug: str = "planted") -> str:
    """Write the method's package below a folder; gives its name."""
    name = "planted_" + slug.replace("-", "_")
    package = folder / name
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text('"""Planted."""\n', "utf-8")
    (package / "card.py").write_text(CARD.format(slug=slug), "utf-8")
    (package / "evidence.py").write_text(HEAD + textwrap.dedent(body), "utf-8")
    return name


def announce(folder: Path, body: str = PLAIN, slug: str = "planted") -> str:
    """Write the method as a package that other processes find by its entry point, with ``folder``
    on their path."""
    name = write(folder, body, slug)
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[armillary.methods]\n{slug} = {name}\n")
    return name
