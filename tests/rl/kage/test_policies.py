"""Policies: convolutions as products, PPO's advantages, imitation, evaluation, files, commands."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from armillary.cli.root import run
from armillary.rl.kage import augmentation, evaluation, imitation, policies, ppo
from armillary.rl.kage.engine import Kage
from armillary.rl.kage.errors import AxisLeakError
from armillary.rl.kage.pairs import BASE, Pair, any_config, select
from armillary.rl.kage.policies import PixelNet, Policy

TINY = imitation.Settings(walks=2, updates=2, batch=8, net=PixelNet((4, 4), 8))


@pytest.fixture(scope="module")
def small() -> Kage:
    return Kage(any_config().caps, size=32)


@pytest.fixture(scope="module")
def policy(small) -> Policy:
    return imitation.train(small, small.params(any_config()), TINY, seed=1000)


@pytest.mark.parametrize(("kernel", "stride", "side"), [(4, 2, 15), (8, 4, 32), (3, 1, 7)])
def test_patches_make_a_convolution(kernel, stride, side):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, side, side, 3)).astype(np.float32)
    seen = np.asarray(policies.patches(jnp.asarray(x), kernel, stride))
    out = (side - kernel) // stride + 1
    assert seen.shape == (2, out, out, kernel * kernel * 3)
    for r, c in ((0, 0), (out - 1, out - 1), (out - 1, 0)):
        window = x[:, r * stride : r * stride + kernel, c * stride : c * stride + kernel]
        np.testing.assert_array_equal(
            np.sort(seen[:, r, c], axis=-1), np.sort(window.reshape(2, -1), axis=-1)
        )


def test_advantages_against_the_definition():
    settings = ppo.Settings(envs=1, steps=6, minibatches=1, gamma=0.9, lam=0.8)
    learner = ppo._Learner(Kage(any_config().caps, size=32), settings)
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(2, 6, 1)).astype(np.float32)
    done = np.array([0, 0, 1, 0, 0, 0], bool)[:, None]
    last = np.array([0.7], np.float32)
    zero = jnp.zeros((6, 1))
    batch = ppo.Batch(zero, zero, zero, value, reward, done, zero, zero)  # pyright: ignore
    found = np.asarray(learner._advantages(batch, jnp.asarray(last)))
    following = np.concatenate([value[1:], last[None]])
    delta = reward + 0.9 * following * ~done - value
    for t in range(6):
        total, weight = 0.0, 1.0
        for k in range(t, 6):
            total += weight * delta[k, 0]
            weight *= 0.9 * 0.8
            if done[k, 0]:
                break
        assert found[t, 0] == pytest.approx(total, rel=1e-4)


def test_ppo_learns_something_and_is_deterministic(small):
    settings = ppo.Settings(
        total_steps=64, envs=4, steps=8, minibatches=2, epochs=1, net=PixelNet((4, 4), 8)
    )
    runs = [ppo.train(small, small.params(any_config()), settings, seed=3) for _ in range(2)]
    assert runs[0].steps == 64
    assert np.isnan(runs[0].success).all()  # no episode of 500 steps has ended
    leaves = [jax.tree.leaves(r.policy.weights) for r in runs]
    assert all((a == b).all() for a, b in zip(*leaves, strict=True))
    other = ppo.train(small, small.params(any_config()), settings, seed=4)
    assert any(
        (a != b).any()
        for a, b in zip(leaves[0], jax.tree.leaves(other.policy.weights), strict=True)
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [({"envs": 0}, "envs=0"), ({"envs": 3, "steps": 5, "minibatches": 4}, "not divided")],
)
def test_settings_of_ppo_are_checked(given, told):
    with pytest.raises(ValueError, match=told):
        ppo.Settings(**given)


def test_settings_of_imitation_are_checked():
    with pytest.raises(ValueError, match="augmentation='flip'"):
        imitation.Settings(augmentation="flip")
    with pytest.raises(ValueError, match="walks=0"):
        imitation.Settings(walks=0)


def test_augmentations_keep_the_range_and_change_frames():
    frames = jax.random.uniform(jax.random.PRNGKey(0), (5, 32, 32, 3))
    for name, augment in augmentation.AUGMENTATIONS.items():
        changed = np.asarray(augment(jax.random.PRNGKey(1), frames))
        assert changed.shape == frames.shape
        assert changed.min() >= 0
        assert changed.max() <= 1
        assert (changed == np.asarray(frames)).all() == (name == "none")
    moved = np.asarray(augmentation.shift(jax.random.PRNGKey(2), frames))
    inner = {
        (dy, dx)
        for dy in range(-2, 3)
        for dx in range(-2, 3)
        if np.array_equal(moved[0, 4:28, 4:28], frames[0, 4 + dy : 28 + dy, 4 + dx : 28 + dx])
    }
    assert len(inner) == 1


def test_evaluation_shares_levels_and_gives_a_row_a_pair(policy):
    pairs = select("agent_appearance-2,layout-1")
    found = evaluation.evaluate(policy, pairs, episodes=2, seed=1000)
    assert found["id"].tolist() == ["agent_appearance-2", "layout-1"]
    assert found["success_train"].nunique() == 1  # the same look, played once
    np.testing.assert_allclose(
        found["success_drop"], found["success_train"] - found["success_eval"]
    )
    assert ((found["policy_gap"] >= 0) & (found["policy_gap"] <= 1)).all()


def test_a_look_that_does_not_change_leaves_no_gap(policy, small):
    """A policy that sees nothing acts the same under every look."""
    blind = Policy(policy.net, jax.tree.map(jnp.zeros_like, policy.weights), 32)
    pair = select("agent_appearance-2")[0]
    states = small.reset_batch(
        jax.random.split(jax.random.PRNGKey(0), 4), small.params(any_config())
    )
    assert evaluation.policy_gap(blind, pair, states) == 0.0
    assert evaluation.policy_gap(policy, pair, states) >= 0.0


def test_leaking_pairs_and_empty_evaluations_are_refused(policy):
    leak = Pair(BASE, {**BASE, "jump_penalty": 1.0}, "layout", "mine")
    with pytest.raises(AxisLeakError, match="jump_penalty"):
        evaluation.evaluate(policy, [leak])
    with pytest.raises(ValueError, match="episodes=0"):
        evaluation.evaluate(policy, select("layout"), episodes=0)


def test_a_policy_survives_its_file(policy, tmp_path):
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    again = policies.load(path)
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)), jnp.uint8)
    np.testing.assert_array_equal(again.logits(obs), policy.logits(obs))
    assert (again.net, again.size) == (policy.net, 32)


def test_files_that_hold_no_policy(tmp_path):
    with pytest.raises(FileNotFoundError, match="no policy file"):
        policies.load(tmp_path / "absent.safetensors")
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="no safetensors file"):
        policies.load(tmp_path / "junk.safetensors")


# Commands -----------------------------------------------------------------------------------------


def test_suites_and_diff(tmp_path, capsys):
    assert run(["kage", "suites", "-o", str(tmp_path / "all")]) == 0
    files = sorted((tmp_path / "all").glob("*.yaml"))
    assert len(files) == 68
    train, other = (str(tmp_path / "all" / f"filters-3_{n}.yaml") for n in ("train", "eval"))
    out = tmp_path / "diff.json"
    assert run(["kage", "diff", train, other, "-o", str(out)]) == 0
    (row,) = json.loads(out.read_text())
    assert (row["axis"], row["key"], row["b"]) == ("filters", "filters.saturation", 0.0)
    text = (tmp_path / "all" / "filters-3_eval.yaml").read_text()
    (tmp_path / "leak.yaml").write_text(text + "jump_penalty: 1.0\n")
    capsys.readouterr()
    assert run(["kage", "diff", train, str(tmp_path / "leak.yaml")]) == 2
    assert "jump_penalty" in capsys.readouterr().err


def test_render_bench_and_eval(policy, tmp_path):
    look = tmp_path / "look.yaml"
    look.write_text("character: {use_shape: true}\n")
    assert run(["kage", "render", str(look), "-o", str(tmp_path / "f"), "--steps", "2"]) == 0
    assert len(list((tmp_path / "f").glob("*.png"))) == 3
    assert run(["kage", "render", str(look), "-o", str(tmp_path / "w.gif"), "--steps", "2"]) == 0
    assert (tmp_path / "w.gif").read_bytes()[:3] == b"GIF"
    sheet = tmp_path / "sheet.png"
    assert run(["kage", "render", "--suite", "layout", "-o", str(sheet), "--steps", "2"]) == 0
    assert sheet.read_bytes()[1:4] == b"PNG"
    speed = tmp_path / "speed.json"
    words = ["kage", "bench", "--envs", "2", "--seconds", "0", "-o", str(speed)]
    assert run(words) == 0
    assert json.loads(speed.read_text())["steps_per_second"] > 0
    saved = tmp_path / "policy.safetensors"
    policy.save(saved)
    report = tmp_path / "report.json"
    words = ["kage", "eval", str(saved), "--suite", "layout", "--episodes", "2", "-o", str(report)]
    assert run(words) == 0
    assert [row["id"] for row in json.loads(report.read_text())] == ["layout-1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["render", "-o", "x.png"], "and not both"),
        (["render", "--suite", "colours", "-o", "x.png"], "no suite or pair"),
        (["eval", "absent.safetensors"], "no policy file"),
        (["train", "absent.yaml", "-o", "p.safetensors"], "no configuration file"),
        (["bench", "-o", "speed.csv"], "must end in .json"),
    ],
)
def test_mistakes_are_told_without_a_traceback(words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["kage", *words]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown
