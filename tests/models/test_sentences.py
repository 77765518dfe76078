"""Sentence vectors: unit length, the model's own pooling, each text encoded once."""

from __future__ import annotations

import numpy as np
import pytest

from armillary import models
from armillary.models import inventory


@pytest.fixture(scope="module")
def encoder() -> models.Encoder:
    if inventory.SENTENCE_MODEL.path() is None:
        pytest.skip(
            f"{inventory.SENTENCE_MODEL.name} is absent: {inventory.SENTENCE_MODEL.command}"
        )
    return models.encoder()


TEXTS = ["a cat", "A kitten plays in the sun.", "stock prices fell on Monday", ""]


def test_vectors_are_unit_and_match_mean_pooling_by_hand(encoder):
    import torch
    import transformers

    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    folder = inventory.SENTENCE_MODEL.require()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    for text, vector in zip(TEXTS, vectors, strict=True):
        tokens = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = network(**tokens).last_hidden_state[0]  # no padding: a plain mean
        mean = states.mean(0)
        np.testing.assert_allclose(vector, (mean / mean.norm()).numpy(), atol=1e-5)


def test_meanings_that_are_near_are_near(encoder):
    cat, kitten, stocks = encoder.encode(TEXTS[:3])
    assert cat @ kitten > cat @ stocks + 0.2


def test_each_text_is_encoded_once(encoder, monkeypatch):
    asked: list[str] = []
    original = encoder._model.encode
    monkeypatch.setattr(
        encoder._model, "encode", lambda texts, **k: (asked.extend(texts), original(texts, **k))[1]
    )
    first = encoder.encode(["one text", "another", "one text"])
    again = encoder.encode(["another", "one text"])
    assert asked == ["one text", "another"]
    np.testing.assert_array_equal(first[[1, 0]], again)
    np.testing.assert_array_equal(first[0], first[2])
    assert encoder.encode([]).shape == (0, 384)
    with pytest.raises(TypeError, match="give a list"):
        encoder.encode("one text")


def test_an_absent_folder_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no folder"):
        models.encoder(tmp_path / "none")
