"""Judges of agreement: the paper's formula by hand, values before embeddings, labels by name."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from armillary import models
from armillary.context.radar import (
    EmbeddingAgreement,
    LLMAgreement,
    NLIAgreement,
    ValueAgreement,
)
from armillary.context.radar.agreement import label_order
from armillary.context.radar.value_agreement import default_judge
from armillary.models import inventory


def test_values_agree_across_notations_and_contradict_otherwise():
    found = ValueAgreement().compare("What share?", ["32 %", "0.32", "15 %", "32 %"])
    M = [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]]
    np.testing.assert_array_equal(found.agreement, M)
    np.testing.assert_array_equal(found.conflict, 1 - np.array(M))


def test_embeddings_alone_take_different_numbers_for_one(doubles):
    alike = doubles.Vectors({"32 %": [1, 0.1], "15 %": [1, 0]})
    blind = EmbeddingAgreement(alike).compare("What share?", ["32 %", "15 %"])
    assert blind.agreement[0, 1] == pytest.approx(1 / np.hypot(1, 0.1))
    assert blind.conflict[0, 1] == pytest.approx(1 - blind.agreement[0, 1])
    seeing = ValueAgreement(alike).compare("What share?", ["32 %", "15 %"])
    assert (seeing.agreement[0, 1], seeing.conflict[0, 1]) == (0, 1)


def test_words_without_a_value_are_told_apart_by_their_cosine(doubles):
    judge = ValueAgreement(
        doubles.Vectors(
            {"car": [1, 0], "automobile": [0.9, np.sqrt(0.19)], "tree": [0.1, np.sqrt(0.99)]}
        )
    )
    found = judge.compare("What is it?", ["car", "automobile", "tree"])
    assert found.agreement[0, 1] == pytest.approx(0.9)
    assert found.conflict[0, 1] == 0
    assert found.agreement[0, 2] == 0
    assert found.conflict[0, 2] == pytest.approx(0.9)


def test_default_judge_uses_embeddings_where_they_are_installed(doubles, monkeypatch):
    monkeypatch.setattr(inventory.Shipped, "path", lambda self: None)
    assert default_judge().name == "values"
    monkeypatch.setattr(inventory.Shipped, "path", lambda self: "somewhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    monkeypatch.setattr(
        models, "encoder", lambda: doubles.Vectors({"car": [1, 0], "auto": [0.9, np.sqrt(0.19)]})
    )
    judge = default_judge()
    assert judge.name == "values+embeddings"
    assert judge.compare("What?", ["car", "auto"]).agreement[0, 1] == pytest.approx(0.9)


def nli(table):
    """A scorer from (answer, answer) -> probabilities."""

    def scores(pairs):
        told = [tuple(p.rsplit("Answer: ", 1)[1] for p in pair) for pair in pairs]
        return np.array([table[pair] for pair in told])

    return NLIAgreement(scores)


def test_nli_in_both_directions():
    table = {
        ("a", "b"): [0.64, 0.3, 0.06],
        ("b", "a"): [0.36, 0.6, 0.04],
        ("a", "c"): [0.05, 0.05, 0.9],
        ("c", "a"): [0.05, 0.05, 0.9],
        ("b", "c"): [0.1, 0.1, 0.8],
        ("c", "b"): [0.3, 0.5, 0.2],
    }
    found = nli(table).compare("Q?", ["a", "b", "c", "a"])
    assert found.agreement[0, 1] == pytest.approx(0.48)  # sqrt(.64 * .36)
    assert found.conflict[0, 1] == pytest.approx(np.sqrt(0.0024))
    assert (found.agreement[0, 2], found.conflict[0, 2]) == (0, pytest.approx(0.9))  # over 0.8
    assert found.conflict[1, 2] == pytest.approx(0.4)  # under 0.8: agreement stays
    assert found.agreement[1, 2] == pytest.approx(np.sqrt(0.03))
    assert (found.agreement[0, 3], found.conflict[0, 3]) == (1, 0)
    np.testing.assert_array_equal(found.agreement, found.agreement.T)


def test_nli_without_a_number_names_the_pair():
    table = {("a", "b"): [np.nan] * 3, ("b", "a"): [0.1, 0.1, 0.8]}
    with pytest.raises(ValueError, match="no probabilities for 'a' and 'b'"):
        nli(table).compare("Q?", ["a", "b"])


def test_label_order_is_read_and_not_assumed():
    assert label_order({0: "CONTRADICTION", 1: "entailment", 2: "Neutral"}) == [1, 2, 0]
    with pytest.raises(ValueError, match=r"labels are \['LABEL_0', 'LABEL_1', 'LABEL_2'\]"):
        label_order({0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})
    with pytest.raises(ValueError, match=r"\['positive', 'negative'\]"):
        label_order({0: "positive", 1: "negative"})


@pytest.mark.slow
def test_nli_checkpoint_is_read_with_its_own_labels(tmp_path):
    """A tiny random BERT whose labels stand in an unusual order."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch").manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "question", "answer", ":", "yes", "no"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=3,
        id2label={0: "contradiction", 1: "neutral", 2: "entailment"},
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    found = NLIAgreement.from_pretrained(str(tmp_path / "model")).compare("Q?", ["yes", "no"])
    both = [("yes", "no"), ("no", "yes")]
    probabilities = []
    for one, two in both:
        inputs = tokenizer(
            f"Question: Q? Answer: {one}", f"Question: Q? Answer: {two}", return_tensors="pt"
        )
        probabilities.append(model(**inputs).logits.softmax(-1).detach().numpy()[0])
    contra = np.sqrt(probabilities[0][0] * probabilities[1][0])
    assert found.conflict[0, 1] == pytest.approx(contra, abs=1e-5)


def test_a_language_model_as_judge():
    def script(conversation):
        text = conversation[-1]["content"]
        if "Answer A: Bob" in text and "Answer B: Robert" in text:
            return "Same."
        return "different" if "Answer B: Robert" in text else "Neither, really"

    chat = models.scripted(script)
    judge = LLMAgreement(chat)
    found = judge.compare("Who?", ["Bob", "Robert", "Alice", "a bird"])
    assert found.agreement[0, 1] == 1
    assert found.conflict[1, 2] == 1
    assert (found.agreement[2, 3], found.conflict[2, 3]) == (0, 0)
    count = len(chat.asked)
    judge.compare("Who?", ["Robert", "Bob"])
    assert len(chat.asked) == count  # asked once a pair


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("same", (1, 0)),
        ("They are the same.", (1, 0)),
        ("Different", (0, 1)),
        ("They differ", (0, 1)),
        ("Not the same", (0, 1)),
        ("They aren’t the same", (0, 1)),
        ("not different", (0, 0)),
        ("neither same nor different", (0, 0)),
        ("no", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_a_model_s_few_words(told, expected):
    from armillary.context.radar.agreement import verdict_of

    assert verdict_of(told) == expected
