"""The sub-command from text to a quantised model, and how it refuses."""

from __future__ import annotations

import json

import pytest
import torch

from armillary.cli.root import run
from armillary.serving.gemq.tasks import small_moe

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "and", "then", "it"]


def tokenizer():
    """Words by white space."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[UNK]", *WORDS])}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


def prose(seed: int, words: int = 400) -> str:
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (words,), generator=generator))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = tokenizer()
    small_moe().save_pretrained("moe")
    words.save_pretrained("moe")
    (tmp_path / "a.txt").write_text(prose(1))
    lines = [json.dumps({"text": prose(i, 80)}) for i in (2, 3)]
    (tmp_path / "b.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


SHORT = ["--length", "32", "--sequences", "4"]


def test_from_text_to_a_small_model(place, capsys):
    assert run(["gemq", "collect", "moe", "a.txt", "-o", "imp.npz", "--bits", "2,3,4", *SHORT]) == 0
    assert "2 layers of 4 experts, 128 tokens" in capsys.readouterr().out
    assert run(["gemq", "allocate", "imp.npz", "--avg-bits", "3", "-o", "bits.json"]) == 0
    assert "3.000 bits on average" in capsys.readouterr().out
    measured = ["moe", "imp.npz", "b.jsonl", "--avg-bits", "3", "-o", "capped.json", *SHORT]
    for quantizer in ("rtn", "gptq"):
        assert run(["gemq", "trust", *measured, "--quantizer", quantizer]) == 0
        assert "cap above the average\tdivergence" in (said := capsys.readouterr().out)
        assert "0\t" in said
    assert run(["gemq", "quantize", "moe", "bits.json", "a.txt", "-o", "small", *SHORT]) == 0
    assert "0.219 of bfloat16 -> small" in capsys.readouterr().out
    report = json.loads((place / "small" / "gemq_report.json").read_text())
    assert len(report["router"]) == 4
    assert sorted(p.name for p in place.iterdir() if p.name.startswith(".")) == []

    code = run(["gemq", "eval", "small", "b.jsonl", "--ref", "moe", "-o", "e.json", *SHORT])
    assert code == 0
    found = json.loads((place / "e.json").read_text())
    assert found["expert_bytes"] == report["expert_bytes"]
    assert found["excess"] == pytest.approx(found["log_ppl"] - found["reference_log_ppl"])
    assert run(["gemq", "eval", "small", "a.txt", "--ref", "moe", *SHORT]) == 2
    assert "a.txt is the text that small was calibrated on" in capsys.readouterr().err

    assert run(["gemq", "dense", "small", "-o", "plain"]) == 0
    assert "quantization_config" not in json.loads((place / "plain" / "config.json").read_text())


def test_a_dense_llama_becomes_a_mixture(place, capsys):
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(
        LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=128, num_hidden_layers=1,
                    num_attention_heads=2)
    ).save_pretrained("llama")  # fmt: skip
    tokenizer().save_pretrained("llama")
    given = ["--model", "llama", "--text", "a.txt", "--experts", "2", "--top-k", "1"]
    assert run(["gemq", "make-moe", *given, "--steps", "2", "-o", "made", *SHORT]) == 0
    assert "2 experts a layer, 1 a token" in capsys.readouterr().out
    assert json.loads((place / "made" / "config.json").read_text())["model_type"] == "mixtral"
    assert run(["gemq", "collect", "llama", "a.txt", "-o", "x.npz", *SHORT]) == 2
    assert "is dense: it has no experts. armillary.serving.gemq.moefy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collect", "none", "a.txt", "-o", "x.npz"], "'none' has no config.json"),
        (["collect", "moe", "a.txt", "-o", "x.npz", "--bits", "two"], "--bits 'two'"),
        (
            ["collect", "moe", "a.txt", "-o", "x.npz", "--length", "900"],
            "400 tokens in 1 documents",
        ),
        (["collect", "moe", "empty.txt", "-o", "x.npz"], "empty.txt has no text"),
        (["collect", "moe", "bad.jsonl", "-o", "x.npz"], 'bad.jsonl, line 1: {"text"'),
        (["allocate", "a.txt", "--avg-bits", "2", "-o", "x.json"], "is no file of `armillary gemq"),
        (["quantize", "moe", "a.txt", "a.txt", "-o", "x"], "is no plan of `armillary gemq"),
        (["quantize", "moe", "x.json", "a.txt", "-o", "moe"], "--out 'moe' is there already"),
    ],
)
def test_bad_input_is_told_in_one_line(place, capsys, arguments, message):
    (place / "empty.txt").write_text(" \n")
    (place / "bad.jsonl").write_text("[1]\n")
    assert run(["gemq", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_an_average_outside_the_widths_is_told(place, capsys):
    assert run(["gemq", "collect", "moe", "a.txt", "-o", "imp.npz", *SHORT]) == 0
    assert run(["gemq", "allocate", "imp.npz", "--avg-bits", "4", "-o", "x.json"]) == 2
    assert "legal" in (said := capsys.readouterr().err) or "1 to 3 bits on average" in said
