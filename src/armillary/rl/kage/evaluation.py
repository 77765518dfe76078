"""Run a policy under pairs of looks: success, distance, return, and the gap between its actions.

World and reward are shared by both looks of a pair, so a change of return can only come through the
policy's actions: ``pi_xi(a | s) = E[pi(a | o) | s, xi]``. What is drawn once an episode (picture,
character) must be conditioned on; the gap is therefore taken with it fixed,

    policy_gap = mean over s visited under xi of TV(pi(. | o_{xi,z}(s)), pi(. | o_{xi',z'}(s)))

where pi is the policy that acts: of one that takes the likeliest action, TV is 0 or 1.

Configurations are inputs of compiled programs: pairs are sorted into at most three groups, each of
which runs in one program, whatever the number of its configurations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from armillary.rl.kage import look as looks
from armillary.rl.kage.assets import load as load_assets
from armillary.rl.kage.config import check_pair
from armillary.rl.kage.engine import Kage, KageParams, KageState, check_room
from armillary.rl.kage.pairs import Pair
from armillary.rl.kage.params import Config, StaticCaps, VisualParams, load_config, stack
from armillary.rl.kage.policies import PixelNet, Policy, logits

if TYPE_CHECKING:
    import pandas as pd

#: States at which the gap is taken, evenly spread over an episode.
STOPS = 20
#: Axes that are run together.
GROUPS = (
    ("background", "agent_appearance", "layout"),
    ("filters", "effects"),
    ("distractors",),
)


class Episodes(NamedTuple):
    """(n,) outcomes of episodes, and the policy gap to each of the other looks, (K,)."""

    success: np.ndarray
    distance: np.ndarray
    reward: np.ndarray
    gaps: np.ndarray


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled rollout for every configuration of a group; ``n`` episodes at once."""

    caps: StaticCaps
    net: PixelNet
    size: int
    n: int
    greedy: bool = False

    @functools.cached_property
    def kage(self) -> Kage:
        return Kage(self.caps, size=self.size)

    @functools.cached_property
    def run(self) -> Any:
        """``(weights, params, others, with_gaps, key) -> Episodes``, compiled."""
        return jax.jit(self._run)

    @functools.cached_property
    def gaps(self) -> Any:
        """``(weights, states, params, others) -> (K,)``, compiled."""

        def gaps(weights: Any, states: KageState, params: KageParams, others: VisualParams) -> Any:
            dressed = jax.vmap(self._redress, in_axes=(0, None))(states, params.visual)
            return self._gaps(weights, dressed, params, others)

        return jax.jit(gaps)

    def _run(
        self,
        weights: Any,
        params: KageParams,
        others: VisualParams,
        with_gaps: jax.Array,
        key: jax.Array,
    ) -> Episodes:
        start_key, act_key = jax.random.split(key)
        states = self.kage.reset_batch(jax.random.split(start_key, self.n), params)

        def act(carry: Any, key: jax.Array) -> tuple[Any, None]:
            states, total = carry
            obs = self.kage.render_batch(states, params)
            scores = logits(self.net, weights, obs)
            sampled = jax.random.categorical(key, scores)
            actions = scores.argmax(-1) if self.greedy else sampled
            states, outcome = self.kage.step_batch(states, actions, params)
            return (states, total + outcome.reward), None

        def leg(carry: Any, keys: jax.Array) -> tuple[Any, jax.Array]:
            states = carry[0]
            none = jnp.zeros(others.background.shape, jnp.float32)
            gaps = jax.lax.cond(
                with_gaps, lambda: self._gaps(weights, states, params, others), lambda: none
            )
            return jax.lax.scan(act, carry, keys)[0], gaps

        keys = jax.random.split(act_key, 500).reshape(STOPS, -1, 2)
        (states, total), gaps = jax.lax.scan(leg, (states, jnp.zeros(self.n)), keys)
        final = states.world
        return Episodes(final.success_once, final.x - final.x0, total, gaps.mean(0))  # pyright: ignore

    def _gaps(
        self, weights: Any, states: KageState, params: KageParams, others: VisualParams
    ) -> jax.Array:
        """(K,) mean total variation to the actions under each of the other looks."""
        here = self._acting(logits(self.net, weights, self.kage.render_batch(states, params)))

        def gap(visual: VisualParams) -> jax.Array:
            there = params.replace(visual=visual)  # pyright: ignore[reportAttributeAccessIssue]
            redrawn = jax.vmap(self._redress, in_axes=(0, None))(states, visual)
            frames = self.kage.render_batch(redrawn, there)
            other = self._acting(logits(self.net, weights, frames))
            return 0.5 * jnp.abs(here - other).sum(-1).mean()

        return jax.lax.map(gap, others)

    def _acting(self, scores: jax.Array) -> jax.Array:
        """Probabilities of the actions that are taken, of (n, 8) scores."""
        if self.greedy:
            return jax.nn.one_hot(scores.argmax(-1), scores.shape[-1])
        return jax.nn.softmax(scores)

    def _redress(self, state: KageState, visual: VisualParams) -> KageState:
        """The same world under another look, drawn from the same visual key."""
        look = looks.reset(state.key, state.world.tops, visual, self.caps)
        return state.replace(look=look)  # pyright: ignore[reportAttributeAccessIssue]

    def episodes(
        self,
        policy: Policy,
        config: Config,
        seed: int,
        others: Sequence[Config] = (),
        room: int = 1,
    ) -> Episodes:
        """Run ``n`` episodes; ``room`` is the number of other looks that the program holds."""
        visuals = [c.visual for c in others] or [config.visual]
        padded = stack([*visuals, *[visuals[0]] * (room - len(visuals))])
        params = KageParams(config.latent, config.visual, load_assets(self.caps))
        found = self.run(policy.weights, params, padded, bool(others), jax.random.PRNGKey(seed))
        return Episodes(*(np.asarray(part) for part in found))


def evaluate(
    policy: Policy,
    pairs: Sequence[Pair],
    episodes: int = 32,
    seed: int = 0,
    greedy: bool = False,
    family: Sequence[Pair] = (),
) -> pd.DataFrame:
    """Success, distance and return of a policy under both looks of each pair.

    The same levels are played under both. A training look that several pairs share is played once.

    Args:
        policy: what acts.
        pairs: each must differ in one visual axis.
        episodes: of each look.
        seed: of levels, looks and actions.
        greedy: take the likeliest action instead of sampling one.
        family: other pairs that the compiled programs shall serve: give the same family in every
            call, and nothing is compiled twice.

    Returns:
        A row a pair: ``id, axis, success_train, success_eval, success_drop, distance_train,
        distance_eval, return_train, return_eval, policy_gap``; distances in pixels.

    Raises:
        AxisLeakError: a pair differs in what governs the world, or in several axes.
        ValueError: ``episodes`` is below 1, or an episode has other than 500 steps.
        MemoryError: so many episodes do not fit at once.
    """
    import pandas as pd

    if episodes < 1:
        raise ValueError(f"episodes={episodes}: at least one is needed")
    for pair in pairs:
        check_pair(pair.train, pair.eval)
    rows: list[dict[str, Any]] = []
    for axes in _groups(pairs):
        members = [pair for pair in pairs if pair.axis in axes]
        served = [*members, *(pair for pair in family if pair.axis in axes)]
        rows += _evaluate_group(policy, members, served, episodes, seed, greedy)
    order = {pair.id: i for i, pair in enumerate(pairs)}
    return pd.DataFrame(sorted(rows, key=lambda row: order[row["id"]]))


def _groups(pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """The axes that are run together, of those that the pairs have."""
    present = {pair.axis for pair in pairs}
    known = {axis for axes in GROUPS for axis in axes}
    found = [axes for axes in GROUPS if present & set(axes)]
    return [*found, *([tuple(sorted(present - known))] if present - known else [])]


def program_of(
    pairs: Sequence[Pair], net: PixelNet, size: int, n: int, greedy: bool = False
) -> Program:
    """The program in which every look of these pairs runs."""
    configs = [load_config(look) for pair in pairs for look in (pair.train, pair.eval)]
    caps = StaticCaps.union([c.caps for c in configs])
    return _program(caps, net, size, n, greedy)  # pyright: ignore[reportArgumentType]


@functools.lru_cache(maxsize=8)
def _program(caps: StaticCaps, net: PixelNet, size: int, n: int, greedy: bool) -> Program:
    return Program(caps, net, size, n, greedy)


def _evaluate_group(
    policy: Policy,
    pairs: Sequence[Pair],
    served: Sequence[Pair],
    episodes: int,
    seed: int,
    greedy: bool,
) -> list[dict[str, Any]]:
    program = program_of(served, policy.net, policy.size, episodes, greedy)
    check_room(episodes, program.kage.shape, program.caps)
    unique = {repr(pair): pair for pair in served}
    room = max(map(len, by_look(list(unique.values()))))
    rows = []
    for members in by_look(pairs):
        train = load_config(members[0].train)
        if int(train.latent.episode_length) != 500:
            raise ValueError(
                f"episode_length={int(train.latent.episode_length)}: evaluation runs 500 steps"
            )
        others = [load_config(pair.eval) for pair in members]
        base = program.episodes(policy, train, seed, others, room)
        for i, (pair, config) in enumerate(zip(members, others, strict=True)):
            shifted = program.episodes(policy, config, seed, room=room)
            rows.append(_row(pair, base, shifted, float(base.gaps[i])))
    return rows


def by_look(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs that share a training look, together."""
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(repr(pair.train), []).append(pair)
    return list(found.values())


def _row(pair: Pair, base: Episodes, shifted: Episodes, gap: float) -> dict[str, Any]:
    return {
        "id": pair.id,
        "axis": pair.axis,
        "success_train": float(base.success.mean()),
        "success_eval": float(shifted.success.mean()),
        "success_drop": float(base.success.mean() - shifted.success.mean()),
        "distance_train": float(base.distance.mean()),
        "distance_eval": float(shifted.distance.mean()),
        "return_train": float(base.reward.mean()),
        "return_eval": float(shifted.reward.mean()),
        "policy_gap": gap,
    }


def policy_gap(policy: Policy, pair: Pair, states: KageState) -> float:
    """Mean total variation between a policy's actions under both looks of a pair.

    Args:
        policy: what acts.
        pair: two looks that differ in one axis.
        states: n states, visited under the training look.

    Raises:
        AxisLeakError: the pair differs in what governs the world, or in several axes.
    """
    check_pair(pair.train, pair.eval)
    program = program_of([pair], policy.net, policy.size, len(states.key))
    train, other = load_config(pair.train), load_config(pair.eval)
    params = KageParams(train.latent, train.visual, load_assets(program.caps))
    return float(program.gaps(policy.weights, states, params, stack([other.visual]))[0])
