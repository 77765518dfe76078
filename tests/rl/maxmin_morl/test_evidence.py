"""The experiments' own statistics and rivals, on planted tables and small processes."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.evidence.shapes import Case, Cell, Row
from armillary.evidence.table import Table
from armillary.rl.maxmin_morl import evidence_deep, evidence_tabular, peers_tabular
from armillary.rl.maxmin_morl.generators import garnet
from armillary.rl.maxmin_morl.linear_program import solve_program


def table(rows: dict[str, list[tuple[float, float]]]) -> Table:
    """(worst, violation) of each contender by seed, one case."""
    made = [
        Row("maxmin-morl", "building", "full", "building", seed, who,
            metrics={"worst": worst, "violation": violation})
        for who, values in rows.items()
        for seed, (worst, violation) in enumerate(values)
    ]  # fmt: skip
    return Table.from_rows(made, [Case("building")], "seed")


def test_only_baselines_that_keep_the_limit_count():
    planted = table(
        {
            "ours": [(0.6, 0.0), (0.6, 0.04)],
            "unlimited": [(0.9, 0.3), (0.9, 0.3)],
            "lagrangian-mean": [(0.5, 0.0), (0.3, 0.09)],
            "uniform-weights": [(0.2, 0.0), (0.2, 0.0)],
        }
    )
    assert evidence_deep.over_best_feasible(planted) == pytest.approx(0.6 / 0.4)
    nobody = table({"ours": [(0.6, 0.0)], "unlimited": [(0.9, 0.3)]})
    assert evidence_deep.over_best_feasible(nobody) is None


def test_twenty_one_weights_cover_the_simplex():
    grid = evidence_deep.fixed_weights()
    assert len(grid) == 21
    assert all(sum(v["w_init"]) == pytest.approx(1) for v in grid.values())


def test_limits_of_the_processes_bind_and_can_be_met():
    for limits in (1, 2):
        mdp = garnet(20, 3, 3, 3, limits, gamma=0.9, seed=1)
        free = peers_tabular.unlimited(mdp)
        assert (mdp.returns(free)[3:] < mdp.C).any()
        assert np.isfinite(solve_program(mdp).value)  # raises if infeasible


def test_the_limited_mean_is_the_best_mean_and_not_the_best_worst():
    mdp = garnet(20, 3, 3, 3, 1, gamma=0.9, seed=2)
    J = mdp.returns(peers_tabular.limited_mean(mdp))
    best = mdp.returns(evidence_tabular.solve_mdp(mdp, "bundle").policy)
    assert J[:3].mean() >= best[:3].mean() - 1e-8
    assert J[:3].min() <= best[:3].min() + 1e-8
    assert J[3] >= mdp.C[0] - 1e-8


def test_best_of_front_keeps_the_limit_where_a_front_point_does():
    mdp = garnet(15, 3, 3, 2, 1, gamma=0.9, tightness=0.3, seed=3)
    J = mdp.returns(peers_tabular.best_of_front(mdp))
    assert J[2] >= mdp.C[0] - 1e-8
    assert J[:2].min() <= solve_program(mdp).value + 1e-8


def test_factor_of_a_geometric_descent():
    values = 3.0 + 0.9 ** np.arange(150)
    assert evidence_tabular._factor(values, 3.0) == pytest.approx(0.9**50, rel=1e-3)


def test_smoke_cells_of_tabular_experiments_run():
    experiment = evidence_tabular.EXACTNESS
    cell = Cell(experiment.cases["smoke"][0], 1000, "smoke")
    work = experiment.setup(cell)
    found = {c.name: c.run(work, cell) for c in experiment.contenders if "grad" not in c.name}
    assert found["ours"]["distance"] <= 1e-5
    assert found["unprojected"]["off_simplex"] > 1
    assert found["unlimited"]["violation"] > 0
