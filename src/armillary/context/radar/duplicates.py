"""Copies of one text count once: near-duplicates by the Jaccard index of their 5-grams."""

from __future__ import annotations

from collections.abc import Sequence

GRAM = 5
SAME_TEXT = 0.8


def copies(texts: Sequence[str], threshold: float = SAME_TEXT) -> list[int | None]:
    """For each text the index of the earlier text that it copies, or None.

    Args:
        texts: documents in rank order.
        threshold: Jaccard index of character 5-grams (case and white space aside) from which two
            texts are one.
    """
    found: list[int | None] = []
    grams = [_grams(text) for text in texts]
    for i, mine in enumerate(grams):
        originals = (j for j in range(i) if found[j] is None)
        found.append(next((j for j in originals if _jaccard(grams[j], mine) >= threshold), None))
    return found


def _grams(text: str) -> frozenset[str]:
    plain = " ".join(text.lower().split())
    if len(plain) <= GRAM:
        return frozenset((plain,))
    return frozenset(plain[i : i + GRAM] for i in range(len(plain) - GRAM + 1))


def _jaccard(one: frozenset[str], two: frozenset[str]) -> float:
    return len(one & two) / len(one | two)
