"""The experiments of tbik: equal bits, accuracy, generation, rollouts, learning, speed."""

from __future__ import annotations

from armillary.serving.tbik.evidence_exchange import EXCHANGE
from armillary.serving.tbik.evidence_kernels import ACCURACY, KERNELS
from armillary.serving.tbik.evidence_learning import LEARNING
from armillary.serving.tbik.evidence_models import GENERATION, PARTS, ROLLOUT, WIDE
from armillary.serving.tbik.evidence_speed import SPEED, SPEED_TWO

EXPERIMENTS = (
    KERNELS, ACCURACY, GENERATION, PARTS, WIDE, ROLLOUT, LEARNING, EXCHANGE, SPEED, SPEED_TWO,
)  # fmt: skip
