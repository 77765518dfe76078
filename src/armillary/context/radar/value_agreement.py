"""The default judge of answers: values first, then names, then meaning; works offline."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

# Names of currencies and dates are read with these; their absence is told when this is imported.
import babel  # noqa: F401
import dateutil  # noqa: F401

from armillary.answers import same
from armillary.context.radar.agreement import Agreement, Embedder, pairwise
from armillary.models import inventory


def default_judge() -> ValueAgreement:
    """Values, and sentence embeddings for what has none where the extra ``models`` is installed.

    The encoder is loaded when two answers first need it.
    """
    installed = inventory.SENTENCE_MODEL.path() is not None
    if installed and importlib.util.find_spec("sentence_transformers") is not None:
        return ValueAgreement(_EncoderWhenNeeded())
    return ValueAgreement()


class _EncoderWhenNeeded:
    """The sentence encoder of this machine, loaded at the first text."""

    def __init__(self) -> None:
        self._encoder: Embedder | None = None

    def encode(self, texts: Sequence[str]) -> Any:
        if self._encoder is None:
            from armillary import models

            self._encoder = models.encoder()
        return self._encoder.encode(texts)


class ValueAgreement:
    """Numbers, units, dates, currencies and names as values; embeddings only for what has no value.

    Equal answers agree by 1 (or by their cosine, where only an embedding says so). Different values
    contradict by 1; other different answers by one minus their cosine, and do not agree.

    Args:
        encoder: for answers without a value; without one, other words are another answer.
    """

    def __init__(self, encoder: Embedder | None = None) -> None:
        self.encoder = encoder
        self.name = "values" if encoder is None else "values+embeddings"
        self._known: dict[tuple[str, str, str], tuple[float, float]] = {}

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        """M and C of n answers; each pair of texts is judged once."""
        return pairwise(len(answers), lambda i, j: self._pair(question, answers[i], answers[j]))

    def _pair(self, question: str, one: str, two: str) -> tuple[float, float]:
        if one == two:
            return 1.0, 0.0
        key = (question, min(one, two), max(one, two))
        if key not in self._known:
            self._known[key] = self._judge(*key)
        return self._known[key]

    def _judge(self, question: str, one: str, two: str) -> tuple[float, float]:
        verdict = same(one, two, encoder=self.encoder, question=question)
        if verdict.same:
            return min(max(float(verdict.score), 0.0), 1.0), 0.0
        if verdict.why == "embedding":
            return 0.0, 1.0 - min(max(float(verdict.score), 0.0), 1.0)
        return 0.0, 1.0
