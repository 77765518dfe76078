"""Texts as sequences of token ids, all of one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def sequences(
    tokenizer: Any, texts: Sequence[str], length: int, count: int | None = None, seed: int = 0
) -> Tensor:
    """Cut documents into sequences of one length; what is left of a document is dropped.

    Args:
        tokenizer: of transformers.
        texts: documents; none is joined to another.
        length: tokens of a sequence.
        count: draw so many at random; None: all, in order.
        seed: of the draw.

    Returns:
        (N, length) int64.

    Raises:
        ValueError: there are fewer than ``count`` sequences, or none.
    """
    import torch

    rows: list[list[int]] = []
    tokens = 0
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        tokens += len(ids)
        rows += [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    wanted = count or 1
    if len(rows) < wanted:
        raise ValueError(
            f"the text has {tokens} tokens in {len(texts)} documents, {len(rows)} whole sequences "
            f"of {length}; {wanted} are needed: give more text or a smaller length"
        )
    found = torch.tensor(rows, dtype=torch.int64)
    if count is None:
        return found
    generator = torch.Generator().manual_seed(seed)
    return found[torch.randperm(len(found), generator=generator)[:count]]
