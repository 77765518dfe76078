"""Stand-ins that the tests of this folder share; see doubles.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_SOURCE = Path(__file__).parent / "doubles.py"


def _doubles() -> ModuleType:
    """The module beside the tests, which is in no package."""
    if "radar_doubles" not in sys.modules:
        spec = importlib.util.spec_from_file_location("radar_doubles", _SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["radar_doubles"] = module
    return sys.modules["radar_doubles"]


@pytest.fixture(autouse=True)
def _no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default judge compares values only: loading sentence embeddings takes seconds."""
    from armillary.context.radar import value_agreement

    monkeypatch.setattr(value_agreement, "default_judge", value_agreement.ValueAgreement)


@pytest.fixture(scope="session")
def doubles() -> ModuleType:
    """``Told``, ``Equal``, ``Vectors`` and ``pages``."""
    return _doubles()
