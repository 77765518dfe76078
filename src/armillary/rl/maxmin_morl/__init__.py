"""Constrained max-min reinforcement learning: lift the worst objective while hard limits hold.

    from armillary.rl.maxmin_morl import ConstrainedMaxMinPPO, solve_tabular

    solution = solve_tabular(P, r, c, C, mu, gamma=0.95)          # exact, with a proof
    model = ConstrainedMaxMinPPO("mo-hopper-v5", ["reward:2>=-100@episode"]).learn(200_000)
    report = model.evaluate(20)                                   # worst objective, slack, w, u

Source: Park, Nam, Byeon, Leshem, Sung, "Constrained Multi-Objective Reinforcement Learning with
Max-Min Criterion", ICML 2026 (arXiv 2605.31388).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.rl.maxmin_morl.constraints import Constraint as Constraint
    from armillary.rl.maxmin_morl.envs.building import BuildingZones as BuildingZones
    from armillary.rl.maxmin_morl.envs.building import BuildingZonesVector as BuildingZonesVector
    from armillary.rl.maxmin_morl.envs.hopper import EnergyHopper as EnergyHopper
    from armillary.rl.maxmin_morl.envs.traffic import TrafficCO2 as TrafficCO2
    from armillary.rl.maxmin_morl.fairness import FairnessReport as FairnessReport
    from armillary.rl.maxmin_morl.generators import garnet as garnet
    from armillary.rl.maxmin_morl.linear_program import (
        InfeasibleConstraints as InfeasibleConstraints,
    )
    from armillary.rl.maxmin_morl.mdp import ScaleWarning as ScaleWarning
    from armillary.rl.maxmin_morl.mdp import VectorMDP as VectorMDP
    from armillary.rl.maxmin_morl.mdp import from_gymnasium as from_gymnasium
    from armillary.rl.maxmin_morl.ppo import ConstrainedMaxMinPPO as ConstrainedMaxMinPPO
    from armillary.rl.maxmin_morl.sac import ConstrainedMaxMinSAC as ConstrainedMaxMinSAC
    from armillary.rl.maxmin_morl.tabular import Certificate as Certificate
    from armillary.rl.maxmin_morl.tabular import TabularSolution as TabularSolution
    from armillary.rl.maxmin_morl.tabular import solve_tabular as solve_tabular

_HOMES = {
    "BuildingZones": "envs.building",
    "BuildingZonesVector": "envs.building",
    "Certificate": "tabular",
    "ConstrainedMaxMinPPO": "ppo",
    "ConstrainedMaxMinSAC": "sac",
    "Constraint": "constraints",
    "EnergyHopper": "envs.hopper",
    "FairnessReport": "fairness",
    "InfeasibleConstraints": "linear_program",
    "ScaleWarning": "mdp",
    "TabularSolution": "tabular",
    "TrafficCO2": "envs.traffic",
    "VectorMDP": "mdp",
    "from_gymnasium": "mdp",
    "garnet": "generators",
    "solve_tabular": "tabular",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="maxmin-morl", extra="rl")
