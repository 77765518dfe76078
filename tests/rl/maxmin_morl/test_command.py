"""The command line on files: a process solved, a policy trained, a run shown."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from scipy import sparse

from armillary.cli.root import run
from armillary.rl.maxmin_morl import garnet, solve_tabular

from .conftest import two_contexts


def test_solve_writes_the_policy_and_its_proof(tmp_path):
    a = np.array([1.0, 3.0])
    P, r, c, mu = two_contexts(np.diag(a), -np.ones((2, 1)))
    np.savez(tmp_path / "mdp.npz", P=P, r=r, c=c, mu=mu, gamma=0.5, C=[-9.0])
    out, figures = tmp_path / "policy.npz", tmp_path / "figures.json"
    assert run(["maxmin-morl", "solve", str(tmp_path / "mdp.npz"), "-o", str(out),
                "--threshold", "-3", "--json", str(figures)]) == 0  # fmt: skip
    with np.load(out) as found:
        np.testing.assert_allclose(found["policy"].mean(axis=0), [0.75, 0.25], atol=1e-6)
        assert found["slack"][0] == pytest.approx(1.0)  # of the option, not of the file
    told = json.loads(figures.read_text())
    assert told["value_min"] == pytest.approx(1.5)
    assert abs(told["gap"]) < 1e-5


def test_sparse_processes_are_read(tmp_path):
    mdp = garnet(20, 3, 3, 2, 1, gamma=0.9, seed=0)
    P = sparse.csr_array(mdp.P)
    r, c = mdp.r.reshape(20, 3, 2), mdp.c.reshape(20, 3, 1)
    np.savez(tmp_path / "mdp.npz", P_data=P.data, P_indices=P.indices, P_indptr=P.indptr, r=r, c=c,
             C=mdp.C, gamma=0.9)  # fmt: skip
    out = tmp_path / "policy.npz"
    assert run(["maxmin-morl", "solve", str(tmp_path / "mdp.npz"), "-o", str(out)]) == 0
    dense = P.toarray().reshape(20, 3, 20)
    with np.load(out) as found:
        expected = solve_tabular(dense, r, c, mdp.C, gamma=0.9).value_min
        assert found["value_min"] == pytest.approx(expected, rel=1e-6)


def test_infeasible_thresholds_exit_2_with_what_can_be_reached(tmp_path, capsys):
    P, r, c, mu = two_contexts(np.eye(2), -np.ones((2, 1)))
    np.savez(tmp_path / "mdp.npz", P=P, r=r, c=c, mu=mu, gamma=0.5)
    assert run(["maxmin-morl", "solve", str(tmp_path / "mdp.npz"), "-o", str(tmp_path / "p.npz"),
                "--threshold", "-1"]) == 2  # fmt: skip
    assert "at most -2 alone" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "p.npz").exists()


def test_train_then_report(tmp_path, capsys):
    pytest.importorskip("sustaingym")
    folder = tmp_path / "run"
    assert run(
        ["maxmin-morl", "train", "--env", "armillary/BuildingZones-v0", "--constraint",
         "info:energy>=-180@discounted", "--steps", "512", "--n-envs", "2", "--episodes", "2",
         "-o", str(folder)]
    ) == 0  # fmt: skip
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.safetensors", "dual.csv", "dual.svg", "report.json", "settings.json"}
    with (folder / "dual.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        assert sum(float(row[f"w_{k}"]) for k in range(3)) == pytest.approx(1)
    capsys.readouterr()
    chart = tmp_path / "dual.json"
    assert run(["maxmin-morl", "report", str(folder), "--chart", str(chart)]) == 0
    told = capsys.readouterr().out
    assert "mixture" in told
    assert "info:energy>=-180@discounted" in told
    assert len(json.loads(chart.read_text())["vconcat"]) == 4
