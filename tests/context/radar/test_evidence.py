"""The work of the experiments is what it says, and the headline effects hold on other seeds."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("babel")
pytest.importorskip("tzdata")

from armillary.context.radar import Radar, ValueAgreement, evidence_costs, evidence_recording
from armillary.context.radar import evidence_policies as policies
from armillary.context.radar import evidence_readings as readings
from armillary.context.radar import evidence_streams as streams
from armillary.context.radar.evidence import EXPERIMENTS
from armillary.context.radar.evidence_dynamic import STREAMS
from armillary.evidence.shapes import Case, Cell


def cell(case, seed=0, profile="quick"):
    return Cell(case, seed, profile)


def test_question_sets_are_disjoint():
    sets = [{s.question for s in readings.question_set(seed)} for seed in range(readings.SETS)]
    assert all(len(questions) == readings.PER_SET for questions in sets)
    assert len(set.union(*sets)) == readings.SETS * readings.PER_SET


def test_documents_of_a_subject_say_what_they_should():
    for s in readings.subjects():
        assert all(s.change.old in text for text in s.old)
        assert all(s.change.new in text for text in s.new)
        assert all(s.wrong in text for text in (*s.poison, *s.pia, *s.edited))
        mine = s.documents[: -len(s.edited)]  # an edited page may be one of the poison
        assert len(set(mine)) == len(mine)
        assert s.wrong not in (s.change.old, s.change.new)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_streams_have_one_change_and_one_surge(seed):
    work = streams.stream_work(cell(Case("s", {"copies": 9, "steps": 2}), seed))
    assert len(work.streams) == readings.PER_SET
    for stream in work.streams:
        assert len(stream) == 12
        attacked = [t for t, step in enumerate(stream) if step.attacked]
        assert attacked == [attacked[0], attacked[0] + 1]
        assert attacked[0] > 0
        truths = [step.truth for step in stream]
        change = next(t for t in range(12) if stream[t].after)
        assert truths == [truths[0]] * change + [truths[-1]] * (12 - change)
        assert 5 <= change <= 7
        for step in stream:
            poisoned = [page for page in step.pages if page.poisoned]
            assert len(poisoned) == (9 if step.attacked else 0)
            assert len(step.pages) - len(poisoned) == 10
            assert all(step.wrong in page.text for page in poisoned)


def test_static_work_is_the_same_but_for_the_attack():
    work = streams.static_work(cell(streams.static_case("poison", "middle", 3)))
    for (attacked,), (clean,) in zip(work.streams, work.unattacked, strict=True):
        honest = [page for page in attacked.pages if not page.poisoned]
        assert honest == list(clean.pages)
        assert [i for i, p in enumerate(attacked.pages) if p.poisoned] == [5, 6, 7]
        assert attacked.truth == clean.truth


def test_edited_copies_silence_pages_only_where_answers_are_not_looked_at():
    work = streams.static_work(cell(streams.static_case("edited", "first", 5), 1001))
    for (step,), (clean,) in zip(work.streams, work.unattacked, strict=True):
        assert len(step.pages) - len(clean.pages) == sum(p.poisoned for p in step.pages)
        assert all(p.answer == step.wrong for p in step.pages[:3] if p.answer is not None)
    (step,) = work.streams[0]
    judge = policies.values()
    assert len(policies.votes(step, judge)[0]) > len(policies.votes(step, judge, by_text=True)[0])
    asr = [
        policies.paired(policies.radar(policies.CAMPAIGN, by_text=by_text))(work, cell(Case("e")))
        for by_text in (False, True)
    ]
    assert asr[0]["asr"] < asr[1]["asr"]


def test_a_surge_starts_where_the_case_says():
    for offset in (-1, 0, 1):
        case = Case("s", {"copies": 9, "steps": 1, "offset": offset})
        for stream in streams.stream_work(cell(case, 1001)).streams:
            change = next(t for t in range(12) if stream[t].after)
            assert [t for t, step in enumerate(stream) if step.attacked] == [change + offset]


def test_seeds_beyond_the_recording_use_its_draws():
    case = streams.UNDEFENDED_CASES[0]
    assert streams.recorded_static_work(cell(case, 502)) == streams.static_work(cell(case, 2))
    for (step,) in streams.recorded_static_work(cell(case, 503)).streams:
        policies.UNDEFENDED()(step)  # recorded


def test_spellings_of_a_value_are_one_and_of_two_are_not():
    from armillary import answers
    from armillary.context.radar.evidence_spellings import VALUES

    for question, values in VALUES.values():
        for one in values:
            for two in values:
                for a, b in ((a, b) for a in one for b in two):
                    assert answers.same(a, b, question=question).same == (one is two), (a, b)


def test_simple_memories_by_hand():
    judge = policies.equal_texts()
    keep = policies.peers.Sticky(2)
    given = [["a", "a", "b"], ["a", "a", "b", "b", "b"], ["a", "b", "b"], []]
    assert [keep.answer("q", answers, judge) for answers in given] == ["a", "a", "b", "b"]
    vote = policies.peers.DecayedVote(0.5)
    # a has 2, 1, 0.5 and 0.25 votes; b has 0, 1 (a tie, the elder wins), 1.5 and 0.75.
    given = [["a", "a"], ["b"], ["b"], []]
    assert [vote.answer("q", answers, judge) for answers in given] == ["a", "a", "b", "b"]


def test_simulated_pages_are_read_as_often_as_said():
    case = Case("f", {"documents": 50, "copies": 3, "rank": 2, "questions": 60})
    work = streams.simulated_static_work(cell(case, 1001))
    honest = [p.answer for (step,) in work.unattacked for p in step.pages]
    given = [answer for answer in honest if answer is not None]
    # 3000 pages: the standard errors are .007 and .007.
    assert len(given) / len(honest) == pytest.approx(0.8, abs=0.03)
    assert given.count("true") / len(given) == pytest.approx(0.85, abs=0.03)
    for (step,) in work.streams:
        assert [p.poisoned for p in step.pages] == [False] * 50 + [True] * 3
        assert {p.answer for p in step.pages if p.poisoned} == {step.wrong}


def test_scoring_by_hand():
    def step(truth, attacked=False, after=False):
        return streams.Step("q", truth, "w", (), attacked, after)

    stream = (step("a"), step("a", True), step("b", after=True), step("b", after=True))
    found = streams.scored([["a", "w", "a", "b"]], [stream])
    assert found == {"accuracy": 0.5, "asr": 1.0, "accuracy_after": 0.5, "lag": 1.0}


def test_policy_of_the_evidence_is_the_pipeline():
    """What is measured is what a user runs: the same answers through `Radar` and its store."""
    work = streams.stream_work(cell(Case("s", {"copies": 9, "steps": 1}), 1))

    class Recorded:
        def read(self, question, text):
            return readings.reading(question, text)

    for stream in work.streams[:4]:
        (measured,) = policies.answers_of(policies.radar(policies.CAMPAIGN), [stream])
        radar = Radar(Recorded(), ValueAgreement())
        for t, (step, answer) in enumerate(zip(stream, measured, strict=True)):
            documents = [page.text for page in step.pages]
            assert radar.answer(step.question, documents, time=t).answer == answer


def test_simulated_effects_on_seeds_that_are_not_reported():
    """Floods sway what looks at one step, hardly the campaign memory; w and rho carry it."""
    case = Case("surge 9 x 1", {"copies": 9, "steps": 1, "questions": 40})
    work = streams.simulated_work(cell(case, 1001))

    def asr(rules):
        return policies.streaming(policies.radar(rules, policies.equal_texts))(work, cell(case))

    ours, static = asr(policies.CAMPAIGN), asr(policies.STATIC)
    assert ours["asr"] <= 0.10
    assert ours["accuracy_after"] >= 0.90
    assert static["asr"] >= 0.75
    assert asr(policies.ABLATIONS["no-campaign-price"])["asr"] > 0.4
    assert asr(policies.ABLATIONS["half-belief"])["asr"] > 0.2


def test_storage_is_one_small_row_and_reading_is_cached():
    found = [
        evidence_costs.storage_of_radar(
            evidence_costs.archive_work(cell(Case("n", {"steps": n}))), cell(Case("n"))
        )
        for n in (4, 12)
    ]
    assert [f["extra_calls"] for f in found] == [0, 0]
    assert found[0]["bytes"] == pytest.approx(found[1]["bytes"], rel=0.1)
    assert found[1]["share"] <= 0.01


def test_greedy_search_is_not_exact_and_the_cut_is():
    work = evidence_costs.exact_work(cell(Case("n", {"instances": 60}), 1001))
    assert evidence_costs.mismatches_of_cut(work, cell(Case("n"))) == {"mismatches": 0.0}
    assert evidence_costs.mismatches_of_greedy(work, cell(Case("n")))["mismatches"] > 0


def test_embeddings_of_all_answers_ship():
    answers = sorted({o for s in readings.subjects() for o in s.options})
    vectors = policies.RecordedEmbeddings().encode(answers)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=2e-3)


def test_every_reading_that_the_evidence_needs_ships():
    for question, text in evidence_recording.wanted():
        answer = readings.reading(question, text)
        assert answer is None or answer in readings.options_of(question)


def test_packing_a_recording_keeps_its_answers(tmp_path):
    from armillary.context.radar.readers import OptionReader
    from armillary.models import Recording

    class Counting:
        """A chat that likes the first option by the length of the prompt."""

        name, digest = "counting", "d" * 64

        def score_options(self, prompt, options, *, calibrate=()):
            from armillary.models.option_scores import OptionScores

            values = -np.arange(len(options)) / (1 + len(prompt))
            return OptionScores(tuple(options), values, values, np.ones(len(options), int))

    subject = readings.subjects()[0]
    raw, packed = tmp_path / "raw.jsonl", tmp_path / "packed.jsonl.gz"
    tape = Recording(raw, Counting(), "record")  # pyright: ignore[reportArgumentType]
    asked = OptionReader(tape, readings.options_of, threshold=-9)
    answers = [asked.read(subject.question, text) for text in subject.old]
    tape.score_options("something else", ["a", "b"])
    assert evidence_recording.pack(raw, packed) == len(subject.old) + 1  # and the void prompt
    replay = OptionReader(Recording(packed, "d" * 64), readings.options_of, threshold=-9)
    assert [replay.read(subject.question, text) for text in subject.old] == answers


def test_every_case_of_every_profile_is_known_to_its_claims():
    for experiment in EXPERIMENTS:
        for claim in experiment.claims:
            for condition in claim.conditions:
                for profile in ("quick", "full"):
                    cases = experiment.cases[profile]
                    if not cases:
                        assert experiment.id == "packaged-detector"
                        continue
                    where = condition.stat.where
                    assert where is None or any(where(c) for c in cases), (claim.id, profile)
    assert {c.name for c in STREAMS.cases["full"]} > {c.name for c in STREAMS.cases["quick"]}


def test_detector_drops_what_it_flags_and_the_rest_vote(monkeypatch):
    """With two-dimensional vectors: what is far from every true page is flagged."""
    pytest.importorskip("embeddings_guardian")
    subject = readings.subjects()[0]

    class Flat:
        def encode(self, texts):
            true = {*subject.old, *subject.new, *subject.empty}
            near = np.linspace(-0.05, 0.05, len(texts))
            return np.array(
                [[1, e] if t in true else [-1, e] for t, e in zip(texts, near, strict=True)]
            )

    monkeypatch.setattr(policies, "_encoder", Flat)
    pages = [streams.Page(t, "w", 2000, True) for t in subject.poison]
    pages += [streams.Page(t, subject.change.old, 2000) for t in subject.old[:3]]
    step = streams.Step(subject.question, subject.change.old, "w", tuple(pages), True)
    assert policies.MAJORITY()(step) == "w"
    found = policies.detector("centroid")(streams.Streams(((step,),)), cell(Case("d")))
    assert (found["accuracy"], found["rejected_poison"], found["rejected_honest"]) == (1, 1, 0)


@pytest.mark.slow
def test_readings_can_be_made_again():
    from armillary import models

    try:
        models.embedded()
    except (FileNotFoundError, ImportError) as absent:
        pytest.skip(str(absent))
    checked, differ = evidence_recording.live_check(0.004)
    assert checked > 0
    assert differ == 0
