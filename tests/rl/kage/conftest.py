"""What the tests share: nothing here compiles twice."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")
pytest.importorskip("gymnax")

from armillary.rl.kage.engine import Kage, KageParams
from armillary.rl.kage.pairs import any_config


@pytest.fixture(scope="session")
def kage() -> Kage:
    """The plainest look."""
    return Kage(any_config().caps)


@pytest.fixture(scope="session")
def params(kage) -> KageParams:
    return kage.params(any_config())
