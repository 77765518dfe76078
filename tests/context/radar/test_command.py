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


def test_a_document_without_text_is_told(tmp_path, capfd):
    path = write(tmp_path / "docs.jsonl", [{"body": "x"}])
    with pytest.raises(ValueError, match="no documents"):
        run("answer", "--question", "Q?", "--docs", path)


#: Lines that are no documents, and what is said of them.
BAD_DOCUMENTS = [
    ('{"text": 5}\n', "needs 'text'"),
    ('{"body": "x"}\n', "needs 'text'"),
    ('{"text": " "}\n', "has no text"),
    ('{"text": "\\ud800"}\n', "surrogate"),
    ('{"text": "a", "n": NaN}\n', "NaN is no JSON number"),
    ("[" * 100_000 + "]" * 100_000 + "\n", "too deeply nested"),
    ('{"text": "a", "n": ' + "9" * 5000 + "}\n", "no JSON"),
]


@pytest.mark.parametrize(("bad", "why"), BAD_DOCUMENTS, ids=range(len(BAD_DOCUMENTS)))
@pytest.mark.parametrize("verb", ["answer", "attack"])
def test_one_bad_document_is_named_and_the_rest_counts(doubles, tmp_path, verb, bad, why):
    good = docs(doubles, "x", "x")
    path, out = write(tmp_path / "docs.jsonl", [good[0], bad, good[1]]), tmp_path / "bad.jsonl"
    if verb == "answer":
        shown = run("answer", "--question", "Q?", "--docs", path)
        assert json.loads(shown.stdout)["trusted"] == [0, 1]
    else:
        shown = run("attack", path, "--question", "Q?", "--target", "w", "--out", out)
        assert len(out.read_text().splitlines()) == 3
    assert shown.exit_code == 3
    assert f"line 2: {why}" in shown.stderr or ("line 2:" in shown.stderr and why in shown.stderr)


def test_a_byte_order_mark_costs_no_line(doubles, tmp_path):
    path = tmp_path / "docs.jsonl"
    lines = "".join(json.dumps(d) + "\n" for d in docs(doubles, "x", "x"))
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    shown = run("answer", "--question", "Q?", "--docs", path)
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["trusted"] == [0, 1]


BAD_FIELDS = [
    ({"time": "yesterday"}, "time='yesterday'"),
    ({"time": [2023]}, "time: got a list"),
    ({"time": True}, "time: got a bool"),
    ({"time": 10**400}, "give a finite number"),
    ({"key": ["k"]}, "'key' must be a text"),
    ({"key": "\ud800"}, "surrogate"),
    ({"question": "\ud800?"}, "surrogate"),
    ({"docs": [{"text": "a", "rank": 1}, {"text": "b"}]}, "'rank' must be a number in all"),
    ({"docs": [{"text": "a", "rank": 1}, {"text": "b", "rank": "2"}]}, "'rank' must be a number"),
    ({"docs": [{"text": "a", "rank": True}]}, "'rank' must be a number"),
    ({"docs": [{"text": 5}]}, "needs 'text'"),
    ({"docs": "text"}, "no documents"),
]


@pytest.mark.parametrize(("fields", "why"), BAD_FIELDS, ids=range(len(BAD_FIELDS)))
def test_one_bad_field_costs_one_event(doubles, tmp_path, fields, why):
    def event(time):
        return {"question": "Q?", "time": time, "docs": docs(doubles, "a", "a", step=time)}

    path, out = tmp_path / "events.jsonl", tmp_path / "answers.jsonl"
    write(path, [event(1), event(2) | fields, event(3)])
    shown = run("stream", path, "--out", out)
    assert shown.exit_code == 3
    assert "line 2:" in shown.stderr
    assert why in shown.stderr
    assert [json.loads(line)["line"] for line in out.read_text().splitlines()] == [1, 3]


def test_an_abort_of_a_stream_loses_no_answer(doubles, tmp_path, monkeypatch):
    """The endpoint fails in the third event; the same command goes on with it."""

    def event(time):
        return {"question": "Q?", "time": time, "docs": docs(doubles, *"aaa", step=time)}

    path, out, store = tmp_path / "events.jsonl", tmp_path / "answers.jsonl", tmp_path / "b.db"
    write(path, [event(t) for t in range(5)])
    away, calls = [True], []

    def script(conversation):
        text = conversation[-1]["content"].split("Document: ")[1].split("\n\nQuestion:")[0]
        calls.append(text)
        if away and text in {d["text"] for d in event(2)["docs"]}:
            raise ConnectionError("the endpoint is away")
        return text.rsplit(":", 1)[-1].strip()

    scripted = models.scripted(script)
    scripted.embedded = None  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(models, "chat", lambda url=None, model=None: scripted)
    with pytest.raises(ConnectionError):
        run("stream", path, "--out", out, "--memory", store)
    partial = tmp_path / "answers.jsonl.partial"
    assert not out.exists()
    assert [json.loads(line)["line"] for line in partial.read_text().splitlines()] == [1, 2]
    with partial.open("a") as file:
        file.write('{"line": 3, "ev')  # as after a crash
    away.clear()
    calls.clear()
    shown = run("stream", path, "--out", out, "--memory", store)
    assert shown.exit_code == 0
    assert "5 events answered, 2 of them before an abort" in shown.stdout
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["line"] for line in told] == [1, 2, 3, 4, 5]
    assert all(line["trusted"] == [0, 1, 2] for line in told)
    assert len(calls) == 9  # three events of three documents
    assert not partial.exists()
    partial.write_text('{"line": 1, "event": "of another file"}\n')
    with pytest.raises(ValueError, match="has answers to other events"):
        run("stream", path, "--out", out, "--memory", store)
    assert partial.read_text().count("\n") == 1


def test_what_is_read_is_not_written_over(doubles, tmp_path):
    path = write(tmp_path / "docs.jsonl", docs(doubles, "x"))
    before = path.read_text()
    with pytest.raises(ValueError, match="is the file that is read"):
        run("attack", path, "--question", "Q?", "--target", "w", "--out", path)
    with pytest.raises(ValueError, match="is the file that is read"):
        run("stream", path, "--out", path)
    assert path.read_text() == before


def test_attack_keeps_fields_of_your_own(doubles, tmp_path):
    mine = [{**d, "url": "https://a.example", "score": 0.5} for d in docs(doubles, "x")]
    path, out = write(tmp_path / "docs.jsonl", mine), tmp_path / "bad.jsonl"
    run("attack", path, "--question", "Q?", "--target", "w", "--out", out)
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert told[1] == {**mine[0], "poisoned": False}


def test_attack_with_edited_copies(doubles, tmp_path):
    path, out = write(tmp_path / "docs.jsonl", docs(doubles, "xy", "xy")), tmp_path / "bad.jsonl"
    arguments = ["attack", path, "--kind", "edited", "--question", "Q?", "--target", "w",
                 "--out", out]  # fmt: skip
    assert run(*arguments, "--truth", "XY").exit_code == 0
    told = [json.loads(line) for line in out.read_text().splitlines()]
    assert told[0]["text"] == told[1]["text"].replace("xy", "w")
    with pytest.raises(ValueError, match="no document states it"):
        run(*arguments, "--truth", "zz")
    with pytest.raises(ValueError, match="truth: got an empty one"):
        run(*arguments)


def test_attack_refuses_no_copies_and_no_documents(doubles, tmp_path):
    path, out = write(tmp_path / "docs.jsonl", docs(doubles, "x")), tmp_path / "bad.jsonl"
    arguments = ["--question", "Q?", "--target", "w", "--out", out]
    assert (
        CliRunner()
        .invoke(app, ["attack", str(path), *map(str, arguments), "--copies", "0"])
        .exit_code
        == 2
    )
    path.write_text("")
    with pytest.raises(ValueError, match="holds no documents"):
        run("attack", path, *arguments)
    from armillary.context.radar.attacks import attack_texts

    with pytest.raises(ValueError, match="n=0"):
        attack_texts("pia", "Q?", "w", 0)
