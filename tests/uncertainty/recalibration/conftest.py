"""The synthetic problem of the tests: a base model whose spread is too small where x > 0."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest


@dataclasses.dataclass(frozen=True)
class Problem:
    mean: np.ndarray
    std: np.ndarray
    y: np.ndarray

    @property
    def pair(self) -> tuple[np.ndarray, np.ndarray]:
        return self.mean, self.std


def draw(n: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, n)
    spread = 0.2 + 0.3 * np.abs(x)
    y = np.sin(2 * x) + spread * rng.standard_normal(n)
    y += np.where(x > 0, 1.2 * rng.choice([-1.0, 1.0], n), 0.0)
    return Problem(np.sin(2 * x), spread * np.where(x > 0, 0.35, 0.6), y)


@pytest.fixture(scope="session")
def calibration() -> Problem:
    return draw(400, 1)


@pytest.fixture(scope="session")
def held_out() -> Problem:
    return draw(400, 2)


@pytest.fixture(scope="session")
def many() -> Problem:
    """More rows than the dense solve takes by itself."""
    return draw(4100, 5)
