"""Imports run downwards only."""

from __future__ import annotations

import ast
from pathlib import Path

import armillary
from armillary import catalog

PACKAGE = Path(str(armillary.__file__)).parent

#: Floor of each part; a module may import from its own floor or below.
FLOORS = {
    "catalog": 0,
    "errors": 0,
    "lazy": 0,
    "places": 0,
    "models": 1,
    "corpora": 1,
    "answers": 1,
    "output": 1,
    "sandbox": 1,
    "native": 1,
    "evidence": 2,
    **dict.fromkeys(catalog.FIELDS, 3),
    "report": 4,
    "cli": 5,
    "__main__": 5,
}


def part(module: str) -> str | None:
    """The part of the package that a dotted name belongs to."""
    names = module.split(".")
    return names[1] if names[0] == "armillary" and len(names) > 1 else None


def test_every_part_has_a_floor():
    parts = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__init__", "__pycache__", "_committed", "py"} <= set(FLOORS) | {"py"}


def test_imports_run_downwards():
    upwards = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "armillary":
                names = [f"armillary.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                other = part(name)
                if other in FLOORS and FLOORS[other] > FLOORS[own]:
                    upwards.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert upwards == []
