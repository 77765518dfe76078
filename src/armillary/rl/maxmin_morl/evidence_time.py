"""The timed experiments: growth with states, the cost of a dual step, the learner's speed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
    Timing,
)
from armillary.rl.maxmin_morl.generators import garnet
from armillary.rl.maxmin_morl.mdp import VectorMDP
from armillary.rl.maxmin_morl.tabular import solve_mdp

SECONDS = (Metric("seconds", "s"), Metric("checksum", "", "neither"))
RL = "pip install 'armillary[rl]'"


def process(cell: Cell) -> VectorMDP:
    return garnet(int(cell.case.x["states"]), limits=1, seed=cell.seed)


def bundle(mdp: VectorMDP, cell: Cell) -> Mapping[str, float]:
    return {"checksum": solve_mdp(mdp, "bundle").value_min}


def programme(mdp: VectorMDP, cell: Cell) -> Mapping[str, float]:
    return {"checksum": solve_mdp(mdp, "lp").value_min}


def _sizes(*states: int) -> list[Case]:
    return [Case(f"S={s}", x={"states": s, "pairs": 5 * s}) for s in states]


SCALING = Experiment(
    id="scaling",
    title="Time of the bundle against states",
    cases={
        "smoke": [],
        "quick": _sizes(500, 1000),
        "full": _sizes(500, 1000, 2000, 4000),
        "long": _sizes(500, 1000, 2000, 4000, 8000),
    },
    setup=process,
    contenders=(Contender("ours", bundle),),
    metrics=SECONDS,
    claims=(
        Claim(
            id="bundle-grows-slowly",
            statement="The bundle's time grows with at most the power 1.3 of the pairs (s, a), up "
            "to 4000 sparse states.",
            paper="Has no exact solver.",
            conditions=(Condition(Stat("seconds", form="slope", along="pairs"), at_most=1.3),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(warmups=0, repeats=1),
    packages=("scipy", "numpy"),
)

BESIDE_PROGRAMME = Experiment(
    id="beside-programme",
    title="Time of the bundle and of the linear programme",
    cases={
        "smoke": [],
        "quick": [],
        "full": _sizes(300, 600),
        "long": [],
    },
    setup=process,
    contenders=(Contender("ours", bundle), Contender("linear-programme", programme)),
    metrics=SECONDS,
    claims=(
        Claim(
            id="quicker-than-the-programme",
            statement="From 600 states on the bundle takes at most 0.7 times as long as HiGHS on "
            "the linear programme.",
            paper="Has no exact solver.",
            conditions=(
                Condition(
                    Stat(
                        "seconds",
                        over=("linear-programme",),
                        form="ratio",
                        pool="geomean",
                        where=lambda case: case.x["states"] >= 600,
                    ),
                    at_most=0.7,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(warmups=0, repeats=1),
    packages=("scipy", "numpy"),
)


class Warm(NamedTuple):
    """A learner that has played a rollout, and the smoothed gradient beside it."""

    model: Any
    smoothed: Any


def warm_learner(cell: Cell) -> Warm:
    from armillary.rl.maxmin_morl.evidence_deep import learner
    from armillary.rl.maxmin_morl.smoothing import SmoothedGradient

    model = learner("building", cell.seed, {"warmup": 1.0})
    model.learn(2048)
    smoothed = SmoothedGradient(model.policy, model.signals.size, 3, seed=cell.seed)
    return Warm(model, smoothed)


def critic_gradient(work: Warm, cell: Cell) -> Mapping[str, float]:
    """The dual's gradient from the vector critic and the fresh residuals."""
    return {"checksum": float(np.sum([work.model.estimate().sum() for _ in range(5)]))}


def smoothed_gradient(work: Warm, cell: Cell) -> Mapping[str, float]:
    """The dual's gradient from ten perturbed critics."""
    m = work.model
    found = [
        work.smoothed(m.policy, m.rollout_buffer, m.dual, m._unit, m._starts()).sum()
        for _ in range(5)
    ]
    return {"checksum": float(np.sum(found))}


def _building_case(steps: int) -> list[Case]:
    needs = (
        Need("extra", "stable_baselines3", RL),
        Need("extra", "sustaingym", "pip install --no-deps sustaingym==0.1.7"),
    )
    return [Case("building", x={"steps": steps}, needs=needs)]


GRADIENT = Experiment(
    id="dual-gradient",
    title="Time of five gradients of the dual",
    cases={"smoke": [], "quick": [], "full": _building_case(2048), "long": []},
    setup=warm_learner,
    contenders=(Contender("ours", critic_gradient), Contender("smoothing", smoothed_gradient)),
    metrics=SECONDS,
    claims=(
        Claim(
            id="smoothing-costs-more",
            statement="Reading the dual's gradient from the vector critic takes at most a quarter "
            "of the time that ten perturbed copies take.",
            paper="Replaces ten perturbed copies by one gradient network.",
            conditions=(
                Condition(
                    Stat("seconds", over=("smoothing",), form="ratio", pool="geomean"), at_most=0.25
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    timed=Timing(warmups=1, repeats=3),
    packages=("torch", "stable-baselines3"),
)


def seed_of(cell: Cell) -> int:
    return cell.seed


def our_ppo(seed: int, cell: Cell) -> Mapping[str, float]:
    """Our learner on the buildings."""
    from armillary.rl.maxmin_morl.evidence_deep import learner

    model = learner("building", seed, {})
    model.learn(int(cell.case.x["steps"]))
    return {"checksum": float(model.num_timesteps)}


def plain_ppo(seed: int, cell: Cell) -> Mapping[str, float]:
    """Stable-Baselines3's PPO on the mean objective, same settings, same buildings."""
    from stable_baselines3 import PPO

    env, settings = _scalar_buildings()
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    model.learn(int(cell.case.x["steps"]))
    return {"checksum": float(model.num_timesteps)}


def our_sac(seed: int, cell: Cell) -> Mapping[str, float]:
    """Our off-policy learner, one gradient step a step."""
    import torch

    from armillary.rl.maxmin_morl.envs.building import BuildingZones
    from armillary.rl.maxmin_morl.sac import ConstrainedMaxMinSAC

    torch.set_num_threads(1)
    model = ConstrainedMaxMinSAC(
        BuildingZones, ["info:energy>=-180@discounted"], seed=seed, learning_starts=100
    )
    model.learn(int(cell.case.x["steps"]))
    return {"checksum": float(model.num_timesteps)}


def plain_sac(seed: int, cell: Cell) -> Mapping[str, float]:
    """Stable-Baselines3's SAC on the mean objective."""
    import mo_gymnasium
    import torch
    from stable_baselines3 import SAC

    from armillary.rl.maxmin_morl.envs.building import BuildingZones

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = mo_gymnasium.wrappers.LinearReward(BuildingZones(), weight=np.full(3, 1 / 3))  # pyright: ignore
        model = SAC("MlpPolicy", env, seed=seed, device="cpu", learning_starts=100)
    model.learn(int(cell.case.x["steps"]))
    return {"checksum": float(model.num_timesteps)}


def _scalar_buildings() -> tuple[Any, dict[str, Any]]:
    import torch

    from armillary.rl.maxmin_morl import tuning
    from armillary.rl.maxmin_morl.envs.building import BuildingZonesVector
    from armillary.rl.maxmin_morl.vector_env import BatchedVecEnv

    torch.set_num_threads(1)

    class Mean(BatchedVecEnv):
        def step_wait(self) -> tuple[Any, Any, Any, Any]:
            seen, rewards, dones, infos = super().step_wait()
            return seen, rewards.mean(axis=1), dones, infos

    settings = tuning.building()
    first, _ = settings.pop("noise")
    del settings["eta_w"]
    settings["policy_kwargs"] = {"log_std_init": float(np.log(first))}
    return Mean(BuildingZonesVector(tuning.BUILDING_ENVS, stagger=True)), settings


def _speed(name: str, ours: Any, plain: Any, steps: Mapping[str, int], claim: str) -> Experiment:
    return Experiment(
        id=f"speed-{name.lower()}",
        title=f"Time to learn for some steps, beside Stable-Baselines3's {name}",
        cases={profile: _building_case(n) if n else [] for profile, n in steps.items()},
        setup=seed_of,
        contenders=(Contender("ours", ours), Contender("stable-baselines3", plain)),
        metrics=SECONDS,
        claims=(
            Claim(
                id=claim,
                statement=f"The constrained max-min {name} makes at least 0.7 times as many steps "
                f"a second as Stable-Baselines3's own {name}.",
                paper="Does not report throughput.",
                conditions=(
                    Condition(
                        Stat("seconds", over=("stable-baselines3",), form="ratio", pool="geomean"),
                        at_most=1 / 0.7,
                    ),
                ),
            ),
        ),
        seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
        # The first call imports torch and draws up the buildings: it is not counted.
        timed=Timing(warmups=1, repeats=5),
        packages=("torch", "stable-baselines3"),
    )


SPEED_PPO = _speed(
    "PPO",
    our_ppo,
    plain_ppo,
    {"smoke": 0, "quick": 0, "full": 8192, "long": 0},
    "ppo-learns-as-fast",
)
SPEED_SAC = _speed(
    "SAC",
    our_sac,
    plain_sac,
    {"smoke": 0, "quick": 0, "full": 400, "long": 0},
    "sac-learns-as-fast",
)
