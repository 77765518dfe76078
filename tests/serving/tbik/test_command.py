"""The command line on a user's own files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armillary.cli.root import run


@pytest.fixture
def prompt_file(tmp_path, prompts):
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps({"ids": p}) for p in prompts), "utf-8")
    return str(path)


def test_generate_and_diff(folder, prompt_file, tmp_path, capsys):
    a, b, c = (str(tmp_path / f"{name}.jsonl") for name in "abc")
    common = ["tbik", "generate", folder, "--prompts", prompt_file, "--tokens", "3"]
    assert run([*common, "--batch", "1", "-o", a]) == 0
    assert run([*common, "--tp", "2", "--batch", "4", "-o", b]) == 0
    assert run([*common, "--batch", "4", "--backend", "torch", "-o", c]) == 0
    rows = [json.loads(line) for line in Path(a).read_text("utf-8").splitlines()]
    assert all(len(row["sha256"]) == 64 and len(row["tokens"]) == 3 for row in rows)
    capsys.readouterr()
    assert run(["tbik", "diff", a, b]) == 0
    assert "4 equal in every bit, 0 not" in capsys.readouterr().out
    assert run(["tbik", "diff", a, c]) == 0
    assert "4 equal in every bit" not in capsys.readouterr().out


def test_audit_writes_its_report(folder, prompt_file, tmp_path, capsys):
    out = tmp_path / "report"
    arguments = ["--tp", "1", "--batch", "1,4", "--chunk", "0,16", "--tokens", "2", "-o", str(out)]
    assert run(["tbik", "audit", folder, "--prompts", prompt_file, *arguments]) == 0
    assert "every prompt has one output" in capsys.readouterr().out
    report = json.loads((out / "audit.json").read_text("utf-8"))
    assert report["invariant"] is True
    assert len(report["findings"]) == 4
    assert (out / "audit.csv").read_text("utf-8").count("\n") == 5


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (["--tp", "one"], '{"ids": [1]}', "give whole numbers by commas"),
        (["--dtype", "int8"], '{"ids": [1]}', "bfloat16 or float32"),
        ([], "", "is empty"),
        ([], "{", "line 1: no JSON"),
        ([], '{"text": "x"}', 'line 1: "prompt"'),
    ],
)
def test_bad_input_is_told(folder, tmp_path, capsys, arguments, content, message):
    path = tmp_path / "p.jsonl"
    path.write_text(content, "utf-8")
    code = run(["tbik", "audit", folder, "--prompts", str(path), *arguments, "-o", str(tmp_path)])
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_model_is_told(tmp_path, prompt_file, capsys):
    code = run(["tbik", "generate", str(tmp_path), "--prompts", prompt_file, "-o", "x.jsonl"])
    assert code == 2
    assert "config.json" in capsys.readouterr().err
