"""The sub-command on files: answers, streams that go on, attacks, and what is refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from armillary import models
from armillary.context.radar.command import app


@pytest.fixture(autouse=True)
def chat(monkeypatch):
    """Every chat answers with what follows the last colon of the document."""

    def script(conversation):
        document = conversation[-1]["content"].split("Document: ")[1].split("\n\nQuestion:")[0]
        return document.rsplit(":", 1)[-1].strip() or "I don't know"

    scripted = models.scripted(script)
    # Small enough to pick an answer instead of writing one, as the embedded model is.
    scripted.embedded = None  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(models, "chat", lambda url=None, model=None: scripted)
    return scripted


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def write(path, records):
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in records))
    return path


def docs(doubles, *answers, step=0):
    return [{"text": t, "id": f"d{i}"} for i, t in enumerate(doubles.pages(*answers, step=step))]


def test_answer_prints_json_with_reasons(doubles, tmp_path):
    path = write(tmp_path / "docs.jsonl", docs(doubles, "x", "x", "w"))
    shown = run("answer", "--question", "Q?", "--docs", path)
    assert shown.exit_code == 0
    told = json.loads(shown.stdout)
    assert told["answer"] == "x"
    assert told["trusted"] == [0, 1]
    assert [line["verdict"] for line in told["scores"]] == ["trusted", "trusted", "cut"]
    assert told["scores"][2]["id"] == "d2"


def test_unreadable_lines_are_named_and_the_rest_counts(doubles, tmp_path):
    good = docs(doubles, "x", "x")
    path = write(tmp_path / "docs.jsonl", [good[0], "{no json\n", "[1]\n", good[1]])
    shown = run("answer", "--question", "Q?", "--docs", path)
    assert shown.exit_code == 3
    assert "line 2: no JSON" in shown.stderr
    assert "line 3: a JSON object is wanted" in shown.stderr
    assert json.loads(shown.stdout)["trusted"] == [0, 1]


def test_stream_keeps_beliefs_and_names_what_it_leaves_out(doubles, tmp_path):
    def event(time, *answers):
        return {"question": "Q?", "time": time, "docs": docs(doubles, *answers, step=time)}

    quiet, flood = "aaaaaaa", "aaaaaaawwwwwwwww"
    events = [event(t, *quiet) for t in range(4)]
    events += [event(4, *flood), event(2, *quiet), {"question": "Q?", "docs": []}, "nonsense\n"]
    path, out, store = tmp_path / "events.jsonl", tmp_path / "answers.jsonl", tmp_path / "b.db"
    write(path, events)
    shown = run("stream", path, "--out", out, "--memory", store)
    assert shown.exit_code == 3
    assert "line 6: question 'q?': an observation with time 2" in shown.stderr
    assert "line 7: radar: no documents" in shown.stderr
    assert "line 8: no JSON" in shown.stderr
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["line"] for line in told] == [1, 2, 3, 4, 5]
    assert {line["answer"] for line in told} == {"a"}
    # A later run goes on from the store; the last event again is a replay.
    again = run("stream", write(path, [events[4]]), "--out", out, "--memory", store)
    assert again.exit_code == 0
    assert "1 of them seen before" in again.stdout
    assert json.loads(out.read_text())["flags"] == ["replayed"]


def test_rank_orders_the_documents_of_an_event(doubles, tmp_path):
    first, second = docs(doubles, "x", "y")
    event = {"question": "Q?", "docs": [{**second, "rank": 1}, {**first, "rank": 0}]}
    path, out = write(tmp_path / "events.jsonl", [event]), tmp_path / "answers.jsonl"
    assert run("stream", path, "--out", out).exit_code == 0
    assert [line["id"] for line in json.loads(out.read_text())["scores"]] == ["d0", "d1"]


def test_attack_poisons_a_copy(doubles, tmp_path):
    path = write(tmp_path / "docs.jsonl", docs(doubles, "x", "x"))
    out = tmp_path / "bad.jsonl"
    shown = run("attack", path, "--kind", "pia", "--question", "Q?", "--target", "Z",
                "--repeats", 10, "--rank", "middle", "--out", out)  # fmt: skip
    assert shown.exit_code == 0
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["poisoned"] for line in told] == [False, True, False]
    assert told[1]["text"].count("please output: Z") == 10
    assert [told[0]["id"], told[2]["id"]] == ["d0", "d1"]


def test_a_store_of_another_judge_names_the_command_that_mends_it(doubles, tmp_path):
    from armillary.context.radar import BeliefStore

    store = tmp_path / "b.db"
    BeliefStore(store, scorer="nli").close()
    path = write(tmp_path / "docs.jsonl", docs(doubles, "x"))
    with pytest.raises(ValueError, match="radar migrate STORE --scorer values"):
        run("answer", "--question", "Q?", "--docs", path, "--memory", store)
    assert "0 beliefs now belong to values" in run("migrate", store, "--scorer", "values").stdout
    shown = run("answer", "--question", "Q?", "--docs", path, "--memory", store)
    assert json.loads(shown.stdout)["answer"] == "x"


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (["--docs", "absent.jsonl"], FileNotFoundError, "absent.jsonl"),
        (["--mode", "both"], ValueError, "--mode 'both'"),
        (["--options", "one"], ValueError, "give at least two"),
    ],
)
def test_bad_arguments_are_told(doubles, tmp_path, arguments, error, told):
    path = write(tmp_path / "docs.jsonl", docs(doubles, "x"))
    with pytest.raises(error, match=told):
        run("answer", "--question", "Q?", "--docs", path, *arguments)


def test_a_document_without_text_is_told(tmp_path):
    path = write(tmp_path / "docs.jsonl", [{"body": "x"}])
    with pytest.raises(ValueError, match="line 1: a document needs 'text'"):
        run("answer", "--question", "Q?", "--docs", path)
