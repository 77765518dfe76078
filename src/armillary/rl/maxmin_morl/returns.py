"""Returns of the episodes that a learner has just played, and a reservoir of where they start."""

from __future__ import annotations

from collections import deque

import numpy as np


class Episodes:
    """Running sums of every environment, and the last finished episodes.

    Args:
        environments: N.
        signals: K + L.
        gamma: discount.
        keep: how many finished episodes are remembered.
    """

    def __init__(self, environments: int, signals: int, gamma: float, keep: int) -> None:
        self.gamma = gamma
        self._discounted = np.zeros((environments, signals))
        self._plain = np.zeros((environments, signals))
        self._weight = np.ones(environments)
        self._length = np.zeros(environments, dtype=int)
        self._whole = np.ones(environments, dtype=bool)
        self.discounted: deque[np.ndarray] = deque(maxlen=keep)
        self.plain: deque[np.ndarray] = deque(maxlen=keep)
        self.lengths: deque[int] = deque(maxlen=keep)
        self.starts: deque[np.ndarray] = deque(maxlen=256)

    @property
    def ages(self) -> np.ndarray:
        """(N,) steps since each episode began."""
        return self._length

    def start(self, which: np.ndarray, observations: np.ndarray) -> None:
        """Episodes of these environments begin at these observations."""
        self.starts.extend(np.array(observations[i]) for i in np.flatnonzero(which))

    def partial(self, which: np.ndarray) -> None:
        """These first episodes are cut short: leave them out of the averages."""
        self._whole[which] = False

    def add(
        self, signals: np.ndarray, dones: np.ndarray
    ) -> list[tuple[int, tuple[np.ndarray, np.ndarray, int]]]:
        """One step of all environments; finished whole episodes are filed and sums begin anew.

        Returns:
            Of each finished whole episode: its environment, and (discounted sums, plain sums,
            length).
        """
        self._discounted += self._weight[:, None] * signals
        self._plain += signals
        self._weight *= self.gamma
        self._length += 1
        finished = []
        for i in map(int, np.flatnonzero(dones)):
            episode = (self._discounted[i].copy(), self._plain[i].copy(), int(self._length[i]))
            if self._whole[i]:
                finished.append((i, episode))
                self.discounted.append(episode[0])
                self.plain.append(episode[1])
                self.lengths.append(episode[2])
            self._whole[i] = True
            self._discounted[i] = self._plain[i] = 0.0
            self._weight[i], self._length[i] = 1.0, 0
        return finished

    @property
    def ratio(self) -> float:
        """Discounted weight over length of the last episodes: (1 - gamma^T) / ((1 - gamma) T)."""
        lengths = np.array(self.lengths or [1], dtype=float)
        return float(((1 - self.gamma**lengths) / (1 - self.gamma)).mean() / lengths.mean())
