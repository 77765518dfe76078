"""The experiments of maxmin-morl.

Exact work on random processes and grids, learned policies on buildings (`full`), a hopper and
traffic (`long`), and timings. The independent unit is the seed, which draws the process or the
whole training run anew; on the two grids, which are fixed, it is the limit.
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.rl.maxmin_morl.evidence_deep import (
    BUILDING,
    HINDSIGHT,
    OTHER_TASKS,
    TIGHT,
)
from armillary.rl.maxmin_morl.evidence_tabular import (
    EXACTNESS,
    FRONT,
    LEARNED_FRONT,
    RATE,
)
from armillary.rl.maxmin_morl.evidence_time import (
    BESIDE_PROGRAMME,
    GRADIENT,
    SCALING,
    SPEED_PPO,
    SPEED_SAC,
)

EXPERIMENTS: tuple[Experiment, ...] = (
    EXACTNESS,
    RATE,
    FRONT,
    LEARNED_FRONT,
    SCALING,
    BESIDE_PROGRAMME,
    BUILDING,
    TIGHT,
    HINDSIGHT,
    OTHER_TASKS,
    GRADIENT,
    SPEED_PPO,
    SPEED_SAC,
)
