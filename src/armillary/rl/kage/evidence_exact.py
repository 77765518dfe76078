"""What is counted: an axis changes nothing but the look, the world is the original's, a state is
small, and configurations cost no compilations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from armillary.evidence import inputs
from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)
from armillary.rl.kage import look as looks
from armillary.rl.kage import peers, world
from armillary.rl.kage.assets import load as load_assets
from armillary.rl.kage.engine import (
    Kage,
    KageParams,
    KageState,
    level_and_visual_keys,
    state_bytes,
)
from armillary.rl.kage.pairs import BASE, Pair, all_pairs, any_config, suites
from armillary.rl.kage.params import Config, StaticCaps, load_config

#: The authors' checkout is brought by the user.
CHECKOUT = (
    Need(
        "path",
        "kage-bench",
        "git clone https://github.com/CognitiveAISystems/kage-bench, then --peer kage-bench=PATH",
    ),
)
STEPS = 500


class Leaky(Kage):
    """The fault that the check must find: the level's key is what is left after the key of every
    character of the world was split off the same chain."""

    def reset(self, key: jax.Array, params: KageParams) -> KageState:
        visual_key, level_key = level_and_visual_keys(key)
        low, high = params.visual.npc_range[0], params.visual.npc_range[1]
        drawn = jax.random.randint(visual_key, (), low, high + 1)
        count = jnp.where(params.visual.npc_enabled, drawn, 0)
        level_key = jax.lax.fori_loop(0, count, lambda _, k: jax.random.split(k)[0], level_key)
        latent = world.reset(level_key, params.latent, self.caps)
        look = looks.reset(visual_key, latent.tops, params.visual, self.caps)
        return KageState(latent, look, visual_key)


class Compared(NamedTuple):
    """Counts of one pair."""

    mismatches: Any
    unchanged: Any
    frames: Any


def _suite_cases(*names: str, levels: int, stride: int) -> list[Case]:
    return [Case(name, x={"levels": levels, "stride": stride}) for name in names]


_ALL = tuple(suites())


def _pairs(cell: Cell) -> list[Pair]:
    return suites()[cell.case.name]


def _caps(pairs: Sequence[Pair]) -> StaticCaps:
    looks = [look for pair in pairs for look in (pair.train, pair.eval)]
    return StaticCaps.union([load_config(look).caps for look in looks])


def _compare(make: type[Kage], pairs: list[Pair], cell: Cell) -> Mapping[str, float]:
    """Play both looks of every pair with the same keys and actions, and compare bit by bit."""
    caps = _caps(pairs)
    levels, stride = int(cell.case.x["levels"]), int(cell.case.x["stride"])
    keys = jax.random.split(jax.random.PRNGKey(cell.seed), levels)
    rng = np.random.default_rng(cell.seed)
    actions = jnp.asarray(rng.integers(0, 8, (STEPS // stride, stride, levels)))
    play = jax.jit(lambda a, b: _played(make(caps), make(caps, "index"), a, b, keys, actions))
    total = np.zeros(3)
    for pair in pairs:
        configs = [load_config(look) for look in (pair.train, pair.eval)]
        params = [KageParams(c.latent, c.visual, load_assets(caps)) for c in configs]
        total += np.asarray(play(*params), dtype=float)
    mismatches, unchanged, frames = total
    return {"mismatches": mismatches, "unchanged": unchanged, "frames": frames}


def _played(
    kage: Kage, kinds: Kage, a: KageParams, b: KageParams, keys: jax.Array, actions: jax.Array
) -> Compared:
    changed_kinds = jnp.array([1, 3, 4])
    distracts = b.visual.npc_enabled | b.visual.sticky_enabled | (b.visual.distractor_count > 0)

    def step(carry: Any, action: jax.Array) -> Any:
        one, two, wrong = carry
        one, first = kage.step_batch(one, action, a)
        two, second = kage.step_batch(two, action, b)
        wrong += _differing(one.world, two.world) + (first.reward != second.reward).sum()
        return (one, two, wrong), None

    def leg(carry: Any, actions: jax.Array) -> Any:
        (one, two, wrong), _ = jax.lax.scan(step, carry, actions)
        same = (kage.render_batch(one, a) == kage.render_batch(two, b)).all((1, 2, 3))
        shown = jnp.isin(kinds.render_batch(two, b), changed_kinds).any((1, 2, 3))
        counts = shown | ~distracts
        return (one, two, wrong), ((same & counts).sum(), counts.sum())

    start = kage.reset_batch(keys, a), kage.reset_batch(keys, b)
    wrong = _differing(start[0].world, start[1].world)
    (_, _, wrong), (unchanged, frames) = jax.lax.scan(leg, (*start, wrong), actions)
    return Compared(wrong, unchanged.sum(), frames.sum())


def _differing(one: world.Latent, two: world.Latent) -> jax.Array:
    """How many numbers of two batches of worlds differ."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return jnp.stack([(x != y).sum() for x, y in pairs]).sum()


KNOWN_AXIS = Experiment(
    id="known-axis",
    title="The world under both looks of all 34 pairs",
    cases={
        "smoke": _suite_cases("layout", levels=2, stride=250),
        "quick": _suite_cases("agent_appearance", "distractors", "layout", levels=4, stride=50),
        "full": _suite_cases(*_ALL, levels=16, stride=5),
        "long": [],
    },
    setup=_pairs,
    contenders=(
        Contender("ours", lambda pairs, cell: _compare(Kage, pairs, cell)),
        Contender("leaky-keys", lambda pairs, cell: _compare(Leaky, pairs, cell)),
    ),
    metrics=(
        Metric("mismatches", "numbers that differ"),
        Metric("unchanged", "frames"),
        Metric("frames", "frames", "neither"),
    ),
    claims=(
        Claim(
            id="world-untouched",
            statement="Under both looks of every pair level, trajectory and reward are the same, "
            "bit by bit, over 500 random actions on each level.",
            paper="Each of 34 pairs changes one axis; dynamics and reward are untouched.",
            conditions=(Condition(Stat("mismatches"), at_most=0, every=True),),
            ablations=(
                Ablation("leaky-keys", "mismatches", where=lambda c: c.name == "distractors"),
            ),
        ),
        Claim(
            id="look-changed",
            statement="Every compared frame differs between the looks wherever the changed thing "
            "is in view.",
            paper="Each of 34 pairs changes one axis.",
            conditions=(Condition(Stat("unchanged"), at_most=0, every=True),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 3},
    unit="case",
)


# The original's world ----------------------------------------------------------------------------


def _level_keys(cell: Cell) -> jax.Array:
    return jax.random.split(jax.random.PRNGKey(cell.seed), int(cell.case.x["levels"]))


def _actions(cell: Cell) -> jax.Array:
    """Mostly right, often jumping; a third at random."""
    rng = np.random.default_rng(cell.seed)
    shape = (STEPS, int(cell.case.x["levels"]))
    runs = np.where(rng.random(shape) < 0.3, 6, 2)
    return jnp.asarray(np.where(rng.random(shape) < 0.67, runs, rng.integers(0, 8, shape)))


class Trajectories(NamedTuple):
    """(T, n) of each: what both simulators can say of a run, and the tops of its level."""

    tops: np.ndarray
    x: np.ndarray
    y: np.ndarray
    vx: np.ndarray
    vy: np.ndarray
    grounded: np.ndarray
    camera: np.ndarray
    reward: np.ndarray


def _ours(cell: Cell) -> Trajectories:
    config = any_config()
    kage = Kage(config.caps)
    params = kage.params(config)

    def step(states: KageState, action: jax.Array) -> Any:
        states, outcome = kage.step_batch(states, action, params)
        w = states.world
        return states, (w.x, w.y, w.vx, w.vy, w.grounded, w.camera_x, outcome.reward)

    def run(keys: jax.Array, actions: jax.Array) -> Any:
        states = kage.reset_batch(keys, params)
        return states.world.tops, *jax.lax.scan(step, states, actions)[1]

    return Trajectories(*map(np.asarray, jax.jit(run)(_level_keys(cell), _actions(cell))))


def _original(cell: Cell) -> Trajectories:
    env = peers.original_env(inputs.peer_path("kage-bench"))
    width = int(BASE["layout"]["run_width"])

    def step(state: Any, action: jax.Array) -> Any:
        _, reward, _, _, info = jax.vmap(env.step)(state, action)
        s = info["state"]
        return s, (s.x, s.y, s.vx, s.vy, s.grounded, s.camera_x, reward)

    def run(keys: jax.Array, actions: jax.Array) -> Any:
        state = jax.vmap(env.reset)(keys)[1]["state"]
        return state.layout_ground_top[:, ::width], *jax.lax.scan(step, state, actions)[1]

    return Trajectories(*map(np.asarray, jax.jit(run)(_level_keys(cell), _actions(cell))))


def _disagreement(work: None, cell: Cell) -> Mapping[str, float]:
    ours, theirs = _ours(cell), _original(cell)
    wrong = sum(int((a != b).sum()) for a, b in zip(ours, theirs, strict=True))
    return {"mismatches": wrong, "numbers": sum(a.size for a in ours)}


def _with_checkout(*names: str, levels: int) -> list[Case]:
    return [Case(name, x={"levels": levels}, needs=CHECKOUT) for name in names]


SAME_WORLD = Experiment(
    id="same-world",
    title="Levels and trajectories beside the original's, for the same keys and actions",
    cases={
        "smoke": [],
        "quick": _with_checkout("a", levels=4),
        "full": _with_checkout("a", levels=16),
        "long": [],
    },
    setup=lambda cell: None,
    contenders=(Contender("ours", _disagreement),),
    metrics=(
        Metric("mismatches", "numbers that differ"),
        Metric("numbers", "numbers", "neither"),
    ),
    claims=(
        Claim(
            id="original-world",
            statement="For the same keys and actions levels, positions, speeds, camera and rewards "
            "are those of the authors' environment, bit by bit.",
            paper="It is the authors' code that is compared with.",
            conditions=(Condition(Stat("mismatches"), at_most=0, every=True),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 3},
)


# Memory ------------------------------------------------------------------------------------------


def _memory_caps(cell: Cell) -> StaticCaps:
    known = {"circle on black": [BASE], "picture and character": [suites()["filters"][0].train]}
    everything = [look for pair in all_pairs() for look in (pair.train, pair.eval)]
    listed = known.get(cell.case.name, everything)
    return StaticCaps.union([load_config(look).caps for look in listed])


def _original_bytes(caps: StaticCaps, cell: Cell) -> Mapping[str, float]:
    checkout = inputs.peer_path("kage-bench")
    files = {
        "circle on black": "benchmark/kage_bench_configs/background/config_1_train.yaml",
        "picture and character": "benchmark/kage_bench_configs/filters/config_1_train.yaml",
        "everything": "scripts/fps_bench_configs/hardest_config.yaml",
    }
    env = peers.original_env(checkout, checkout / files[cell.case.name])
    return {"state_bytes": peers.original_state_bytes(env)}


_LOOKS = [Case(n) for n in ("circle on black", "picture and character", "everything")]

MEMORY = Experiment(
    id="memory",
    title="Bytes of one environment's state",
    cases={"smoke": _LOOKS, "quick": _LOOKS, "full": _LOOKS, "long": []},
    setup=_memory_caps,
    contenders=(
        Contender("ours", lambda caps, cell: {"state_bytes": state_bytes(caps)}),
        Contender("original", _original_bytes, CHECKOUT, required=False),
    ),
    metrics=(Metric("state_bytes", "bytes"),),
    claims=(
        Claim(
            id="small-state",
            statement="A state takes at most a kilobyte, whatever is drawn.",
            paper="Not stated; the authors' state holds a mask of 128 x 2048 pixels.",
            conditions=(Condition(Stat("state_bytes"), at_most=1024, every=True),),
        ),
        Claim(
            id="smaller-than-original",
            statement="It takes at most a 200th of the original's.",
            paper="Not stated.",
            conditions=(
                Condition(
                    Stat("state_bytes", over=("original",), form="ratio", pool="geomean"),
                    at_most=1 / 200,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 1},
    unit="case",
)


# Compilations ------------------------------------------------------------------------------------

#: Compilations below this many seconds are of single operations, not of an environment.
COUNTED = 0.2


class Compilations:
    """Counts XLA's compilations while it is open, and their seconds."""

    def __init__(self) -> None:
        self.count, self.seconds, self._open = 0, 0.0, False

    def __enter__(self) -> Compilations:
        self._open = True
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False

    def _heard(self, event: str, duration_secs: float, **_: Any) -> None:
        compiled = event.endswith("backend_compile_duration")
        if self._open and compiled and duration_secs >= COUNTED:
            self.count += 1
            self.seconds += duration_secs


def _configs(cell: Cell) -> list[Config]:
    pairs = all_pairs()
    if cell.case.name != "all":
        pairs = suites()[cell.case.name]
    return [load_config(look) for pair in pairs for look in (pair.train, pair.eval)]


def _one_program(configs: list[Config], cell: Cell) -> Mapping[str, float]:
    caps = StaticCaps.union([c.caps for c in configs])
    kage = Kage(caps)

    @jax.jit
    def first_steps(key: jax.Array, params: KageParams) -> jax.Array:
        state = kage.reset(key, params)
        state, _ = kage.step(state, jnp.int32(2), params)
        return kage.render(state, params)

    key = jax.random.PRNGKey(cell.seed)
    with Compilations() as heard:
        for config in configs:
            params = KageParams(config.latent, config.visual, load_assets(caps))
            first_steps(key, params).block_until_ready()
    return _told(heard, len(configs))


def _told(heard: Compilations, configs: int) -> dict[str, float]:
    return {
        "compilations": heard.count,
        "configs": configs,
        "compilations_a_config": heard.count / configs,
        "compile_seconds": heard.seconds,
    }


def _each_compiled(configs: list[Config], cell: Cell) -> Mapping[str, float]:
    """The original: one look of each kind, for each costs the same work."""
    checkout = inputs.peer_path("kage-bench")
    root = checkout / "benchmark/kage_bench_configs"
    files = [root / "background/config_1_train.yaml", root / "filters/config_1_val.yaml"]
    key = jax.random.PRNGKey(cell.seed)
    with Compilations() as heard:
        for file in files:
            env = peers.original_env(checkout, file)
            _, info = jax.jit(env.reset)(key)
            jax.block_until_ready(jax.jit(env.step)(info["state"], jnp.int32(2)))
    return _told(heard, len(files))


_EVERY = [Case("all")]

COMPILATIONS = Experiment(
    id="compilations",
    title="Compilations until all 68 configurations have drawn a frame",
    cases={
        "smoke": [Case("layout")],
        "quick": [Case("agent_appearance"), Case("background"), Case("layout")],
        "full": [*_EVERY, Case("filters"), Case("distractors")],
        "long": [],
    },
    setup=_configs,
    contenders=(
        Contender("ours", _one_program),
        Contender("original", _each_compiled, CHECKOUT, required=False),
    ),
    metrics=(
        Metric("compilations", ""),
        Metric("configs", "", "neither"),
        Metric("compilations_a_config", ""),
        Metric("compile_seconds", "s"),
    ),
    claims=(
        Claim(
            id="one-program",
            statement="All 68 configurations run with at most three compilations.",
            paper="Not stated; the authors' environment holds a configuration as constants.",
            conditions=(Condition(Stat("compilations"), at_most=3, every=True),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 1},
    unit="case",
)
