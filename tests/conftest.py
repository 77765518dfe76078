"""What all tests share: the user's own folders are never touched."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMILLARY_HOME", str(tmp_path_factory.mktemp("home")))
