"""Copies of one text count once: near-duplicates by the Jaccard index of their 5-grams.

A near-copy counts once only where it answers the same. An edited copy that answers something else
stands beside its original: otherwise a copy with one word changed, ranked above an honest page,
would silence it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

GRAM = 5
SAME_TEXT = 0.8


def copies(
    texts: Sequence[str],
    answers: Sequence[str | None],
    agree: Callable[[str, str], bool],
    threshold: float = SAME_TEXT,
) -> list[int | None]:
    """For each text the index of the earlier text that it copies, or None.

    Args:
        texts: documents in rank order.
        answers: what each alone answers, None where it abstains (such a text copies verbatim
            texts only, since it has no vote to be counted twice).
        agree: whether two answers are the same; asked of near-copies whose answers are written
            differently.
        threshold: Jaccard index of character 5-grams (case and white space aside) from which two
            texts are near-copies.
    """
    return merged(near(texts, threshold), texts, answers, agree)


def merged(
    close: Sequence[Sequence[int]],
    texts: Sequence[str],
    answers: Sequence[str | None],
    agree: Callable[[str, str], bool],
) -> list[int | None]:
    """`copies`, given which earlier texts each text nearly is (`near`)."""
    found: list[int | None] = []
    for i, mine in enumerate(answers):
        earlier = (j for j in close[i] if found[j] is None)
        found.append(next((j for j in earlier if _one(texts, answers, agree, i, j, mine)), None))
    return found


def _one(
    texts: Sequence[str],
    answers: Sequence[str | None],
    agree: Callable[[str, str], bool],
    i: int,
    j: int,
    mine: str | None,
) -> bool:
    """Whether text i counts as text j."""
    theirs = answers[j]
    if texts[i] == texts[j]:
        return True
    if mine is None or theirs is None:
        return False
    return mine == theirs or agree(mine, theirs)


def near(texts: Sequence[str], threshold: float = SAME_TEXT) -> list[list[int]]:
    """For each text the indices of the earlier texts that it nearly is, in their order."""
    grams = [_grams(text) for text in texts]
    return [
        [j for j in range(i) if _jaccard(grams[j], grams[i]) >= threshold]
        for i in range(len(texts))
    ]


def _grams(text: str) -> frozenset[str]:
    plain = " ".join(text.lower().split())
    if len(plain) <= GRAM:
        return frozenset((plain,))
    return frozenset(plain[i : i + GRAM] for i in range(len(plain) - GRAM + 1))


def _jaccard(one: frozenset[str], two: frozenset[str]) -> float:
    common = len(one & two)
    return common / (len(one) + len(two) - common)
