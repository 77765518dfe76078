"""gymnax and Gymnasium: their own checkers, auto-reset, and what each refuses."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from armillary.rl.kage.engine import Kage, KageState
from armillary.rl.kage.env import KageEnv
from armillary.rl.kage.gymnasium_env import KageGymnasium, KageVectorEnv
from armillary.rl.kage.pairs import BASE
from armillary.rl.kage.params import load_config

SHORT = {**BASE, "episode_length": 4}


@pytest.fixture(scope="module")
def short() -> KageEnv:
    return KageEnv(SHORT, size=32)


def test_the_protocol_of_gymnax(short):
    key = jax.random.PRNGKey(0)
    obs, state = short.reset(key)
    assert isinstance(state, KageState)
    assert short.observation_space(short.default_params).shape == obs.shape == (32, 32, 3)
    assert short.num_actions == short.action_space(short.default_params).n == 8
    obs, state, reward, terminated, truncated, info = short.step(key, state, 2)
    assert obs.dtype == jnp.uint8
    assert reward.shape == ()
    assert not bool(terminated) | bool(truncated)
    assert float(info["passed_distance"]) in (0.0, 1.0)


def test_an_ended_episode_gives_the_first_state_of_a_new_one(short):
    obs, state = short.reset(jax.random.PRNGKey(0))
    for t in range(4):
        key = jax.random.PRNGKey(10 + t)
        obs, state, _, terminated, truncated, info = short.step(key, state, 2)
        assert bool(truncated) == (t == 3)
        assert not bool(terminated)
    assert int(state.time) == 0
    assert float(info["passed_distance"]) > 0
    fresh_obs, fresh = short.reset(key)
    np.testing.assert_array_equal(obs, fresh_obs)
    assert (np.asarray(fresh.world.tops) == np.asarray(state.world.tops)).all()


def test_rendering_is_a_function_of_the_state(short):
    obs, state = short.reset(jax.random.PRNGKey(5))
    draw = jax.jit(lambda state: short.observe(None, state, None, short.default_params))
    np.testing.assert_array_equal(draw(state), obs)


def test_an_info_dict_is_no_state(short):
    _, state = short.reset(jax.random.PRNGKey(0))
    info = short.step(jax.random.PRNGKey(0), state, 2)[-1]
    with pytest.raises(TypeError, match="it looks like the info of a step"):
        short.step(jax.random.PRNGKey(0), info, 2)
    with pytest.raises(TypeError, match="state is a tuple"):
        short.step(jax.random.PRNGKey(0), (1, 2), 2)


@pytest.mark.parametrize(
    ("action", "error", "told"),
    [
        (8, ValueError, "outside 0 to 7"),
        (-1, ValueError, "outside 0 to 7"),
        (2.0, TypeError, "whole numbers"),
        (jnp.float32(2), TypeError, "whole numbers"),
        ("right", TypeError, "whole numbers"),
    ],
)
def test_wrong_actions_are_refused(short, action, error, told):
    _, state = short.reset(jax.random.PRNGKey(0))
    with pytest.raises(error, match=told):
        short.step(jax.random.PRNGKey(0), state, action)


def test_traced_actions_are_checked_by_checkify():
    from jax.experimental import checkify

    env = KageEnv(SHORT, size=32, checks=True)
    _, state = env.reset(jax.random.PRNGKey(0))

    def advance(action):
        return env.step(jax.random.PRNGKey(0), state, action)[2]

    checked = jax.jit(checkify.checkify(advance))
    assert checked(jnp.int32(2))[0].get() is None
    assert "outside 0 to 7" in checked(jnp.int32(9))[0].get()


def test_the_checker_of_gymnasium(recwarn):
    env = gymnasium.make(
        "armillary.rl.environments:armillary/Kage-v0", size=32, render_mode="rgb_array"
    )
    check_env(env.unwrapped)
    env.reset(seed=0)
    frame = env.render()
    assert isinstance(frame, np.ndarray)
    assert frame.shape == (128, 128, 3)


def test_the_same_seed_gives_the_same_episode():
    env = KageGymnasium(SHORT, size=32)
    with pytest.raises(RuntimeError, match="step before reset"):
        env.step(2)
    seen = []
    for _ in range(2):
        obs, _ = env.reset(seed=11)
        seen.append([obs.tobytes(), *(env.step(6)[1] for _ in range(3))])
    assert seen[0] == seen[1]
    assert env.step(np.int64(2))[3] is True
    with pytest.raises(ValueError, match="render_mode='human'"):
        KageGymnasium(SHORT, render_mode="human")


def test_many_environments_begin_anew_in_the_step_after_the_last():
    env = KageVectorEnv(3, SHORT, size=32)
    with pytest.raises(RuntimeError, match="step before reset"):
        env.step(np.array([2, 2, 2]))
    first, _ = env.reset(seed=3)
    assert first.shape == (3, 32, 32, 3)
    assert len({first[i].tobytes() for i in range(3)}) > 1
    steps = [env.step(np.array([2, 2, 2])) for _ in range(6)]
    assert [bool(s[3].all()) for s in steps] == [False, False, False, True, False, False]
    assert (steps[4][1] == 0).all()
    assert (steps[4][4]["passed_distance"] == 0).all()
    assert (steps[5][4]["passed_distance"] <= 1).all()
    assert not steps[0][0].flags.owndata  # shared with JAX, not copied
    with pytest.raises(ValueError, match="the shape"):
        env.step(np.array([2, 2]))
    with pytest.raises(ValueError, match="outside 0 to 7"):
        env.step(np.array([2, 2, 9]))


def test_too_many_environments_are_refused_before_any_is_made():
    with pytest.raises(MemoryError, match="take at most"):
        KageVectorEnv(10**8, SHORT)


def test_a_batch_renews_only_what_ended(short):
    kage = Kage(load_config(SHORT).caps, size=32)
    params = short.default_params
    states = jax.jit(kage.reset_batch)(jax.random.split(jax.random.PRNGKey(0), 3), params)
    states, _ = jax.jit(kage.step_batch)(states, jnp.array([2, 2, 2]), params)
    renew = jax.jit(kage.continue_batch)
    done = jnp.array([False, True, False])
    assert renew(states, done, jax.random.PRNGKey(7), params).time.tolist() == [1, 0, 1]
    assert renew(states, ~done & done, jax.random.PRNGKey(7), params).time.tolist() == [1, 1, 1]
