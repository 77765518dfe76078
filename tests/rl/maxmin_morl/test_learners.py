"""The learners: what they learn from, estimate and keep, on problems with known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer

from armillary.rl.maxmin_morl import ConstrainedMaxMinPPO, ConstrainedMaxMinSAC, Constraint
from armillary.rl.maxmin_morl.constraints import Signals
from armillary.rl.maxmin_morl.fairness import jain_index, summarise
from armillary.rl.maxmin_morl.networks import UnitScale
from armillary.rl.maxmin_morl.returns import Episodes
from armillary.rl.maxmin_morl.rollouts import VectorRolloutBuffer
from armillary.rl.maxmin_morl.value_scale import ValueScale
from armillary.rl.maxmin_morl.vector_env import LocalVecEnv, SignalVecEnv

from .conftest import Scales

SMALL = {"n_envs": 4, "n_steps": 40, "batch_size": 40, "n_epochs": 4, "seed": 0}


@pytest.mark.parametrize("text", ["info:energy>=-180@discounted", "reward:2<=30@episode"])
def test_limits_read_and_write_themselves(text):
    assert str(Constraint.parse(text)) == text


def test_a_limit_from_above_is_turned_round():
    limit = Constraint("reward:2", "<=", 30.0, "episode")
    assert (limit.sign, limit.bound, limit.component) == (-1.0, -30.0, 2)
    signals = Signals(3, [limit], scale=[2.0, 1.0])
    rewards = np.array([[4.0, 5.0, 6.0]])
    np.testing.assert_allclose(signals.read(rewards, [{}]), [[2.0, 5.0, -6.0]])


def test_vector_advantages_are_the_scalar_ones_of_each_signal():
    space = Scales().observation_space, Scales().action_space
    rng = np.random.default_rng(0)
    vector = VectorRolloutBuffer(6, *space, n_envs=2, gamma=0.9, gae_lambda=0.8, signals=3)
    scalars = [RolloutBuffer(6, *space, n_envs=2, gamma=0.9, gae_lambda=0.8) for _ in range(3)]
    last, dones = rng.normal(size=(2, 3)).astype(np.float32), np.array([False, True])
    for _ in range(6):
        reward, value = rng.normal(size=(2, 3, 2)).astype(np.float32).transpose(2, 0, 1)
        start = rng.random(2) < 0.3
        seen, action = np.zeros((2, 2)), np.zeros((2, 3))
        log_prob = torch.zeros(2)
        vector.add(seen, action, reward, start, torch.tensor(value), log_prob)
        for i, buffer in enumerate(scalars):
            buffer.add(seen, action, reward[:, i], start, torch.tensor(value[:, i]), log_prob)
    vector.compute_returns_and_advantage(torch.tensor(last), dones)
    for i, buffer in enumerate(scalars):
        buffer.compute_returns_and_advantage(torch.tensor(last[:, i]), dones)
        np.testing.assert_allclose(vector.advantages[..., i], buffer.advantages, atol=1e-5)
        np.testing.assert_allclose(vector.returns[..., i], buffer.returns, atol=1e-5)


def test_residuals_mend_any_critic():
    # A constant reward of 1 and a critic that says 0: delta = 1, J = 0 + 1 / (1 - gamma).
    space = Scales().observation_space, Scales().action_space
    buffer = VectorRolloutBuffer(5, *space, n_envs=2, gamma=0.9, signals=2)
    for t in range(5):
        buffer.ages[t] = t
        buffer.add(np.zeros((2, 2)), np.zeros((2, 3)), np.ones((2, 2)), np.zeros(2),
                   torch.zeros(2, 2), torch.zeros(2))  # fmt: skip
    buffer.compute_returns_and_advantage(torch.zeros(2, 2), np.zeros(2))
    np.testing.assert_allclose(buffer.correction(), [10.0, 10.0])


def test_returns_of_episodes_are_summed_with_and_without_discount():
    episodes = Episodes(2, 1, gamma=0.5, keep=5)
    episodes.partial(np.array([False, True]))
    for t in range(3):
        done = np.array([t == 2, t == 1])
        finished = episodes.add(np.array([[1.0], [2.0]]), done)
    assert [i for i, _ in finished] == [0]
    np.testing.assert_allclose(episodes.discounted[-1], [1.75])
    np.testing.assert_allclose(episodes.plain[-1], [3.0])
    assert list(episodes.lengths) == [3]  # the partial one is left out
    assert episodes.ratio == pytest.approx(1.75 / 3)


def test_the_report_judges_limits_in_their_own_units():
    gamma, steps = 0.9, np.array([10, 10])
    weight = (1 - gamma**10) / (1 - gamma)
    discounted = np.array([[2.0, 4.0, -weight], [4.0, 4.0, -weight]])
    plain = np.array([[0.0, 0.0, -10.0], [0.0, 0.0, -10.0]])
    limits = [Constraint("info:e", ">=", bound, kind) for bound, kind in ((-9.0, "episode"),)]
    found = summarise(discounted, plain, steps, limits, gamma, np.ones(2) / 2, np.zeros(1))
    assert found.minimum == 3.0
    assert found.worst == 0
    assert found.slack[0] == pytest.approx(-1.0)
    assert found.violation == pytest.approx(1 / 9)
    assert found.violation_rate[0] == 1.0
    np.testing.assert_allclose(found.per_step, np.array([3.0, 4.0]) / weight)
    average = [Constraint("info:e", "<=", 0.7, "average")]
    turned = summarise(-discounted, plain, steps, average, gamma, np.ones(2) / 2, np.zeros(1))
    assert turned.values[0] == pytest.approx(-weight * (1 - gamma))  # back in its own sense


def test_jain_index_of_known_vectors():
    assert jain_index(np.array([2.0, 2.0, 2.0])) == pytest.approx(1)
    assert jain_index(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)


def test_running_moments_are_those_of_all_observations():
    rng = np.random.default_rng(0)
    seen = rng.normal(3, 2, (500, 2)).astype(np.float32)
    scale = UnitScale(Scales().observation_space)
    for part in np.array_split(seen, 7):
        scale.observe(torch.tensor(part))
    np.testing.assert_allclose(scale.mean, seen.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(scale.var, seen.var(axis=0), rtol=1e-2)


def test_values_stay_while_their_scale_moves():
    layer, scale = torch.nn.Linear(4, 2).double(), ValueScale(2, 0.9)
    features, rng = torch.randn(8, 4).double(), np.random.default_rng(0)
    for _ in range(3):
        before = scale.values(layer(features)).detach()
        signals = rng.normal([5.0, -300.0], [1.0, 20.0], (6, 2))
        scale.follow(layer, signals.mean(axis=0), 10 * signals, 10.0)
        torch.testing.assert_close(
            scale.values(layer(features)).detach(), before, rtol=1e-4, atol=1e-3
        )
        torch.testing.assert_close(scale.values(scale.targets(before)), before)
    assert scale.offset[1] == pytest.approx(-3000, rel=0.1)


def test_truncation_is_not_termination():
    venv = SignalVecEnv(LocalVecEnv([Scales]), Signals(3, []))
    venv.reset()
    for _ in range(20):
        venv.step_async(np.zeros((1, 3)))
        _, _, dones, infos = venv.step_wait()
    assert dones[0]
    assert infos[0]["TimeLimit.truncated"]
    assert infos[0]["terminal_observation"].shape == (2,)


@pytest.fixture(scope="module")
def trained():
    """Rewards 1 + (1, 1/2, 1/4) a, energy -sum |a| >= -1.5 a step: the best worst is 1.214.

    a_k s_k = t for all k with sum a = 1.5: t = 1.5 / (1 + 2 + 4) = 0.2143, a = (.214, .429, .857).
    """
    model = ConstrainedMaxMinPPO(
        Scales, ["info:energy>=-1.5@average"], gamma=0.9, learning_rate=5e-3, warmup=0.0,
        gae_lambda=0.5, seed=0, n_envs=8, n_steps=20, batch_size=80, n_epochs=4,
    )  # fmt: skip
    model.learn(8000)
    return model


def test_ppo_lifts_the_worst_and_keeps_the_limit(trained):
    report = trained.evaluate(8, policy="mixture")
    weight = (1 - 0.9**20) * 1.0  # of the average over an endless episode
    assert report.minimum * 0.1 / weight > 1.10  # uniform play at the limit: 1 + 0.125
    assert report.violation <= 0.1
    assert report.w[2] > report.w[0]  # the objective that is hardest to move weighs most
    assert trained.dual_history[-1].w.sum() == pytest.approx(1)


def test_evaluation_leaves_the_policy_as_it_was(trained):
    before = {k: v.clone() for k, v in trained.policy.state_dict().items()}
    trained.evaluate(3, policy="mixture")
    for key, value in trained.policy.state_dict().items():
        torch.testing.assert_close(value, before[key])
    with pytest.raises(ValueError, match="known are 'mixture' and 'last'"):
        trained.evaluate(2, policy="best")


def test_saved_learners_come_back_whole(trained, tmp_path):
    path = tmp_path / "model.safetensors"
    trained.save(path)
    again = ConstrainedMaxMinPPO.load(path, Scales)
    seen = np.zeros((1, 2), dtype=np.float32)
    np.testing.assert_array_equal(
        again.predict(seen, deterministic=True)[0], trained.predict(seen, deterministic=True)[0]
    )
    for policy in ("mixture", "last"):
        one, two = trained.evaluate(4, policy=policy), again.evaluate(4, policy=policy)
        np.testing.assert_allclose(one.J, two.J)
    np.testing.assert_array_equal(again.dual.weights(), trained.dual.weights())
    with pytest.raises(ValueError, match="holds a ConstrainedMaxMinPPO"):
        ConstrainedMaxMinSAC.load(path, Scales)
    with pytest.raises(FileNotFoundError):
        ConstrainedMaxMinPPO.load(tmp_path / "absent", Scales)
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(ValueError, match="no saved learner"):
        ConstrainedMaxMinPPO.load(tmp_path / "text", Scales)


def test_same_seed_same_policy():
    def learn():
        model = ConstrainedMaxMinPPO(Scales, ["info:energy>=-1@average"], **SMALL)
        return model.learn(480).policy.action_net[0].weight.detach().numpy()

    np.testing.assert_array_equal(learn(), learn())


def test_noise_falls_as_scheduled_and_is_not_learned():
    model = ConstrainedMaxMinPPO(Scales, noise=(0.4, 0.1), **SMALL)
    model.learn(480)  # rollouts of 160 steps: the last one begins at two thirds of the whole
    fallen = 320 / 480 / 0.8
    expected = np.log(0.4) + fallen * np.log(0.1 / 0.4)
    np.testing.assert_allclose(model.policy.log_std.detach(), np.full(3, expected), rtol=1e-5)


def test_frozen_variables_stay_frozen():
    model = ConstrainedMaxMinPPO(
        Scales, ["info:energy>=-1@average"], update_u=False, w_init=(0.2, 0.3, 0.5),
        update_w=False, warmup=0.0, **SMALL,
    )  # fmt: skip
    model.learn(480)
    np.testing.assert_allclose(model.dual.weights(), [0.2, 0.3, 0.5, 0.0])


@pytest.mark.slow
def test_discrete_actions_and_the_smoothed_gradient_learn_too():
    model = ConstrainedMaxMinPPO(
        lambda: Scales(discrete=True), [], gradient="smoothing", warmup=0.0, gamma=0.9,
        learning_rate=3e-3, **SMALL,
    )  # fmt: skip
    model.learn(1600)
    # Arms give (1, 1/2, 1/4) to one objective each: the smallest is to be played most.
    assert model.dual.w.sum() == pytest.approx(1)
    assert model.evaluate(4, deterministic=False).J.shape == (3,)


def test_episode_limits_are_compared_as_plain_sums(capsys):
    model = ConstrainedMaxMinPPO(Scales, ["info:energy>=-20@episode"], warmup=0.0, **SMALL)
    model.learn(480)
    told = " ".join(capsys.readouterr().err.split())
    ratio = (1 - 0.99**20) / 0.01 / 20
    assert "episodes last 20 steps" in told
    assert f"{-20 * ratio:.4g}" in told
    plain = np.mean([episode[3] for episode in model.episodes.plain])
    assert model._slack(np.zeros(4))[0][0] == pytest.approx(plain + 20)


@pytest.mark.slow
def test_sac_keeps_its_limit():
    model = ConstrainedMaxMinSAC(
        Scales, ["info:energy>=-1.5@average"], gamma=0.9, seed=0, learning_starts=100,
        learning_rate=1e-3, policy_kwargs={"net_arch": [32, 32]}, batch_size=64, warmup=0.1,
    )  # fmt: skip
    model.learn(2000)
    report = model.evaluate(8)
    assert report.violation <= 0.2
    assert report.minimum * 0.1 / (1 - 0.9**20) > 1.05


def test_smoke_sac_learns_saves_and_loads(tmp_path):
    model = ConstrainedMaxMinSAC(
        Scales, ["info:energy>=-1.5@average"], gamma=0.9, seed=0, learning_starts=20,
        policy_kwargs={"net_arch": [16]}, batch_size=16, warmup=0.0,
    )  # fmt: skip
    model.learn(230)
    assert len(model.dual_history) >= 2
    model.save(tmp_path / "sac.safetensors")
    again = ConstrainedMaxMinSAC.load(tmp_path / "sac.safetensors", Scales)
    np.testing.assert_allclose(again.evaluate(2).J, model.evaluate(2).J, rtol=1e-5)
    # The stored log-probabilities are those of the actor that drew the actions.
    buffer = model.replay_buffer
    assert np.isfinite(buffer.log_probs[:230]).all()
    np.testing.assert_allclose(buffer.log_probs[:20], -3 * np.log(2), rtol=1e-6)
