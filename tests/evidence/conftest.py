"""A planted method, and stores on the databases that can hold one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _beside(name: str) -> ModuleType:
    """A module beside the tests of the evidence, which are in no package."""
    known = f"{name}_support"
    if known not in sys.modules:
        path = Path(__file__).parents[1] / "evidence" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(known, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[known] = module
    return sys.modules[known]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A method that the test writes; see ``Planting``."""
    return _beside("planted").Planting(tmp_path, monkeypatch)


@pytest.fixture
def measured():
    """What two runs of the same measurements share; see ``planted.measured``."""
    return _beside("planted").measured


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of this session; see ``server.Server``."""
    server = _beside("server")
    if reason := server.reason_to_skip():
        pytest.skip(reason)
    pytest.importorskip("psycopg", reason="needs the extra 'postgres'")
    running = server.Server()
    yield running
    running.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be made: one of each database."""
    if request.param == "sqlite":
        return str(tmp_path / "s.sqlite")
    return request.getfixturevalue("postgres").new_database()
