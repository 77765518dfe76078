"""The experiments of kage.

What is exact (levels, latent trajectories, axes) is counted; what is timed consumes every frame and
runs on one core; policies are trained anew for every seed, the independent unit.
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.rl.kage.evidence_exact import COMPILATIONS, KNOWN_AXIS, MEMORY, SAME_WORLD
from armillary.rl.kage.evidence_policies import CURE, REINFORCED, WHO_BREAKS
from armillary.rl.kage.evidence_time import ENGINES, SCALING, THROUGHPUT

EXPERIMENTS: tuple[Experiment, ...] = (
    KNOWN_AXIS,
    SAME_WORLD,
    MEMORY,
    COMPILATIONS,
    WHO_BREAKS,
    CURE,
    REINFORCED,
    THROUGHPUT,
    SCALING,
    ENGINES,
)
