"""The pipeline: reading, memory on disk, replays, stale and bad input."""

from __future__ import annotations

import asyncio

import pytest

from armillary import models
from armillary.context.radar import Document, Radar, StaleObservationError
from armillary.context.radar.readers import ChatReader, OptionReader, answer_or_none

QUESTION = "What is the share?"


@pytest.fixture
def radar(doubles):
    return Radar(doubles.Told(), doubles.Equal())


def test_every_document_is_explained(doubles):
    told = doubles.Told()
    a, b, c, d = doubles.pages("x", "x", "y", "")
    result = Radar(told, doubles.Equal()).answer(QUESTION, [a, Document(b, "two"), c, d, a])
    verdicts = [line.verdict for line in result.scores]
    assert verdicts == ["trusted", "trusted", "cut", "abstained", "duplicate"]
    assert result.answer == "x"
    assert result.trusted == [0, 1]
    assert result.scores[1].id == "two"
    assert result.scores[3].answer is None
    assert result.margin > 0


def test_documents_are_read_alone_and_once(doubles):
    told = doubles.Told()
    radar = Radar(told, doubles.Equal())
    texts = doubles.pages("x", "x", "y")
    radar.answer(QUESTION, texts, time=1)
    radar.answer(QUESTION, [*texts, *doubles.pages("x", step=1)], time=2)
    assert sorted(text for _, text in told.calls) == sorted([*texts, *doubles.pages("x", step=1)])


def test_ten_copies_count_once(doubles):
    lie = doubles.pages("w", step=9)[0]
    honest = doubles.pages("x", "x")
    copies = [f"{lie[:-3]} : w" if i % 2 else lie.upper().replace(": W", ": w") for i in range(10)]
    assert Radar(doubles.Told(), doubles.Equal()).answer(QUESTION, copies + honest).answer == "x"
    counted = Radar(doubles.Told(), doubles.Equal(), dedup=None)
    assert counted.answer(QUESTION, copies + honest).answer == "w"


def test_beliefs_outlive_the_process(doubles, tmp_path):
    path = tmp_path / "beliefs.db"
    for time in range(4):
        Radar(doubles.Told(), doubles.Equal(), store=path).answer(
            QUESTION, doubles.pages(*"aaaaaaa", step=time), time=time
        )
    flood = doubles.pages(*"aaaaaaa", *"wwwwwwwww", step=9)
    later = Radar(doubles.Told(), doubles.Equal(), store=path).answer(QUESTION, flood, time=5)
    assert later.answer == "a"
    assert later.belief["a"] > 0.9
    without = Radar(doubles.Told(), doubles.Equal(), memory=None).answer(QUESTION, flood)
    assert without.answer == "w"


def test_an_older_observation_is_refused_and_changes_nothing(radar, doubles):
    radar.answer(QUESTION, doubles.pages("a", "a"), time="2024-05-01")
    before = radar.store.get("what is the share?")
    with pytest.raises(StaleObservationError, match="came after one of time"):
        radar.answer(QUESTION, doubles.pages("b", "b", step=1), time="2023-12-31")
    with pytest.raises(StaleObservationError, match="no time"):
        radar.answer(QUESTION, doubles.pages("b", "b", step=1))
    assert radar.store.get("what is the share?") == before


def test_a_quicker_writer_is_taken_into_account(doubles, tmp_path):
    """Between reading the belief and writing it, another process observes the same question."""
    path = tmp_path / "beliefs.db"
    other = Radar(doubles.Told(), doubles.Equal(), store=path)

    class Interrupted(doubles.Equal):
        done = False

        def compare(self, question, answers):
            if not self.done:
                self.done = True
                other.answer(QUESTION, doubles.pages(*"aaaaaa", step=7), time=1)
            return super().compare(question, answers)

    radar = Radar(doubles.Told(), Interrupted(), store=path)
    result = radar.answer(QUESTION, doubles.pages(*"aaaaaaaww", step=8), time=2)
    assert result.answer == "a"
    assert radar.store.get("what is the share?").state.step == 2


def test_a_replay_changes_nothing_and_says_so(radar, doubles):
    documents = doubles.pages("a", "a", "b")
    first = radar.answer(QUESTION, documents, time=1)
    before = radar.store.get("what is the share?")
    again = radar.answer(QUESTION, documents, time=1)
    assert again.flags == ("replayed",)
    assert again.answer == first.answer
    assert again.margin == first.margin
    assert radar.store.get("what is the share?") == before


def test_all_abstain_without_memory_is_unsupported(radar, doubles):
    result = radar.answer(QUESTION, doubles.pages("", ""))
    assert result.flags == ("unsupported",)
    assert result.answer is None
    assert len(radar.store) == 0


def test_all_abstain_with_a_chat_reads_all_at_once():
    chat = models.scripted(["I don't know.", "not stated", "Answer: forty\nmore"])
    result = Radar(chat).answer(QUESTION, ["one text", "another text"])
    assert result.answer == "forty"
    assert result.flags == ("unsupported",)
    last = chat.asked[-1].last
    assert "one text" in last
    assert "another text" in last


def test_all_abstain_with_memory_remembers(radar, doubles):
    radar.answer(QUESTION, doubles.pages("a", "a"), time=1)
    result = radar.answer(QUESTION, doubles.pages("", "", step=1), time=2)
    assert result.answer == "a"
    assert result.flags == ("unsupported", "remembered")


def test_strict_and_lenient_final_prompts():
    asked = []

    def script(conversation):
        text = conversation[-1]["content"]
        asked.append(text)
        if "Findings:" in text:
            return "final"
        return "x" if "page" in text else "I don't know"

    radar = Radar(models.scripted(script), finalizer="llm", dedup=None)
    assert radar.answer(QUESTION, ["page 1", "page 2", "page 3"]).answer == "final"
    assert "Use nothing but the findings" in asked[-1]
    assert radar.answer("Another?", ["page 1", "page 2"]).answer == "final"
    assert "what you know yourself" in asked[-1]


def test_paper_memory_keeps_the_written_answer():
    def script(conversation):
        return "15 percent" if "Findings:" in conversation[-1]["content"] else "15 %"

    radar = Radar(models.scripted(script), memory="paper", finalizer="llm", dedup=None)
    radar.answer(QUESTION, ["page 1", "page 2", "page 3"])
    state = radar.store.get("what is the share?").state
    assert (state.answer, state.support, state.doubt) == ("15 percent", 1.0, 0.0)


def test_abstains_below_the_margin(doubles):
    sure = Radar(doubles.Told(), doubles.Equal(), abstain_below=1e9)
    result = sure.answer(QUESTION, doubles.pages("a", "a", "b"))
    assert result.answer is None
    assert result.flags == ("abstained",)


def test_async_gives_the_same(doubles):
    documents = doubles.pages("x", "x", "y", "")
    both = [Radar(doubles.Told(), doubles.Equal()) for _ in range(2)]
    waited = asyncio.run(both[0].aanswer(QUESTION, documents, time=1))
    assert waited == both[1].answer(QUESTION, documents, time=1)
    chat = models.scripted(lambda conversation: "yes")
    assert asyncio.run(Radar(chat, finalizer="medoid").aanswer("Is it?", documents)).answer == "yes"


def test_bad_input_is_told(radar):
    with pytest.raises(ValueError, match="radar: no documents for question 'Q'"):
        radar.answer("Q", [])
    with pytest.raises(ValueError, match=r"documents\[1\] has no text"):
        radar.answer("Q", ["a: b", "  "])
    with pytest.raises(TypeError, match="give a list"):
        radar.answer("Q", "text")
    with pytest.raises(ValueError, match="time='soon'"):
        radar.answer("Q", ["a: b"], time="soon")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": "both"}, "memory='both'"),
        ({"dedup": "far"}, "dedup='far'"),
        ({"finalizer": "vote"}, "finalizer='vote'"),
        ({"finalizer": "llm"}, "needs a chat"),
    ],
)
def test_bad_settings_are_told(doubles, settings, told):
    with pytest.raises(ValueError, match=told):
        Radar(doubles.Told(), doubles.Equal(), **settings)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Paris.", "Paris"),
        ("\n  42 km \nbecause", "42 km"),
        ("I don't know", None),
        ("Not stated in the text", None),
        ("Unknown", None),
        ("The document does not mention it", None),
        ("", None),
        ("Unknown Pleasures", "Unknown Pleasures"),
        ("Nothing compares", "Nothing compares"),
    ],
)
def test_answers_and_abstentions(text, answer):
    assert answer_or_none(text) == answer
    assert ChatReader(models.scripted([text])).read("Q?", "doc") == answer


class Scores:
    """A chat that scores options by a table of (text in the prompt) -> log-likelihoods."""

    def __init__(self, table):
        self._table = table

    def score_options(self, prompt, options, *, calibrate=()):
        import numpy as np

        from armillary.models.option_scores import OptionScores

        text = prompt.split("Text: ")[1].split("\nQuestion:")[0]
        values = np.array(self._table[text], dtype=float)
        return OptionScores(tuple(options), values, values, np.ones(len(options), dtype=int))


def test_option_reader_weighs_what_the_text_adds():
    table = {"": [-1, -5], "says b": [-2, -3], "says a": [0, -5], "silent": [-1.2, -5.1]}
    reader = OptionReader(Scores(table), lambda question: ["a", "b"])
    # l - l0 / 2 is (-1.5, -0.5), (0.5, -2.5) and (-0.7, -2.6); the last text raises nothing.
    assert [reader.read("Q", t) for t in ("says b", "says a", "silent")] == ["b", "a", None]
    raw = OptionReader(Scores(table), lambda question: ["a", "b"], discount=0, threshold=-9)
    assert raw.read("Q", "says b") == "a"
