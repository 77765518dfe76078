"""Recorded answers: what they are keyed by, who may write, what survives."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from armillary import models


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.jsonl"


def test_what_was_recorded_is_replayed_without_the_model(file):
    chat = models.scripted({"a": "one", "b": "two words"})
    recording = models.Recording(file, chat, "record")
    first = [recording.complete("a"), recording.complete("b", max_tokens=1, stop="x", seed=3)]
    assert [answer.text for answer in first] == ["one", "two"]
    assert recording.complete("a") == first[0]
    assert len(chat.asked) == 2
    replay = models.Recording(file, chat.digest)
    assert [replay.complete("a"), replay.complete("b", max_tokens=1, stop="x", seed=3)] == first
    assert [piece.text for piece in replay.stream("a")] == ["one", ""]
    assert replay.usage.answers == 3
    assert isinstance(replay, models.Chat)


@pytest.mark.parametrize(
    "other",
    [{"max_tokens": 2}, {"temperature": 0.5}, {"stop": "x"}, {"seed": 1}, {"messages": "b"}],
    ids=str,
)
def test_every_part_of_a_request_is_in_its_key(file, other):
    models.Recording(file, models.scripted(["one"]), "record").complete("a")
    replay = models.Recording(file, models.scripted(["one"]).digest)
    assert replay.complete(messages="a").text == "one"
    assert replay.complete([{"role": "user", "content": "a"}]).text == "one"
    with pytest.raises(LookupError, match=r"answers\.jsonl has no answer.*mode='record'"):
        replay.complete(**{"messages": "a", **other})
    with pytest.raises(LookupError, match="no answer of the model another"):
        models.Recording(file, "another").complete("a")


WRITER = """
import sys
from armillary import models

path, who = sys.argv[1:]
chat = models.scripted(lambda messages: messages[-1]["content"] * 2000)
chat.digest = "shared"
recording = models.Recording(path, chat, "record")
print("ready", flush=True)
sys.stdin.readline()
for at in range(400):
    recording.complete(str(at) if at % 2 else f"{who}-{at}")
"""


def test_several_writers_lose_and_double_nothing(file):
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), who],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in ("me", "you")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0]
    keys = [json.loads(line)["key"] for line in file.read_text().splitlines()]
    # 200 requests that both made, and 200 of each one's own.
    assert len(keys) == len(set(keys)) == 600
    replay = models.Recording(file, "shared")
    assert replay.complete("1").text == "1" * 2000
    assert replay.complete("you-8").text == "you-8" * 2000


def test_a_torn_line_harms_itself_alone(file):
    chat = models.scripted(["one", "two", "three"])
    recording = models.Recording(file, chat, "record")
    recording.complete("a")
    recording.complete("b")
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    replay = models.Recording(file, chat.digest)
    assert replay.complete("a").text == "one"
    with pytest.raises(LookupError):
        replay.complete("b")
    again = models.Recording(file, chat, "record")
    assert again.complete("b").text == "three"
    replay = models.Recording(file, chat.digest)
    assert [replay.complete(name).text for name in "ab"] == ["one", "three"]


def test_a_gzipped_recording_is_replayed_and_not_written(file):
    chat = models.scripted(["one"])
    models.Recording(file, chat, "record").complete("a")
    packed = file.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert models.Recording(packed, chat.digest).complete("a").text == "one"
    with pytest.raises(ValueError, match="gzip it afterwards"):
        models.Recording(packed, chat, "record")


def test_a_live_check_finds_what_changed(file):
    asked = [str(at) for at in range(40)]
    recorded = models.scripted(lambda messages: "same")
    recorded.digest = "m"
    recording = models.Recording(file, recorded, "record")
    for text in asked:
        recording.complete(text)
    live = models.scripted(lambda messages: "new" if messages[-1]["content"] == "7" else "same")
    live.digest = "m"
    everything = models.Recording(file, live, "live-check", share=1)
    assert {everything.complete(text).text for text in asked} == {"same"}
    assert everything.checked == 40
    [mismatch] = everything.mismatches
    assert (mismatch.recorded["text"], mismatch.live["text"]) == ("same", "new")
    assert mismatch.request["messages"][0][0] == ("content", "7")
    counts = []
    for seed in (0, 0, 1):
        some = models.Recording(file, live, "live-check", share=0.25, seed=seed)
        before = len(live.asked)
        for text in asked:
            some.complete(text)
        counts.append([request.last for request in live.asked[before:]])
        assert some.checked == len(counts[-1])
    assert counts[0] == counts[1] != counts[2]
    assert 2 <= len(counts[0]) <= 20  # binomial(40, 1/4): outside with probability under 1e-3
    with pytest.raises(LookupError):
        everything.complete("never recorded")


def test_scores_are_recorded(file, tiny):
    chat = models.chat(model=tiny)
    recording = models.Recording(file, chat, "record")
    scores = recording.score_options("ab c:", ["cd", " x"], calibrate=["N:"])
    replay = models.Recording(file, tiny.digest)
    again = replay.score_options("ab c:", ["cd", " x"], calibrate=["N:"])
    np.testing.assert_array_equal(again.log_probs, scores.log_probs)
    np.testing.assert_array_equal(again.log_likelihoods, scores.log_likelihoods)
    np.testing.assert_array_equal(again.tokens, scores.tokens)
    with pytest.raises(LookupError):
        replay.score_options("ab c:", ["cd", " x"])
    check = models.Recording(file, chat, "live-check", share=1)
    check.score_options("ab c:", ["cd", " x"], calibrate=["N:"])
    assert (check.checked, check.mismatches) == (1, [])


def test_bad_settings_are_told(file):
    chat = models.scripted(["one"])
    with pytest.raises(ValueError, match="mode='write'"):
        models.Recording(file, chat, "write")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="share=2"):
        models.Recording(file, chat, "record", share=2)
    with pytest.raises(TypeError, match="only its digest"):
        models.Recording(file, "digest", "record")
    with pytest.raises(FileNotFoundError, match="make it with mode='record'"):
        models.Recording(file, chat)


def test_scripts_answer_in_turn_by_text_or_by_function():
    assert models.scripted(["a b", "c"]).complete("?", max_tokens=1).finish_reason == "length"
    by_text = models.scripted({"?": "so: it is"})
    assert by_text.complete("?", stop=":").text == "so"
    with pytest.raises(LookupError, match="no answer to 'other'"):
        by_text.complete("other")
    in_turn = models.scripted(["a"])
    in_turn.complete("?")
    with pytest.raises(LookupError, match="used up"):
        in_turn.complete("?")
    with pytest.raises(TypeError, match="one string"):
        models.scripted("a")
    with pytest.raises(models.CannotScore):
        in_turn.score_options("?", ["a"])
