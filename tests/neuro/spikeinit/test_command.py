"""The command line: figures, files, and how it fails."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

pytest.importorskip("torch")

from armillary.cli.root import run

MODEL = """
import torch
from armillary.neuro.spikeinit import plain_mlp
def build():
    return plain_mlp(6, 64, inputs=16)
def nothing():
    return 3
def broken():
    network = build()
    with torch.no_grad():
        next(network.parameters())[0] = float("nan")
    return network
def divides():
    return Divides()
def silent():
    return torch.nn.Sequential(torch.nn.Linear(16, 3), torch.nn.ReLU())
def needs(depth):
    return plain_mlp(depth, 64, inputs=16)
class Summed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.network = build()
    def forward(self, x):
        return self.network(x).sum()
class Divides(torch.nn.Module):
    def forward(self, x):
        return 1 / 0
three = 3
"""


CHECK = ("check", "--input", "batch.npy", "-o", "p.csv")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "spikeinit_test_model.py").write_text(MODEL, "utf-8")
    np.save(tmp_path / "batch.npy", np.random.default_rng(0).standard_normal((64, 16)))
    (tmp_path / "spikeinit_test_broken.py").write_text("undefined", "utf-8")
    np.save(tmp_path / "wide.npy", np.ones((64, 7)))
    for name in ("text.npy", "text.npz"):
        (tmp_path / name).write_text("hello", "utf-8")
    for name in ("dir.csv", "dir.safetensors"):
        (tmp_path / name).mkdir()
    labels = np.arange(20) % 2
    np.savez(tmp_path / "words.npz", x=np.full((20, 4, 4), "a"), y=labels)
    images = np.random.default_rng(1).standard_normal((20, 2, 2))
    np.savez(tmp_path / "small.npz", x=images, y=labels)
    np.savez(tmp_path / "gaps.npz", x=images, y=labels * 10**12)
    np.savez(tmp_path / "alike.npz", x=images, y=labels * 0)
    np.savez(tmp_path / "bright.npz", x=np.abs(images) * 1e300, y=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def check(*more: str, model: str = "spikeinit_test_model:build", out: str = "p.csv") -> int:
    return run(["spikeinit", "check", model, "--input", "batch.npy", "-o", out, *more])


def test_solve_prints_the_theory(capsys):
    assert run(["spikeinit", "solve", "--tau", "2", "--rate", ".1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sigma"] == pytest.approx(2.5784, abs=1e-4)
    assert found["alpha"] == pytest.approx(2.3058, abs=1e-4)
    assert run(["spikeinit", "solve", "--tau", "1", "--rate", "auto"]) == 0
    assert "0.13" in capsys.readouterr().out
    assert run(["spikeinit", "solve", "--tau", "inf", "--steps", "4"]) == 0
    assert "sim" in capsys.readouterr().out


def test_solve_tells_an_unstable_rate(capsys):
    assert run(["spikeinit", "solve", "--tau", "1"]) == 0
    assert "grows from layer to layer" in capsys.readouterr().err


def test_check_shows_where_spikes_die_and_init_mends_it(folder, capsys):
    assert check("--chart", "c.svg") == 0
    assert "silent" in capsys.readouterr().err
    assert (folder / "c.svg").read_text("utf-8").startswith("<svg")
    assert check("--init", out="q.json") == 0
    before = list(csv.DictReader((folder / "p.csv").open(encoding="utf-8")))
    after = json.loads((folder / "q.json").read_text("utf-8"))
    assert len(before) == len(after) == 6
    assert float(before[-1]["rate"]) < 1e-3
    assert all(0.04 < row["rate"] < 0.25 for row in after)


@pytest.mark.parametrize("model", ["deep_ms_resnet:7", "deep_sew_resnet:7"])
def test_train_learns_and_writes_its_weights(folder, capsys, model):
    out = folder / "w.safetensors"
    arguments = ["--model", model, "--steps", "40", "-o", str(out)]
    assert run(["spikeinit", "train", *arguments]) == 0
    said = capsys.readouterr().out
    assert float(said.split("accuracy ")[1].split(" %")[0]) > 60
    from safetensors.numpy import load_file

    assert any(name.startswith("body.stem") for name in load_file(out))


def test_train_takes_your_own_images(folder, capsys):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    x = rng.standard_normal((200, 6, 6)) + 2 * y[:, None, None]
    np.savez(folder / "own.npz", x=x, y=y)
    arguments = ["--data", "own.npz", "--model", "plain_mlp:3", "--width", "64", "--steps", "60"]
    assert run(["spikeinit", "train", *arguments]) == 0
    assert float(capsys.readouterr().out.split("accuracy ")[1].split(" %")[0]) > 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["solve", "--tau", "0.5"], "--tau"),
        (["solve", "--rate", "lots"], "--rate"),
        (["solve", "--rate", "0.4"], "0.391"),
        (["solve", "--theta", "-1"], "theta"),
        (["solve", "--rate", "1e-9"], "farther from 0 and 0.39"),
        (["solve", "--tau", "1e9"], "between 0 and 3.112e-08"),
        ([*CHECK, "spikeinit_test_model:silent"], "no spiking neuron that is known"),
        ([*CHECK, "spikeinit_test_model:silent", "--init"], "neurons={MyLIF"),
        ([*CHECK, "spikeinit_test_model:divides", "--init"], "ZeroDivisionError"),
        (["train", "--data", "gaps.npz"], "numbered from 0"),
        (["train", "--data", "alike.npz"], "1 different labels"),
        (["train", "--data", "bright.npz"], "single precision"),
        (["solve", "--theta", "1e-320"], "theta"),
        (["solve", "--reset", "never"], "reset"),
        ([*CHECK, "no_such_module:build"], "no_such_module"),
        ([*CHECK, "spikeinit_test_broken:build"], "NameError"),
        ([*CHECK, "spikeinit_test_model:three"], "int"),
        ([*CHECK, "spikeinit_test_model:needs"], "needs()"),
        ([*CHECK, "spikeinit_test_model:Summed"], "()"),
        (["check", "spikeinit_test_model:build", "--input", "wide.npy", "-o", "p.csv"], "(64, 7)"),
        (
            ["check", "spikeinit_test_model:build", "--init", "--input", "wide.npy", "-o", "p.csv"],
            "(64, 7)",
        ),
        (["check", "spikeinit_test_model:build", "--input", "text.npy", "-o", "p.csv"], "no array"),
        (
            ["check", "spikeinit_test_model:build", "--input", "batch.npy", "-o", "dir.csv"],
            "folder",
        ),
        (["train", "--data", "dir.csv"], "dir.csv"),
        (["train", "--data", "text.npz"], "text.npz"),
        (["train", "--data", "words.npz"], "words.npz"),
        (["train", "--data", "small.npz", "--model", "vgg9_snn", "--steps", "1"], "(2, 2)"),
        (["train", "--model", "deep_ms_resnet:"], "after the colon"),
        (["train", "--block-scale", "0"], "block_scale"),
        (["train", "-o", "dir.safetensors"], "folder"),
        (["check", "nomodule", "--input", "batch.npy", "-o", "p.csv"], "MODULE:FUNCTION"),
        (["check", "spikeinit_test_model:no", "--input", "batch.npy", "-o", "p.csv"], "has no no"),
        (["check", "spikeinit_test_model:nothing", "--input", "batch.npy", "-o", "p.csv"], "int"),
        (["check", "spikeinit_test_model:build", "--input", "no.npy", "-o", "p.csv"], "--input"),
        (["check", "spikeinit_test_model:build", "--input", "batch.npy", "-o", "p.x"], ".csv"),
        (["check", "spikeinit_test_model:build", "--input", "batch.npy", "-o", "no/p.csv"], "-o"),
        (["train", "--data", "nowhere"], "--data"),
        (["train", "--model", "alexnet"], "--model"),
        (["train", "--model", "plain_mlp:deep"], "--model"),
        (["train", "--model", "deep_ms_resnet:3"], "depth=3"),
        (["train", "--lr", "-1"], "lr"),
        (["train", "--batch", "100000"], "--batch 100000: there are 1438 rows"),
        ([*CHECK, "spikeinit_test_model:build", "--rate", ".2"], "--init"),
    ],
)
def test_bad_input_is_told_in_one_line_and_exits_2(folder, arguments, said, capsys):
    assert run(["spikeinit", *arguments]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
    assert len(shown.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.array([["a"]]), "numbers"),
        (np.ones(3), "batch"),
        (np.full((2, 2), np.nan), "finite"),
        (np.zeros((0, 16)), "empty"),
    ],
)
def test_batches_that_are_none_are_refused(folder, content, said, capsys):
    np.save(folder / "batch.npy", content)
    assert check() == 2
    assert said in capsys.readouterr().err


def test_pickles_are_refused_without_advice_to_allow_them(folder, capsys):
    np.save(folder / "batch.npy", np.array([{1: 2}], dtype=object), allow_pickle=True)
    assert check() == 2
    assert "pickle" not in capsys.readouterr().err


def test_a_folder_is_read_itself_and_names_what_it_lacks(folder, capsys):
    assert run(["spikeinit", "train", "--data", "dir.csv", "--steps", "1"]) == 2
    shown = capsys.readouterr().err
    assert "dir.csv" in shown
    assert "train-images-idx3-ubyte.gz" in shown


def test_the_scale_of_blocks_falls_with_their_number():
    from armillary.neuro.spikeinit.command import _block_scale

    found = [_block_scale(f"deep_ms_resnet:{depth}") for depth in (7, 101, 201, 1000)]
    assert found == pytest.approx([1, 1, 0.5, 50 / 499])
    assert _block_scale("plain_mlp:500") == _block_scale("vgg9_snn") == 1


def test_a_loss_that_runs_away_is_told(folder, capsys):
    arguments = ["--model", "deep_ms_resnet:7", "--steps", "3", "--lr", "1e30"]
    assert run(["spikeinit", "train", *arguments]) == 0
    assert "ran away: take a lower --lr" in capsys.readouterr().err


def test_weights_that_are_not_finite_are_named(folder, capsys):
    words = ["spikeinit", CHECK[0], "spikeinit_test_model:broken", *CHECK[1:]]
    assert run(words) == 2
    told = capsys.readouterr().err
    assert "weight holds NaN or infinite numbers" in told
    assert not (folder / "p.csv").exists()
    assert run([*words, "--init"]) == 0
