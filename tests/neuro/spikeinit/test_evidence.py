"""The experiments: contenders are what they are called, and metrics count what they say."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
import torch
from torch import nn

from armillary.evidence.shapes import Case, Cell
from armillary.neuro.spikeinit import (
    evidence,
    evidence_depth,
    evidence_sew,
    evidence_thousand,
    evidence_trained,
    solve,
)
from armillary.neuro.spikeinit import evidence_networks as networks


def test_the_alpha_of_the_evidence_is_that_of_the_theory():
    assert solve(0.5, 0.5, 0.5, 0.1).alpha == pytest.approx(networks.THEORY, abs=1e-4)


def test_every_contender_of_a_family_is_built_as_named():
    sample = networks.digits(0).x[:32]
    ours = [name for name in networks.OURS if name != "no-sew-rule"]
    for name in (*evidence.INITS, *evidence.BATCH_NORMS, *ours):
        model = networks.build(name, "plain", 3, 16, sample, 0)
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        assert bool(norms) == (name in evidence.BATCH_NORMS), name
    zero = networks.build("tdbn-zero", "residual", 7, 4, sample, 0)
    assert not zero.body.blocks[0].conv2[1].weight.any()
    assert networks.build("tdbn", "residual", 7, 4, sample, 0).body.blocks[0].conv2[1].weight.any()


def test_the_zero_branch_alone_is_told_apart_from_the_scale_of_weights():
    """kaiming-zero shares with ours all that is zero, and with kaiming every other weight."""
    sample = networks.digits(0).x[:32]
    ours, zero, he = (
        networks.build(name, "residual", 7, 4, sample, 0)
        for name in ("ours", "kaiming-zero", "kaiming")
    )
    for model in (ours, zero):
        assert not model.readout.weight.any()
        assert not any(block.conv2.weight.any() for block in model.body.blocks)
    for mine, his in zip(zero.body.blocks, he.body.blocks, strict=True):
        assert mine.conv1.weight.equal(his.conv1.weight)
    ratio = float(ours.body.blocks[0].conv1.weight.std() / zero.body.blocks[0].conv1.weight.std())
    assert ratio > 1.5
    with pytest.raises(ValueError, match="only residual networks have branches"):
        networks.build("kaiming-zero", "plain", 3, 16, sample, 0)


def test_every_normalisation_and_ours_went_through_the_grid():
    for family, rivals in (
        ("plain", evidence.BATCH_NORMS),
        ("sequence", evidence.BATCH_NORMS),
        ("residual", evidence.RESIDUAL_NORMS),
        ("sew", evidence.RESIDUAL_NORMS),
    ):
        for name in ("ours", *rivals):
            setting = networks.TUNED[family, name]
            assert setting in networks.GRID, (family, name)


def test_the_sew_rule_is_what_its_ablation_lacks():
    sample = networks.digits(0).x[:32]
    ours, without = (
        networks.build(name, "sew", 7, 4, sample, 0) for name in ("ours", "no-sew-rule")
    )
    scale = [float(m.body.blocks[0].conv2.weight.detach().std()) for m in (ours, without)]
    assert scale[0] < 0.3 * scale[1]
    assert torch.equal(ours.body.blocks[0].conv1.weight, without.body.blocks[0].conv1.weight)


def test_sequences_are_images_read_a_row_a_step():
    model = networks.build("tebn", "sequence", 2, 16, torch.randn(4, 1, 6, 5), 0)
    assert model.T == 6
    assert model.body[1][0].in_features == 5
    seen = []
    model.body.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = torch.randn(4, 1, 6, 5)
    model(images)
    assert torch.equal(seen[0][2, 3], images[3, :, 2])


def test_a_network_that_never_comes_to_80_percent_counts_with_its_last_step():
    class Best(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.one_hot(x.flatten().long(), 10).float()

    y = torch.arange(10).repeat(30)
    x = torch.where(torch.arange(300) % 10 < 7, y, (y + 1) % 10).view(-1, 1, 1, 1).float()
    rising = evidence_trained.Rising(Best(), networks.Split(x, y, x, y))
    for step in (25, 26, 50):
        rising(step, 0.0)
    assert rising.reached == {60: 25}


def test_sew_sums_stay_at_the_design_by_the_rule_only():
    cell = Cell(Case("c", x={"depth": 13, "width": 8}), 1000, "smoke")
    work = networks.digits(1000)
    found = {c.name: c.run(work, cell) for c in evidence_sew.SEW_PROFILE.contenders[:2]}
    assert found["ours"]["branch_rate"] < 0.01 < found["no-sew-rule"]["branch_rate"]
    assert found["ours"]["sum_error"] < found["no-sew-rule"]["sum_error"]


@pytest.mark.parametrize("name", ["spikingjelly", "snntorch"])
def test_hosts_have_their_own_neurons_and_fall_silent(name):
    pytest.importorskip(name)
    cell = Cell(Case("c", x={"width": 32, "depth": 12}), 1000, "smoke")
    found = evidence_depth.host(name)(evidence_depth.spike_trains(cell), cell)
    assert found["rate_10"] <= 1e-4


def test_alphas_are_the_contenders_own():
    sample = networks.digits(0).x[:32]
    built = {
        name: networks.build(name, "plain", 2, 8, sample, 0, alpha).body[2].alpha
        for name, alpha in (("ours", 1.7), ("theory-alpha", 1.7), ("unit-alpha", 1.7))
    }
    assert built == {"ours": 1.7, "theory-alpha": networks.THEORY, "unit-alpha": 1.0}


def test_work_is_the_same_for_the_same_seed():
    first, again = networks.digits(3), networks.digits(3)
    assert torch.equal(first.x, again.x)
    assert (len(first.x), len(first.x_test)) == (1100, 397)
    assert not torch.equal(first.y, networks.digits(4).y)


def test_development_never_sees_the_digits_that_are_reported():
    held = {row for seed in range(5) for row in networks.digit_rows(seed)[1].tolist()}
    assert len(held) == 397
    for seed in (0, 1, 1000, 1001, 1234):
        rows, tests = (set(part.tolist()) for part in networks.digit_rows(seed))
        assert not rows & held
        assert not rows & tests
        assert bool(tests & held) == (seed < 1000)


def test_contenders_and_families_that_are_none_are_refused():
    sample = networks.digits(0).x[:8]
    for who, family in (("tdnb", "plain"), ("ours", "plane"), ("tdbn-zero", "plain")):
        with pytest.raises(ValueError, match=r"who=|family="):
            networks.build(who, family, 3, 8, sample, 0)


@pytest.mark.parametrize("arguments", [("plane", "ours"), ("plain", "tdnb")])
def test_tuning_refuses_them_too(arguments, tmp_path):
    import typer

    from armillary.neuro.spikeinit import tuning

    with pytest.raises(typer.BadParameter, match=r"plane|tdnb"):
        tuning.main(arguments[0], [arguments[1]], tmp_path / "t.csv")


def test_a_rival_that_fires_has_the_surrogate_that_keeps_its_gradient_best():
    cell = Cell(Case("c", x={"width": 64, "depth": 12}), 0, "smoke")
    found = evidence_depth.rival("ding")(evidence_depth.spike_trains(cell), cell)
    assert found["alpha"] in evidence_depth.ALPHAS
    assert abs(found["gradient"]) <= abs(found["gradient_unit_alpha"])


def test_branches_that_are_out_from_the_start_are_never_trained():
    cell = Cell(Case("c", x={"depth": 7, "width": 4, "steps": 2, "batch": 8}), 1000, "smoke")
    work = networks.digits(1000)
    assert set(evidence_thousand.thousand("trunk-only")(work, cell)) == {"accuracy", "finite"}
    ours = evidence_thousand.thousand("ours")(work, cell)
    assert 0 < ours["branches_moved"] < 1
    assert 0 < ours["branch_variance"] < 1


def test_gradients_that_die_or_overflow_stay_on_the_scale():
    cell = Cell(Case("c", x={"width": 16, "depth": 60}), 0, "smoke")
    work = evidence_depth.spike_trains(cell)
    dead = evidence_depth.rival("kaiming")(work, cell)
    assert dead["gradient"] == evidence_depth.FLOOR
    assert dead["rate_100"] == 0
    wild = evidence_depth.initialised(lambda p: (p.sigma, 1e3 * p.alpha))(work, cell)
    assert all(math.isfinite(value) for value in wild.values())


def test_fluctuation_sees_the_input_as_spikes_in_its_first_layer():
    """Its gain is that of hidden layers there: the first rates of both layers are alike."""
    cell = Cell(Case("c", x={"width": 512, "depth": 1}), 0, "smoke")
    found = evidence_depth.rival("fluctuation")(evidence_depth.spike_trains(cell), cell)
    assert 0.001 < found["rate_100"] < 0.06


def test_spikes_are_counted_a_sample():
    class Always(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            from armillary.neuro.spikeinit import LIF

            self.neuron = LIF(0.0, 1.0, 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.neuron(torch.ones(3, len(x), 5))

    x = torch.zeros(7, 1, 2, 2)
    split = networks.Split(x, torch.zeros(7), x, torch.zeros(7))
    assert evidence_trained.spikes_sent(Always(), split) == 3 * 5
