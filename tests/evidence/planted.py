"""A method made for the tests: its evidence module is written into a folder and put on the path."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from armillary import evidence
from armillary.evidence.store import Store

SOURCE = Path(str(evidence.__file__)).parents[2]

CARD = """
from armillary.catalog import Card, Paper
CARD = Card("{slug}", "theory", "A planted method", "Nothing.", Paper("T", "A", "V"), ("better",))
"""

HEAD = """
import math, os, pathlib, signal, sys, time
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

def say(text):
    # A trace that the test can read; one write a line, so that processes do not mix.
    with open(os.environ["PLANTED_LOG"], "a") as file:
        file.write(str(text) + "\\n")

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


class Planting:
    """A method made for one test.

    Attributes:
        folder: where its package lies.
        store: a store of its own.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder / "method", monkeypatch
        self.store = folder / "evidence.sqlite"
        self.log = folder / "log.txt"
        self.folder.mkdir()
        monkeypatch.setenv("ARMILLARY_BUSY_SECONDS", "off")
        monkeypatch.setenv("PLANTED_LOG", str(self.log))

    def write(self, body: str = PLAIN, slug: str = "planted") -> str:
        """Write the method's package and announce it to other processes; gives its name."""
        name = "planted_" + slug.replace("-", "_")
        package = self.folder / name
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text('"""Planted."""\n', "utf-8")
        (package / "card.py").write_text(CARD.format(slug=slug), "utf-8")
        (package / "evidence.py").write_text(HEAD + textwrap.dedent(body), "utf-8")
        information = self.folder / f"{name}-1.0.dist-info"
        information.mkdir(exist_ok=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (information / "entry_points.txt").write_text(f"[armillary.methods]\n{slug} = {name}\n")
        return name

    def here(self, body: str = PLAIN, slug: str = "planted") -> None:
        """Write the method and make it the only one of this process's catalogue."""
        package = self.write(body, slug)
        self._monkeypatch.syspath_prepend(str(self.folder))
        for module in [m for m in sys.modules if m == package or m.startswith(package + ".")]:
            self._monkeypatch.delitem(sys.modules, module)
        importlib.invalidate_caches()
        self._monkeypatch.setattr("armillary.catalog.BUILT_IN", (package,))

    def run(self, **given: Any) -> evidence.runner.Result:  # pyright: ignore
        """`evidence.run` of the method into its store, one worker unless told otherwise."""
        return evidence.run(
            "planted", **({"store": self.store, "progress": False, "workers": 1} | given)
        )

    def rows(self, profile: str = "quick") -> list[evidence.Row]:
        """What the latest finished run has left in the store."""
        with Store(self.store, read_only=True) as store:
            bundle = store.bundle("planted", profile)
        assert bundle is not None
        return bundle.rows

    def logged(self) -> list[str]:
        """What contenders have written by `say`."""
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []

    def environment(self, **more: str) -> dict[str, str]:
        """Variables with which another process finds the method."""
        path = os.pathsep.join((str(SOURCE), str(self.folder)))
        return {**os.environ, "PYTHONPATH": path, **more}

    def command(self, *arguments: str) -> list[str]:
        """The command line of `armillary bench planted` into the method's store."""
        return [
            sys.executable, "-m", "armillary", "bench", "planted", "--store", str(self.store),
            *arguments,
        ]  # fmt: skip

    def bench(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`armillary bench planted` in a process of its own."""
        return subprocess.run(
            self.command(*arguments),
            capture_output=True, text=True, env=self.environment(**more), timeout=120,
        )  # fmt: skip


def measured(rows: list[evidence.Row]) -> list[tuple]:
    """What two runs of the same measurements share: everything but how long they took."""
    return [
        (r.experiment, r.case, r.seed, r.contender, r.repeat, r.status, r.kind, dict(r.metrics))
        for r in rows
    ]
