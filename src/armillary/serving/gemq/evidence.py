"""The experiments of gemq: plans, quality at equal bytes, routers, stages, speed."""

from __future__ import annotations

from armillary.serving.gemq.evidence_allocation import ALLOCATION, PLANTED
from armillary.serving.gemq.evidence_models import PARTS, QUALITY, ROUTERS, STAGES
from armillary.serving.gemq.evidence_speed import SPEED

EXPERIMENTS = (ALLOCATION, PLANTED, QUALITY, PARTS, ROUTERS, STAGES, SPEED)
