"""KAGE: a JAX 2D platformer whose look can be changed one visual axis at a time.

    from armillary.rl.kage import KageEnv, suites

    env = KageEnv()                                       # gymnax; a teal circle on black
    obs, state = env.reset(key)                           # (128, 128, 3) uint8
    obs, state, reward, terminated, truncated, info = env.step(key, state, 2)
    pair = suites()["filters"][3]                         # train and eval differ in hue alone

Source: Cherepanov, Zelezetsky, Kovalev, Panov, "KAGE-Bench: Fast Known-Axis Visual Generalization
Evaluation for RL", ICML 2026 (arXiv 2601.14232).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.rl.kage.config import check_pair as check_pair
    from armillary.rl.kage.config import differences as differences
    from armillary.rl.kage.engine import Kage as Kage
    from armillary.rl.kage.engine import KageParams as KageParams
    from armillary.rl.kage.engine import KageState as KageState
    from armillary.rl.kage.env import KageEnv as KageEnv
    from armillary.rl.kage.errors import AssetError as AssetError
    from armillary.rl.kage.errors import AxisLeakError as AxisLeakError
    from armillary.rl.kage.errors import ConfigError as ConfigError
    from armillary.rl.kage.evaluation import evaluate as evaluate
    from armillary.rl.kage.evaluation import policy_gap as policy_gap
    from armillary.rl.kage.gymnasium_env import KageGymnasium as KageGymnasium
    from armillary.rl.kage.gymnasium_env import KageVectorEnv as KageVectorEnv
    from armillary.rl.kage.pairs import Pair as Pair
    from armillary.rl.kage.pairs import suites as suites
    from armillary.rl.kage.params import LatentParams as LatentParams
    from armillary.rl.kage.params import StaticCaps as StaticCaps
    from armillary.rl.kage.params import VisualParams as VisualParams
    from armillary.rl.kage.params import load_config as load_config
    from armillary.rl.kage.policies import Policy as Policy
    from armillary.rl.kage.ppo import PPOResult as PPOResult

_HOMES = {
    "AssetError": "errors",
    "AxisLeakError": "errors",
    "ConfigError": "errors",
    "Kage": "engine",
    "KageEnv": "env",
    "KageGymnasium": "gymnasium_env",
    "KageParams": "engine",
    "KageState": "engine",
    "KageVectorEnv": "gymnasium_env",
    "LatentParams": "params",
    "PPOResult": "ppo",
    "Pair": "pairs",
    "Policy": "policies",
    "StaticCaps": "params",
    "VisualParams": "params",
    "check_pair": "config",
    "differences": "config",
    "evaluate": "evaluation",
    "load_config": "params",
    "policy_gap": "evaluation",
    "suites": "pairs",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="kage", extra="rl")
