"""English prose that every Python carries: the topics of its language reference.

`pydoc_data.topics` holds some eighty sections as plain text (PSF licence), about 460,000
characters. Their wording belongs to the version of Python that runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping


def python_topics() -> dict[str, str]:
    """The sections by name, in the order of their names, white space within lines made single."""
    from pydoc_data import topics

    return {
        name: re.sub(r"[ \t]+", " ", topics.topics[name]).strip() for name in sorted(topics.topics)
    }


def split(documents: Mapping[str, str], shares: Mapping[str, float]) -> dict[str, list[str]]:
    """Deal whole documents to parts, so that no document is in two of them.

    Args:
        documents: texts by name.
        shares: each part's share of all characters; they are scaled to one.

    Returns:
        The texts of each part. The order of dealing depends on the names alone.

    Raises:
        ValueError: a share is not positive, or a part gets no document.
    """
    if not shares or min(shares.values()) <= 0:
        raise ValueError(f"shares={dict(shares)}: each must be positive")
    order = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    length = sum(len(text) for text in documents.values())
    whole = sum(shares.values())
    found: dict[str, list[str]] = {part: [] for part in shares}
    filled = dict.fromkeys(shares, 0)
    for name in order:
        text = documents[name]
        # To the part that lacks most of its share.
        part = max(shares, key=lambda p: shares[p] / whole - filled[p] / max(1, length))
        found[part].append(text)
        filled[part] += len(text)
    empty = [part for part, texts in found.items() if not texts]
    if empty:
        raise ValueError(f"{len(documents)} documents are too few: nothing is left for {empty}")
    return found
