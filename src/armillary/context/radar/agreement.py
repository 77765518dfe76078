"""Do two answers agree, and do they contradict each other? Judges behind one protocol.

The default, `ValueAgreement`, has a module of its own. `NLIAgreement` is the paper's;
`LLMAgreement` asks a language model; `EmbeddingAgreement` sees meaning only and is here to be
compared with (it takes "32 %" and "15 %" for one answer).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from armillary.errors import require

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.models.conversation import Chat

#: Contradiction above which two answers cannot agree.
CONTRADICTS = 0.8


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How n answers stand to one another.

    Attributes:
        agreement: M, (n, n) in [0, 1], symmetric, ones on the diagonal.
        conflict: C, (n, n) in [0, 1], symmetric, zeros on the diagonal.
    """

    agreement: Float[np.ndarray, "n n"]
    conflict: Float[np.ndarray, "n n"]


class AnswerAgreement(Protocol):
    """A judge of answers.

    Attributes:
        name: what a store is bound to: beliefs of one judge mean nothing to another.
    """

    name: str

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        """M and C of n >= 1 answers to a question."""
        ...


class Embedder(Protocol):
    """What turns texts into vectors; `armillary.models.encoder` gives one."""

    def encode(self, texts: Sequence[str]) -> Any:
        """(n, width) vectors of n texts."""
        ...


def pairwise(n: int, pair: Callable[[int, int], tuple[float, float]]) -> Agreement:
    """The matrices of a judge of single pairs: ``pair(i, j)`` with i < j gives M_ij and C_ij."""
    M, C = np.eye(n), np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            M[i, j], C[i, j] = pair(i, j)
            M[j, i], C[j, i] = M[i, j], C[i, j]
    return Agreement(M, C)


class EmbeddingAgreement:
    """Cosine of sentence embeddings alone. Do not use it where answers are numbers.

    Args:
        encoder: sentence embeddings.
    """

    def __init__(self, encoder: Embedder) -> None:
        self.encoder = encoder
        self.name = "embeddings"

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        """M is the cosine, at least 0; C is one minus it."""
        vectors = np.asarray(self.encoder.encode(list(answers)), dtype=float)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        cosine = np.clip(vectors @ vectors.T, 0.0, 1.0)
        cosine = (cosine + cosine.T) / 2
        np.fill_diagonal(cosine, 1.0)
        return Agreement(cosine, 1.0 - cosine)


#: Probabilities of entailment, neutrality and contradiction, (pairs, 3), for (premise, hypothesis).
PairScores = Callable[[Sequence[tuple[str, str]]], "Float[np.ndarray, 'pairs 3']"]


class NLIAgreement:
    """Natural-language inference in both directions, as in the paper.

    contra_ij = sqrt(pc_ij pc_ji), entail_ij = sqrt(pe_ij pe_ji); C = contra, and M = entail unless
    contra > 0.8, then M = 0.

    Args:
        scores: gives the three probabilities of each pair.
        name: what the beliefs are bound to.
    """

    def __init__(self, scores: PairScores, *, name: str = "nli") -> None:
        self._scores, self.name = scores, name

    @classmethod
    def from_pretrained(cls, path: str, *, batch_size: int = 16) -> NLIAgreement:
        """A Hugging Face sequence-classification checkpoint on this machine.

        Args:
            path: its folder, or its name in the local cache.
            batch_size: pairs scored together.

        Raises:
            ValueError: its labels are not entailment, neutral and contradiction.
            MissingExtra: transformers or torch is not installed.
        """
        torch: Any = require("torch", what="radar", extra="models")
        transformers: Any = require("transformers", what="radar", extra="models")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            path, local_files_only=True
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        order = label_order(model.config.id2label)

        def scores(pairs: Sequence[tuple[str, str]]) -> Float[np.ndarray, "pairs 3"]:
            found = []
            for at in range(0, len(pairs), batch_size):
                premises, hypotheses = zip(*pairs[at : at + batch_size], strict=True)
                inputs = tokenizer(
                    list(premises), list(hypotheses), truncation=True, padding=True,
                    return_tensors="pt",
                )  # fmt: skip
                with torch.inference_mode():
                    found.append(model(**inputs).logits.double().softmax(-1)[:, order].numpy())
            return np.concatenate(found)

        return cls(scores, name=f"nli:{path.rstrip('/').split('/')[-1]}")

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        """M and C; each ordered pair of different texts is scored once.

        Raises:
            ValueError: a probability is not a number, naming the pair.
        """
        unique = list(dict.fromkeys(answers))
        framed = [f"Question: {question} Answer: {answer}" for answer in unique]
        ordered = [(i, j) for i in range(len(unique)) for j in range(len(unique)) if i != j]
        scored = self._scores([(framed[i], framed[j]) for i, j in ordered]) if ordered else []
        of_pair = dict(zip(ordered, np.asarray(scored, dtype=float), strict=True))
        for (i, j), found in of_pair.items():
            if not np.isfinite(found).all():
                raise ValueError(
                    f"the NLI model gives no probabilities for {unique[i]!r} and {unique[j]!r}: "
                    f"{found.tolist()}"
                )
        number = {answer: i for i, answer in enumerate(unique)}

        def pair(i: int, j: int) -> tuple[float, float]:
            a, b = number[answers[i]], number[answers[j]]
            if a == b:
                return 1.0, 0.0
            there, back = of_pair[a, b], of_pair[b, a]
            contra = float(np.sqrt(there[2] * back[2]))
            entail = float(np.sqrt(there[0] * back[0]))
            return (0.0 if contra > CONTRADICTS else entail), contra

        return pairwise(len(answers), pair)


def label_order(id2label: dict[int, str]) -> list[int]:
    """The indices of entailment, neutral and contradiction, read from a model's own labels.

    Raises:
        ValueError: the labels are others; they are listed.
    """
    places = {}
    for index, label in id2label.items():
        for want in ("entail", "neutral", "contradict"):
            if label.lower().startswith(want):
                places[want] = int(index)
    if len(places) != 3 or len(id2label) != 3:
        raise ValueError(
            f"the model's labels are {list(id2label.values())}: give a natural-language-inference "
            "model whose labels are entailment, neutral and contradiction"
        )
    return [places["entail"], places["neutral"], places["contradict"]]


class LLMAgreement:
    """A language model says of each pair: same, different or neither.

    Args:
        chat: the model; a few words an answer, n(n - 1)/2 questions at most.
    """

    def __init__(self, chat: Chat) -> None:
        self.chat, self.name = chat, f"llm:{chat.name}"
        self._known: dict[tuple[str, str, str], tuple[float, float]] = {}

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        """M and C of n answers; each pair of texts is asked once."""
        return pairwise(len(answers), lambda i, j: self._pair(question, answers[i], answers[j]))

    def _pair(self, question: str, one: str, two: str) -> tuple[float, float]:
        if one == two:
            return 1.0, 0.0
        key = (question, min(one, two), max(one, two))
        if key not in self._known:
            told = self.chat.complete(self.prompt(*key), max_tokens=4).text
            self._known[key] = verdict_of(told)
        return self._known[key]

    def prompt(self, question: str, one: str, two: str) -> str:
        """The message to the model."""
        return (
            f"Question: {question}\nAnswer A: {one}\nAnswer B: {two}\n"
            "Do A and B say the same, do they contradict each other, or neither? Reply with one "
            "word: same, different or neither."
        )


def verdict_of(told: str) -> tuple[float, float]:
    """M and C from a model's few words; neither where they are not plain ("not different")."""
    plain = told.lower().replace("’", "'")
    found = set(re.findall(r"\b(same|different|differ|contradict|neither)", plain))
    negated = bool(re.search(r"\b(?:not|never|no|cannot)\b|n't\b", plain))
    if found == {"same"}:
        return (0.0, 1.0) if negated else (1.0, 0.0)
    if found and found <= {"different", "differ", "contradict"} and not negated:
        return 0.0, 1.0
    return 0.0, 0.0
