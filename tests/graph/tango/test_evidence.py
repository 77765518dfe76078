"""The experiments: statistics of their own on planted tables, and work that is as it says."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch_geometric")

from armillary.evidence.shapes import Case, Cell, Row
from armillary.evidence.table import Table
from armillary.graph.tango import (
    evidence_citation,
    evidence_flow,
    evidence_training,
    evidence_transfer,
    tuning,
)
from armillary.graph.tango.evidence import EXPERIMENTS
from armillary.graph.tango.evidence_training import Course, Problem
from armillary.graph.tango.tuned import Setting


def citation_table(values: dict[tuple[str, int, str], tuple[float, float]]) -> Table:
    """(set, depth, contender) -> (accuracy, validation accuracy), one seed."""
    cases = {
        (name, depth): Case(
            f"{name}/{depth}", x={"set": evidence_citation.SETS.index(name), "depth": depth}
        )
        for name, depth, _ in values
    }
    rows = [
        Row("tango", "citation", "full", cases[name, depth].name, 0, who,
            metrics={"accuracy": accuracy, "val_accuracy": val})
        for (name, depth, who), (accuracy, val) in values.items()
    ]  # fmt: skip
    return Table.from_rows(rows, list(cases.values()), "seed")


def test_lead_is_taken_at_the_depth_of_the_best_validation():
    planted = citation_table(
        {
            ("cora", 2, "ours"): (0.70, 0.80), ("cora", 8, "ours"): (0.90, 0.75),
            ("cora", 2, "gcn2"): (0.60, 0.60), ("cora", 8, "gcn2"): (0.72, 0.79),
            ("cora", 2, "gcn"): (0.71, 0.78), ("cora", 8, "gcn"): (0.99, 0.10),
        }
    )  # fmt: skip
    # Ours at depth 2 by validation (0.70), the best rival GCNII at depth 8 (0.72).
    assert evidence_citation.lead(0)(planted) == pytest.approx(-2.0)
    assert evidence_citation.lead(1)(planted) is None


def test_what_is_kept_at_depth_32_is_the_worse_of_both_sets():
    planted = citation_table(
        {
            ("cora", 8, "ours"): (0.80, 0.8), ("cora", 32, "ours"): (0.72, 0.8),
            ("citeseer", 8, "ours"): (0.70, 0.7), ("citeseer", 32, "ours"): (0.70, 0.7),
        }
    )  # fmt: skip
    assert evidence_citation.kept_at_32(planted) == pytest.approx(0.9)


def test_every_experiment_has_enough_units_for_a_verdict():
    for experiment in EXPERIMENTS:
        assert experiment.seeds["full"] >= 3
        assert experiment.cases["smoke"]


def test_settings_are_tuned_away_from_reported_seeds():
    reported = max(max(e.seeds.values()) for e in EXPERIMENTS)
    assert min(tuning.SEEDS) >= 1000 > reported
    for task in ("transfer", "properties", "citation", "molecules"):
        around = tuning.AROUND if task in tuning.CONVOLUTIONS else ("gps",)
        alike = [n for n in tuning.contenders(task) if n not in (*tuning.STEPLESS, *around)]
        assert len({tuple(tuning.grid(task, name)) for name in alike}) == 1
        if task in tuning.CONVOLUTIONS:
            assert set(tuning.grid(task, "ours")) == set(tuning.grid(task, "a-dgn"))


def test_a_horizon_is_shared_by_all_steps():
    assert Setting(step=0.5).step_at(32) == 0.5
    assert Setting(horizon=2.0).step_at(8) == 0.25
    tried = {setting.horizon for setting in tuning.grid("citation", "a-dgn")}
    assert tried == {0.0, *tuning.HORIZONS["citation"]}


def test_tuning_tries_weight_decays_at_the_best_setting(monkeypatch):
    def fitted(name, work, course, setting, seed):
        return abs(setting.lr - 0.1) + abs(setting.step_at(8) - 0.25) + (setting.weight_decay or 1)

    monkeypatch.setattr(tuning, "problem", lambda task, seed: (None, None))
    monkeypatch.setattr(tuning, "fitted", fitted)
    monkeypatch.setattr(tuning, "validation", lambda model, work, course: model)
    best, errors = tuning.tune("citation", "ours", (1000,))
    assert best == Setting(0.1, horizon=2.0, weight_decay=1e-2)
    assert len(errors) == 2 * 4 + 2


def test_the_epoch_is_chosen_by_what_the_course_says(monkeypatch):
    work = Problem((), (), (), 1, 2, "node", classes=True)
    monkeypatch.setattr(evidence_training, "accuracy", lambda model, parts: 0.75)
    monkeypatch.setattr(evidence_training, "loss_of", lambda model, parts, classes: 3.0)
    model: Any = None
    assert evidence_training.validation(model, work, Course(1, 2, 8, by="error")) == 0.25
    assert evidence_training.validation(model, work, Course(1, 2, 8)) == 3.0


def test_the_fold_that_chooses_settings_is_not_reported(tmp_path, monkeypatch):
    chem = pytest.importorskip("rdkit.Chem")
    from armillary.graph.tango import evidence_graphs

    path = tmp_path / "train.sdf"
    with chem.SDWriter(str(path)) as writer:
        for n in range(1, 21):
            molecule = chem.MolFromSmiles("C" * n)
            molecule.SetProp("SOL", str(float(n)))
            writer.write(molecule)
    monkeypatch.setattr("armillary.corpora.external", lambda name: str(path))

    def values(found) -> set[float]:
        return {v for part in found for v in part.y.flatten().tolist()}

    chosen = values(tuning.problem("molecules", tuning.SEEDS[0])[0].val)
    assert len(chosen) == 4
    tested: list[float] = []
    for seed in range(evidence_graphs.MOLECULES.seeds["full"]):
        work = evidence_graphs.molecules(Cell(Case("s", x={"molecules": 2000}), seed, "full"))
        assert values(work.val) == chosen
        assert not values(work.train) & (values(work.test) | chosen)
        assert len(values(work.train)) == 12
        tested += values(work.test)
    assert len(tested) == len(set(tested)) == 16
    assert not set(tested) & chosen


def test_flow_measures_what_it_says():
    cell = Cell(Case("float32", x={"bits": 32}), 3, "smoke")
    work = evidence_flow.many_graphs(cell)
    assert int(work.batch.max()) == 9
    found = evidence_flow.flow()(work, cell)
    assert found["rising_share"] == 0
    assert 0 < found["cosine"] <= 1e-5
    assert evidence_flow.flow(stable="none")(work, cell)["largest_rise"] > 0


def test_ring_asks_for_the_target_alone():
    cell = Cell(Case("ring/4", x={"distance": 4, "topology": 0}), 0, "smoke")
    work = evidence_transfer.ring(cell)
    part = work.test[0]
    assert part.y[part.rows].tolist() == [0, 1, 2, 3, 4]
    assert part.rows.tolist() == [8 * i + 4 for i in range(5)]


def test_molecules_are_read_with_their_bonds(tmp_path):
    chem = pytest.importorskip("rdkit.Chem")
    from armillary.graph.tango.molecules import FEATURES, read_sdf

    path = tmp_path / "m.sdf"
    with chem.SDWriter(str(path)) as writer:
        for smiles, value in (("CCO", "-0.5"), ("c1ccccc1", "1.25"), ("CC", None)):
            molecule = chem.MolFromSmiles(smiles)
            if value is not None:
                molecule.SetProp("SOL", value)
            writer.write(molecule)
    ethanol, benzene = read_sdf(path, "SOL")
    assert ethanol.x.shape == (3, FEATURES)
    assert ethanol.edge_index.T.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert benzene.edge_attr.tolist() == [[0.0, 1.0, 0.0, 0.0]] * 12
    assert [float(ethanol.y), float(benzene.y)] == [-0.5, 1.25]
    with pytest.raises(ValueError, match="no molecule has the property 'LOGP'"):
        read_sdf(path, "LOGP")
