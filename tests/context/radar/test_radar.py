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


def test_an_edited_copy_silences_nobody(doubles):
    """Copies of honest pages with another answer, ranked above them: all six have a vote."""
    honest = [f"{page[:-1]}{'z' * 60}: x" for page in doubles.pages("x", "x", "x", "x")]
    edited = [page.replace(": x", ": w") for page in honest[:3]]
    result = Radar(doubles.Told(), doubles.Equal()).answer(QUESTION, [*edited, *honest])
    assert [line.verdict for line in result.scores if line.answer == "x"] == ["trusted"] * 4
    assert result.answer == "x"


def test_a_copy_is_read_and_told(doubles):
    page = doubles.pages("x")[0]
    result = Radar(doubles.Told(), doubles.Equal()).answer(QUESTION, [page, page.upper(), page])
    assert [(line.verdict, line.answer) for line in result.scores][2] == ("duplicate", "x")


def test_two_workers_count_one_observation_once(doubles):
    from armillary.context.radar import BeliefStore

    store = BeliefStore(scorer="equal")
    documents = doubles.pages("a", "a", "b")
    other = Radar(doubles.Told(), doubles.Equal(), store=store)

    class Slow(doubles.Told):
        def read(self, question, text):
            if not self.calls:
                other.answer(QUESTION, documents, time=1)
            return super().read(question, text)

    result = Radar(Slow(), doubles.Equal(), store=store).answer(QUESTION, documents, time=1)
    assert result.flags == ("replayed",)
    assert result.trusted == [0, 1]
    assert store.get("what is the share?").state.step == 1


def test_what_is_remembered_of_readings_is_bounded_and_holds_no_text(doubles):
    from armillary.context.radar.readers import ReadOnce

    told = doubles.Told()
    once = ReadOnce(told, most=2)
    assert [once.read("Q", f"page: {n}") for n in "aab"] == ["a", "a", "b"]
    assert len(told.calls) == 2
    once.read("Q", "page: a")
    once.read("Q", "page: c")  # the page with b was not asked for longest
    assert len(once) == 2
    once.read("Q", "page: a")
    assert len(told.calls) == 3
    once.read("Q", "page: b")
    assert len(told.calls) == 4
    assert not any("page" in repr(key) for key in once._known)


@pytest.mark.parametrize("blank", ["", "  \n"])
def test_a_blank_answer_is_an_abstention(doubles, blank):
    class Blank:
        def read(self, question, text):
            return blank

    result = Radar(Blank(), doubles.Equal()).answer("Q?", ["a page"])
    assert result.flags == ("unsupported",)


def test_a_reader_that_gives_no_text_is_told(doubles):
    class Number:
        def read(self, question, text):
            return 5

    with pytest.raises(TypeError, match=r"read\(\) gave a int"):
        Radar(Number(), doubles.Equal()).answer("Q?", ["a page"])


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
    assert again.trusted == first.trusted == [0, 1]
    for one, two in zip(again.scores, first.scores, strict=True):
        assert (one.verdict, one.answer) == (two.verdict, two.answer)
        assert one.support == pytest.approx(two.support, abs=1e-5)
    assert radar.store.get("what is the share?") == before


def test_a_replay_of_the_paper_s_memory_names_what_is_trusted(doubles):
    radar = Radar(doubles.Told(), doubles.Equal(), memory="paper")
    for time in (1, 2, 2):
        result = radar.answer(QUESTION, doubles.pages("a", "a", "b"), time=time)
    assert result.flags == ("replayed",)
    assert result.trusted == [0, 1]
    assert radar.store.get("what is the share?").observed == 2


def test_a_replay_of_an_abstention_is_one(doubles):
    unsure = Radar(doubles.Told(), doubles.Equal(), abstain_below=1e9)
    documents = doubles.pages("a", "a", "b")
    unsure.answer(QUESTION, documents, time=1)
    again = unsure.answer(QUESTION, documents, time=1)
    assert (again.answer, again.flags) == (None, ("replayed", "abstained"))
    bolder = Radar(doubles.Told(), doubles.Equal(), store=unsure.store)
    assert bolder.answer(QUESTION, documents, time=1).answer == "a"


def test_when_all_abstain_the_threshold_holds_and_the_time_is_remembered(doubles):
    radar = Radar(doubles.Told(), doubles.Equal(), abstain_below=0.01)
    radar.answer(QUESTION, doubles.pages("a", "a"), time=1)
    result = radar.answer(QUESTION, doubles.pages("", "", step=1), time=3)
    assert (result.answer, result.flags) == (None, ("unsupported", "remembered", "abstained"))
    with pytest.raises(StaleObservationError, match="time 2 came after one of time 3"):
        radar.answer(QUESTION, doubles.pages("a", "b", step=2), time=2)
    again = radar.answer(QUESTION, doubles.pages("", "", step=1), time=3)
    assert again.flags == ("replayed", "unsupported", "remembered", "abstained")
    assert radar.store.get("what is the share?").state.step == 1
    chat = models.scripted(lambda conversation: "I don't know")
    asked = Radar(chat, abstain_below=0.5).answer(QUESTION, ["one text"])
    assert asked.flags == ("unsupported", "abstained")
    assert len(chat.asked) == 1  # nothing is asked of all documents for an answer that is unsure


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
    with pytest.raises(TypeError, match=r"documents\[1\]: got a int"):
        radar.answer("Q", ["a: b", 1])
    with pytest.raises(TypeError, match="documents: got a NoneType"):
        radar.answer("Q", None)
    with pytest.raises(TypeError, match="question: got a NoneType"):
        radar.answer(None, ["a: b"])
    with pytest.raises(ValueError, match="question: got an empty text"):
        radar.answer(" ", ["a: b"])
    with pytest.raises(TypeError, match="key: got a list"):
        radar.answer("Q", ["a: b"], key=["k"])
    with pytest.raises(ValueError, match="surrogate"):
        radar.answer("Q", ["a\ud800: b"])
    assert radar.answer("Q", (d for d in ["a: b"])).answer == "b"
    assert radar.answer("Q", ["a: b"], key="k" * 100_000).answer == "b"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": "both"}, "memory='both'"),
        ({"dedup": "far"}, "dedup='far'"),
        ({"finalizer": "vote"}, "finalizer='vote'"),
        ({"finalizer": "llm"}, "needs a chat"),
        ({"abstain_below": float("nan")}, "abstain_below=nan"),
        ({"memory": None, "store": "beliefs.db"}, "memory=None keeps no beliefs"),
    ],
)
def test_bad_settings_are_told(doubles, settings, told):
    with pytest.raises(ValueError, match=told):
        Radar(doubles.Told(), doubles.Equal(), **settings)


def test_settings_of_another_type_are_told(doubles):
    told = doubles.Told()
    with pytest.raises(TypeError, match="llm: got a NoneType"):
        Radar(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="llm: got a str"):
        Radar("gpt")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"abstain_below: got '0\.5'"):
        Radar(told, doubles.Equal(), abstain_below="0.5")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="store: got a int"):
        Radar(told, doubles.Equal(), store=5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="scorer: a int"):
        Radar(told, 5)  # pyright: ignore[reportArgumentType]


def test_a_store_object_of_another_judge_or_memory_is_refused(doubles):
    from armillary.context.radar import BeliefStore

    with pytest.raises(ValueError, match="has scorer 'other', this run has 'equal'"):
        Radar(doubles.Told(), doubles.Equal(), store=BeliefStore(scorer="other"))
    with pytest.raises(ValueError, match="has memory 'campaign', this run has 'paper'"):
        Radar(doubles.Told(), doubles.Equal(), memory="paper", store=BeliefStore(scorer="equal"))


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


ABSTENTIONS = """
I don’t know
I do not know.
The document doesn't say.
The document does not contain the answer
The document doesn't mention it
I’m sorry, but the document doesn’t contain that information.
The provided text does not specify who leads it
Not provided
No information
There is no information about it in the document.
Cannot determine
This cannot be answered from the document
It is not stated
It isn't mentioned in the text
It does not say
does not hold the answer
Unknown based on the document
I'm not sure
I cannot answer
I don't have enough information
Not enough information
Unable to determine
Sorry, I don't know
Based on the document, I don't know
**I don't know**
**Answer:** Not stated
N/A
None
"""
TITLES = """
Unknown Pleasures
The Unknown Soldier
Nothing Compares 2 U
None of the three
No Country for Old Men
No. 5
Not Like Us
Not Fade Away
I Don't Know How to Love Him
Sorry Seems to Be the Hardest Word
In the 1990s, Bob
Na
Norway
"""


@pytest.mark.parametrize("text", ABSTENTIONS.strip().splitlines())
def test_abstentions_in_many_words(text):
    assert answer_or_none(text) is None


@pytest.mark.parametrize("text", TITLES.strip().splitlines())
def test_answers_that_begin_like_abstentions(text):
    assert answer_or_none(text) == text


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
