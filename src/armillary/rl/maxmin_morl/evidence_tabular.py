"""Exact solutions, their rate, fairness fronts, and what happens without each part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

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
from armillary.rl.maxmin_morl import peers_tabular as peers
from armillary.rl.maxmin_morl.generators import garnet
from armillary.rl.maxmin_morl.gradient import solve_pgd, solve_smoothing
from armillary.rl.maxmin_morl.grids import four_rooms, resource_gathering
from armillary.rl.maxmin_morl.linear_program import solve_program
from armillary.rl.maxmin_morl.mdp import VectorMDP
from armillary.rl.maxmin_morl.tabular import TabularSolution, check, solve_mdp

EXTRA = "pip install 'armillary[rl]'"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A process with its exact optimum, which is the ceiling of all contenders."""

    mdp: VectorMDP
    optimum: float


def setup(cell: Cell) -> Problem:
    """A Garnet process whose limits bind, and its optimum by the linear programme."""
    x = cell.case.x
    mdp = garnet(int(x["states"]), limits=int(x["limits"]), seed=cell.seed)
    return Problem(mdp, solve_program(mdp).value)


def scores(problem: Problem, policy: np.ndarray) -> dict[str, float]:
    """What a policy is worth, beside the optimum; shortfalls are shares of the threshold."""
    mdp, K = problem.mdp, problem.mdp.r.shape[1]
    J = mdp.returns(policy)
    slack = (J[K:] - mdp.C) / np.maximum(np.abs(mdp.C), 1e-12)
    return {
        "worst": float(J[:K].min()),
        "distance": abs(float(J[:K].min()) - problem.optimum) / abs(problem.optimum),
        "slack": float(slack.min()),
        "violation": float(np.maximum(-slack, 0).max()),
    }


def _proved(problem: Problem, solution: TabularSolution) -> dict[str, float]:
    certificate = check(problem.mdp, solution.policy, solution.w, solution.u)
    return {
        **scores(problem, solution.policy),
        "gap": abs(certificate.gap) / max(1.0, abs(certificate.upper)),
        "off_simplex": abs(float(solution.w.sum()) - 1.0),
    }


def ours(problem: Problem, cell: Cell) -> Mapping[str, float]:
    return _proved(problem, solve_mdp(problem.mdp, "bundle"))


def programme(problem: Problem, cell: Cell) -> Mapping[str, float]:
    return _proved(problem, solve_mdp(problem.mdp, "lp"))


def gradient(problem: Problem, cell: Cell) -> Mapping[str, float]:
    return _proved(problem, solve_mdp(problem.mdp, "pgd"))


def _policy(find: Callable[[VectorMDP], np.ndarray]) -> Callable[[Problem, Cell], dict[str, float]]:
    def run(problem: Problem, cell: Cell) -> dict[str, float]:
        return scores(problem, find(problem.mdp))

    return run


def unprojected(problem: Problem, cell: Cell) -> Mapping[str, float]:
    x = peers.descend_unprojected(problem.mdp)
    return {"off_simplex": abs(float(x[: problem.mdp.r.shape[1]].sum()) - 1.0)}


def _cases(*sizes: tuple[int, int]) -> list[Case]:
    return [Case(f"S={s}, L={n}", x={"states": s, "limits": n}) for s, n in sizes]


def _every(metric: str, of: str = "ours", **bounds: float) -> Condition:
    return Condition(Stat(metric, of=of), every=True, **bounds)  # pyright: ignore


EXACTNESS = Experiment(
    id="exactness",
    title="Random processes whose limits bind, beside their linear programme",
    cases={
        "smoke": _cases((20, 1)),
        "quick": _cases((20, 1), (100, 2)),
        "full": _cases((20, 1), (20, 2), (100, 1), (100, 2), (400, 1), (400, 2)),
        "long": _cases((20, 1), (20, 2), (100, 1), (100, 2), (400, 1), (400, 2)),
    },
    setup=setup,
    contenders=(
        Contender("ours", ours),
        Contender("linear-programme", programme),
        Contender("projected-gradient", gradient),
        Contender("uniform-weights", _policy(peers.uniform_weights)),
        Contender("unlimited", _policy(peers.unlimited)),
        Contender("lagrangian-mean", _policy(peers.limited_mean)),
        Contender("deterministic", _policy(peers.deterministic)),
        Contender("unprojected", unprojected),
    ),
    metrics=(
        Metric("worst", "discounted return", "higher"),
        Metric("distance", "share of the optimum"),
        Metric("gap", "share of the dual value"),
        Metric("slack", "share of the threshold", "higher"),
        Metric("violation", "share of the threshold"),
        Metric("off_simplex", ""),
    ),
    claims=(
        Claim(
            id="exact-with-proof",
            statement="The bundle's policy carries a proof: duality gap at most 1e-4, worst return "
            "within 1e-4 of the linear programme's, every limit met to one millionth.",
            paper="Proves that there is no duality gap; reports no exact solver.",
            conditions=(
                _every("gap", at_most=1e-4),
                _every("distance", at_most=1e-4),
                _every("slack", at_least=-1e-6),
            ),
            ablations=(Ablation("deterministic", "distance"),),
        ),
        Claim(
            id="gradient-is-close",
            statement="Projected gradient on the softened dual (alpha 0.02, 400 steps) comes "
            "within 0.5 % of the optimum and misses no limit by more than 0.1 %.",
            paper="Projected gradient on the regularised dual converges to its optimum.",
            conditions=(
                _every("distance", "projected-gradient", at_most=0.005),
                _every("slack", "projected-gradient", at_least=-0.001),
            ),
        ),
        Claim(
            id="limits-need-prices",
            statement="Without prices (u = 0) the limits are missed in every process, by max-min "
            "and by uniform weights, on average by at least 1 % of the threshold.",
            paper="Unconstrained max-min violates the limit in the tasks reported.",
            conditions=(
                _every("violation", "unlimited", at_least=1e-4),
                _every("violation", "uniform-weights", at_least=1e-4),
                Condition(Stat("violation", of="unlimited"), at_least=0.01),
            ),
        ),
        Claim(
            id="weights-must-move",
            statement="With uniform weights and the same limits (the best that a Lagrangian method "
            "on the mean can do) the worst objective is lower.",
            paper="Reports that a Lagrangian method on one objective is unfair.",
            conditions=(
                Condition(
                    Stat("worst", over=("lagrangian-mean",), form="ratio", pool="geomean"),
                    at_least=1.005,
                ),
            ),
        ),
        Claim(
            id="projection-keeps-weights",
            statement="Without the exact projection the weights leave the simplex (their sum is "
            "off by more than 1 in every process); with it they stay on it.",
            paper="Projects on the simplex at every step.",
            conditions=(
                _every("off_simplex", at_most=1e-8),
                _every("off_simplex", "unprojected", at_least=1.0),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 6, "long": 6},
    packages=("scipy", "highspy"),
)


#: Temperature of the softened dual whose descent is timed by its steps.
ALPHA = 0.02


def rate_setup(cell: Cell) -> Problem:
    return setup(cell)


def bundle_rate(problem: Problem, cell: Cell) -> Mapping[str, float]:
    """Best responses until the bundle's own bounds are 1e-3 apart, relative."""
    history = solve_mdp(problem.mdp, "bundle").history
    size = abs(problem.optimum)
    calls = next(step.calls for step in history if step.upper - step.lower <= 1e-3 * size)
    return {"calls": float(calls)}


def gradient_rate(problem: Problem, cell: Cell) -> Mapping[str, float]:
    """By which factor the softened dual's error falls in 50 steps of constant temperature."""
    steps = {"smoke": 50, "quick": 200}.get(cell.profile, 400)
    found = solve_pgd(problem.mdp, ALPHA, steps, anneal_from=ALPHA, tol=0.0)
    return {"factor": _factor(np.array(found.history)), "calls": float(found.calls)}


def smoothing_rate(problem: Problem, cell: Cell) -> Mapping[str, float]:
    """The rival's best distance from the softened optimum, relative, after as many steps."""
    steps = {"smoke": 10, "quick": 30}.get(cell.profile, 100)
    best = min(solve_pgd(problem.mdp, ALPHA, 2 * steps, anneal_from=ALPHA).history)
    found = solve_smoothing(problem.mdp, ALPHA, steps, seed=cell.seed)
    reached = next((t for t, v in enumerate(found.history) if v - best <= 1e-3 * abs(best)), steps)
    return {"calls": float((reached + 1) * 11), "factor": _factor(np.array(found.history), best)}


def _factor(values: np.ndarray, best: float | None = None) -> float:
    """Mean factor per 50 steps of the error, once it is below a tenth of the first."""
    best = float(values.min()) if best is None else best
    error = values - best
    usable = (error < 0.1 * error[0]) & (error > 1e-9 * max(1.0, abs(best)))
    t = np.flatnonzero(usable)
    if len(t) < 3:
        return 1e-3 if len(t) else 1.0  # nothing between a tenth and rounding: faster than we see
    slope = np.polyfit(t, np.log(error[t]), 1)[0]
    return float(np.clip(np.exp(50 * slope), 1e-3, 1.0))


RATE = Experiment(
    id="rate",
    title="How fast the dual is solved",
    cases={
        "smoke": [],
        "quick": _cases((20, 1)),
        "full": _cases((20, 1), (100, 1), (100, 2)),
        "long": _cases((20, 1), (100, 1), (100, 2)),
    },
    setup=rate_setup,
    contenders=(
        Contender("ours", bundle_rate),
        Contender("projected-gradient", gradient_rate),
        Contender("smoothing", smoothing_rate),
    ),
    metrics=(Metric("calls", "best responses"), Metric("factor", "per 50 steps")),
    claims=(
        Claim(
            id="few-calls",
            statement="The bundle's bounds are within 0.1 % after at most 40 best responses, in "
            "every process, and after fewer than the smoothed gradient needs.",
            paper="No bundle in the paper.",
            conditions=(
                _every("calls", at_most=40),
                Condition(
                    Stat("calls", over=("smoothing",), form="ratio", pool="geomean"), at_most=0.5
                ),
            ),
        ),
        Claim(
            id="geometric-near-the-optimum",
            statement="Near the optimum the error of projected gradient on the softened dual falls "
            "by a constant factor: to at most a half in 50 steps.",
            paper="Claims a geometric rate for projected gradient on the regularised dual.",
            conditions=(Condition(Stat("factor", of="projected-gradient"), at_most=0.5),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 5},
)

GRIDS: Mapping[str, Callable[[float], VectorMDP]] = {
    "resource-gathering": resource_gathering,
    "four-room": four_rooms,
}


def grid_setup(cell: Cell) -> Problem:
    mdp = GRIDS[cell.case.name.split(",")[0]](cell.case.x["tightness"])
    return Problem(mdp, solve_program(mdp).value)


def _grids(names: Sequence[str], *tightness: float) -> list[Case]:
    needs = (Need("extra", "mo_gymnasium", EXTRA),)
    return [
        Case(f"{name}, limit at {x:g}", x={"tightness": x}, needs=needs)
        for name in names
        for x in tightness
    ]  # fmt: skip


def gpi_front(problem: Problem, cell: Cell) -> Mapping[str, float]:
    """The best point of a front of deterministic policies that meets the limit."""
    return scores(problem, peers.best_of_front(problem.mdp, cell.seed))


def gpi_ls_front(problem: Problem, cell: Cell) -> Mapping[str, float]:
    """The best point that meets the limit of a front that morl-baselines learned."""
    from armillary.rl.maxmin_morl.peers_front import learned_front

    steps = {"smoke": 2000, "quick": 10_000, "full": 20_000}.get(cell.profile, 60_000)
    front = learned_front(steps, problem.mdp.gamma, cell.seed)
    C = float(problem.mdp.C[0])
    short = np.maximum(C - front[:, 2], 0.0)
    keeping = front[short <= 1e-3 * abs(C)]
    best = keeping[:, :2].min(axis=1).max() if len(keeping) else 0.0
    return {"worst": float(best), "violation": 0.0 if len(keeping) else float(short.min() / abs(C))}


FRONT = Experiment(
    id="front",
    title="The worst objective as the limit on steps tightens",
    cases={
        "smoke": _grids(["resource-gathering"], 0.5),
        "quick": _grids(["resource-gathering"], 0.2, 0.5, 0.8),
        "full": _grids(list(GRIDS), 0.1, 0.3, 0.5, 0.7, 0.9),
        "long": _grids(list(GRIDS), 0.1, 0.3, 0.5, 0.7, 0.9),
    },
    setup=grid_setup,
    contenders=(
        Contender("ours", ours),
        Contender("linear-programme", programme),
        Contender("lagrangian-mean", _policy(peers.limited_mean)),
        Contender("best-of-front", gpi_front),
    ),
    metrics=EXACTNESS.metrics,
    claims=(
        Claim(
            id="on-the-front",
            statement="On mo-gymnasium's grids the worst objective is within 1 % of the linear "
            "programme's for every limit on steps, and no limit is missed.",
            paper="Reports fairness fronts of learned policies; plots only.",
            conditions=(
                _every("distance", at_most=0.01),
                _every("slack", at_least=-1e-6),
            ),
        ),
        Claim(
            id="fairer-than-fronts",
            statement="On these grids it exceeds that of the best limit-keeping policy among 66 "
            "weighted-sum optima by at least 0.05 on average.",
            paper="Does not compare with fronts.",
            conditions=(
                Condition(Stat("worst", over=("best-of-front",), form="difference"), at_least=0.05),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 1},
    unit="case",
    packages=("mo-gymnasium", "scipy"),
)

LEARNED_FRONT = Experiment(
    id="learned-front",
    title="A front learned by GPI-LS, and its best point that keeps the limit",
    cases={
        "smoke": [],
        "quick": [],
        "full": [],
        "long": _grids(["resource-gathering"], 0.2, 0.5),
    },
    setup=grid_setup,
    contenders=(
        Contender("ours", ours),
        Contender(
            "gpi-ls",
            gpi_ls_front,
            needs=(Need("venv", ".venv-morl", "scripts/peers/morl.sh"),),
            required=False,
        ),
    ),
    metrics=EXACTNESS.metrics,
    claims=(
        Claim(
            id="fairer-than-a-learned-front",
            statement="On resource-gathering its worst objective exceeds that of the best "
            "limit-keeping point of a front that GPI-LS learned (60 000 steps) by at least 0.05.",
            paper="Does not compare with fronts.",
            conditions=(
                Condition(Stat("worst", over=("gpi-ls",), form="difference"), at_least=0.05),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 1, "long": 3},
    packages=("mo-gymnasium",),
)
