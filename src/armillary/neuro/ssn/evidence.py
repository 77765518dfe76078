"""The experiments of ssn.

The independent unit is the split of the images into learned from and tested on (seed); it also
draws patches, weights, noise and spikes anew.
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.neuro.ssn.evidence_front import FRONT
from armillary.neuro.ssn.evidence_labels import LABELS
from armillary.neuro.ssn.evidence_regimes import REGIMES
from armillary.neuro.ssn.evidence_robustness import ROBUSTNESS
from armillary.neuro.ssn.evidence_time import SIZE, SPEED

EXPERIMENTS: tuple[Experiment, ...] = (REGIMES, ROBUSTNESS, LABELS, FRONT, SPEED, SIZE)
