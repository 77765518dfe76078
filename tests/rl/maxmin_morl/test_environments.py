"""The environments: Gymnasium's and mo-gymnasium's checkers, physics, twins, SUMO in processes."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from armillary.rl.maxmin_morl.envs import building_data
from armillary.rl.maxmin_morl.grids import four_rooms, resource_gathering

pytest.importorskip("sustaingym")

from armillary.rl.maxmin_morl.envs.building import BuildingZones, BuildingZonesVector

HOME = "armillary.rl.environments"


def checked(env):
    """Gymnasium's checker asks for a scalar reward: mo-gymnasium gives it a linear one."""
    import mo_gymnasium

    dimension = env.unwrapped.reward_dim
    scalar = mo_gymnasium.wrappers.LinearReward(env, weight=np.ones(dimension) / dimension)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(scalar, skip_render_check=True)
    return env


def test_ids_are_registered_and_the_building_passes_the_checker():
    env = checked(
        gymnasium.make(f"{HOME}:armillary/BuildingZones-v0", disable_env_checker=True).unwrapped
    )
    assert env.reward_space.shape == (3,)
    _, reward, *_ = env.step(env.action_space.sample())
    assert reward.shape == (3,)


def test_mo_gymnasium_makes_it_with_its_own_wrappers():
    import mo_gymnasium

    env = mo_gymnasium.make(f"{HOME}:armillary/BuildingZones-v0", disable_env_checker=True)
    env = mo_gymnasium.wrappers.MORecordEpisodeStatistics(env, gamma=0.99)
    env.reset(seed=0)
    done = False
    while not done:
        _, _, terminated, truncated, info = env.step(np.zeros(23, dtype=np.float32))
        done = terminated or truncated
    assert info["episode"]["r"].shape == (3,)


def test_the_office_has_the_published_zones_and_floors():
    model = BuildingZones().model
    assert model.zones == 23
    np.testing.assert_array_equal(np.bincount(model.floors), [9, 7, 7])


def test_heat_flows_as_the_equation_says():
    # In an equilibrium of the continuous equation an hour changes nothing, and A is a contraction.
    network = building_data.build("OfficeLarge", 8000.0)
    assert np.abs(np.linalg.eigvals(network.A)).max() < 1
    # Everything at 10 degrees, no sun, no heating: nothing moves.
    still = np.full(23, 10.0)
    outside = np.concatenate([[10.0, 10.0], np.zeros(23), [0.0]])
    np.testing.assert_allclose(network.A @ still + network.B @ outside, still, atol=1e-8)
    # Two half hours are an hour: A and B are exact, not an Euler step (checked on A).
    assert (network.A > -1e-12).all()
    assert (network.B[:, 2:-1] > -1e-12).all()  # heating warms every zone


def test_walls_between_boxes():
    zone = building_data.Zone
    a = zone("a", 1.0, 0, 10, 0, 5, 0, 2, 50, 0, 0)
    beside = zone("b", 1.0, 10, 14, 1, 4, 0, 2, 12, 0, 0)
    corner = zone("c", 1.0, 10, 14, 5, 9, 0, 2, 16, 0, 0)
    above = zone("d", 3.0, 5, 15, 0, 5, 2, 4, 50, 0, 0)
    u = building_data.CONDUCTANCES["OfficeLarge"]
    assert building_data.conductance(a, beside, True, u) == pytest.approx(3 * 2 * u[0])
    assert building_data.conductance(a, corner, True, u) == 0
    series = u[1] * u[4] / (u[1] + u[4])
    assert building_data.conductance(a, above, False, u) == pytest.approx(25 * series)


def test_many_buildings_are_one_building_many_times():
    one, many = BuildingZones(), BuildingZonesVector(3)
    one.reset(seed=0, options={"start": 40})
    many.reset(seed=0, options={"start": np.array([40, 41, 42])})
    rng = np.random.default_rng(0)
    for _ in range(5):
        action = rng.uniform(-1, 1, 23)
        _, reward, _, _, info = one.step(action)
        _, rewards, _, _, infos = many.step(np.tile(action, (3, 1)))
        np.testing.assert_allclose(rewards[0], reward)
        assert infos["energy"][0] == pytest.approx(info["energy"])
        assert info["energy"] == pytest.approx(-np.abs(action).sum() / 5)


def test_objectives_are_zero_on_average_when_idle_and_one_at_the_target():
    model = BuildingZones().model
    np.testing.assert_allclose(model.rewards(np.full((1, 23), 20.0)), [[1, 1, 1]])
    temperature, seen = np.full((1, 23), 20.0), []
    for hour in range(680):
        temperature = model.advance(temperature, np.zeros((1, 23)), np.array([hour]))
        seen.append(model.rewards(temperature)[0])
    np.testing.assert_allclose(np.mean(seen, axis=0), np.zeros(3), atol=1e-9)
    raw = BuildingZones(raw_rewards=True).model
    np.testing.assert_allclose(raw.rewards(np.full((1, 23), 18.0)), [[9 * 0.9, 7 * 0.9, 7 * 0.9]])


def test_ends_of_staggered_buildings_are_spread():
    env = BuildingZonesVector(4, stagger=True)
    env.reset(seed=0)
    ends = []
    for t in range(480):
        *_, truncated, infos = env.step(np.zeros((4, 23)))
        if truncated.any():
            ends.append((t, int(np.flatnonzero(truncated)[0])))
            assert infos["final_obs"].shape == (4, 29)
    assert ends == [(119, 3), (239, 2), (359, 1), (479, 0)]


def test_resource_gathering_is_mo_gymnasiums():
    """The table against the environment itself, along random walks; enemies are left out."""
    import mo_gymnasium

    mdp = resource_gathering(0.5)
    states = [(y, x, g, j) for y in range(5) for x in range(5) for g in (0, 1) for j in (0, 1)]
    env = mo_gymnasium.make("resource-gathering-v0").unwrapped
    rng, compared = np.random.default_rng(0), 0
    for episode in range(40):
        seen, _ = env.reset(seed=episode)
        for _ in range(60):
            s, a = states.index(tuple(int(v) for v in seen)), int(rng.integers(4))
            seen, reward, done, _, _ = env.step(a)
            row = mdp.P[[s * 4 + a]].toarray()[0]
            if reward[0] < 0:  # an enemy's attack
                assert row[-1] == pytest.approx(0.1)
            else:
                onward = len(states) if done else states.index(tuple(int(v) for v in seen))
                assert row[onward] >= 0.9
                np.testing.assert_allclose(mdp.r[s * 4 + a], reward[1:])
                compared += 1
            if done:
                break
    assert compared > 300


@pytest.mark.slow
def test_four_rooms_end_at_the_goal():
    mdp = four_rooms(0.5)
    assert mdp.states > 2000
    ends = np.flatnonzero(np.asarray(mdp.P[:, [mdp.states - 1]].todense()).ravel() == 1.0)
    rewards = mdp.r[ends[: -mdp.actions]]
    np.testing.assert_allclose(rewards, np.ones_like(rewards))  # the goal pays one of each


def test_energy_hopper_passes_the_checker():
    pytest.importorskip("mujoco")
    name = f"{HOME}:armillary/EnergyHopper-v0"
    env = checked(gymnasium.make(name, disable_env_checker=True).unwrapped)
    env.reset(seed=0)
    action = np.array([0.5, -0.5, 1.0], dtype=np.float32)
    _, reward, *_, info = env.step(action)
    assert reward.shape == (2,)
    assert info["energy"] == pytest.approx(-1.5)


SUMO = """
import sys
import armillary.rl.environments
import warnings
import gymnasium, numpy as np, mo_gymnasium
from gymnasium.utils.env_checker import check_env
env = gymnasium.make("armillary/TrafficCO2-v0", disable_env_checker=True, seconds=60).unwrapped
other = gymnasium.make("armillary/TrafficCO2-v0", disable_env_checker=True, seconds=60).unwrapped
scalar = mo_gymnasium.wrappers.LinearReward(env, weight=np.ones(4) / 4)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    check_env(scalar, skip_render_check=True)
def play(action_of):
    env.reset(seed=3)
    total, grams, done = np.zeros(4), 0.0, False
    t = 0
    while not done:
        _, reward, _, done, info = env.step(action_of(t))
        total += reward; grams += info["co2"]; t += 1
    return total, grams, t
first, grams, t = play(lambda t: (t // 3) % 4)
again, same, _ = play(lambda t: (t // 3) % 4)
assert t == 12 and grams < 0, (t, grams)
np.testing.assert_allclose(first, again); assert grams == same
stuck, _, _ = play(lambda t: 3)          # only the west ever has green
assert stuck[0] < first[0] and stuck[3] >= first[3], (stuck, first)
try:
    other.reset(seed=0)
except RuntimeError as error:
    assert "one simulation a process" in str(error)
else:
    raise AssertionError("two simulations in one process")
env.close(); other.reset(seed=0); other.close()
print("fine")
"""


def test_traffic_in_a_process_of_its_own():
    pytest.importorskip("libsumo")
    found = subprocess.run(
        [sys.executable, "-c", SUMO], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.strip() == "fine"
    assert "pyarrow" not in found.stderr
