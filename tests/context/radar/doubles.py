"""Stand-ins for the tests: readers that are told what texts say, judges that compare strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from armillary.context.radar.agreement import Agreement


class Told:
    """A reader that answers with what follows the last colon; nothing there is an abstention."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def read(self, question: str, text: str) -> str | None:
        self.calls.append((question, text))
        return text.rsplit(":", 1)[-1].strip() or None


class Equal:
    """Answers agree when their texts are equal, and contradict otherwise."""

    name = "equal"

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        texts = np.array(answers)
        M = (texts[:, None] == texts[None, :]).astype(float)
        return Agreement(M, 1.0 - M)


class Vectors:
    """An embedder with given vectors."""

    def __init__(self, rows: Mapping[str, Sequence[float]]) -> None:
        self._rows = rows

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self._rows[text] for text in texts], dtype=float)


def pages(*answers: str, step: int = 0) -> list[str]:
    """Documents that are unlike one another and state these answers."""
    rng = np.random.default_rng(step)
    words = ["".join(rng.choice(list("abcdefghijklm"), 9)) for _ in range(6 * len(answers))]
    return [f"{' '.join(words[6 * i : 6 * i + 6])}: {a}" for i, a in enumerate(answers)]
