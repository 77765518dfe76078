"""A planted method for the tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SOURCE = Path(__file__).parents[1] / "evidence" / "planted.py"


def _planted() -> ModuleType:
    """The module beside the tests of the evidence, which is in no package."""
    if "planted_support" not in sys.modules:
        spec = importlib.util.spec_from_file_location("planted_support", _SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["planted_support"] = module
    return sys.modules["planted_support"]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A method that the test writes; see ``Planting``."""
    return _planted().Planting(tmp_path, monkeypatch)


@pytest.fixture
def measured():
    """What two runs of the same measurements share; see ``planted.measured``."""
    return _planted().measured
