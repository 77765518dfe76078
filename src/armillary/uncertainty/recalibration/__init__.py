"""Recalibration: whole predictive distributions that can be trusted, from a held-out set.

    from armillary.uncertainty.recalibration import KernelRecalibrator

    recalibrator = KernelRecalibrator().fit((mean, std), y)      # calibration rows
    law = recalibrator.predict((new_mean, new_std))              # one distribution a row
    law.interval(0.9), law.quantile([0.05, 0.5, 0.95]), law.crps(new_y)

Source: Jung, Kelen, Benczur, "Nonparametric Distribution Regression Re-calibration", ICML 2026
(arXiv 2602.13362).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.uncertainty.recalibration.diagnostics import dcor as dcor
    from armillary.uncertainty.recalibration.diagnostics import pit as pit
    from armillary.uncertainty.recalibration.diagnostics import skce as skce
    from armillary.uncertainty.recalibration.distributions import (
        GaussianMixture as GaussianMixture,
    )
    from armillary.uncertainty.recalibration.distributions import Quantiles as Quantiles
    from armillary.uncertainty.recalibration.distributions import (
        SupportWeights as SupportWeights,
    )
    from armillary.uncertainty.recalibration.distributions import (
        WeightedSamples as WeightedSamples,
    )
    from armillary.uncertainty.recalibration.distributions import as_predictive as as_predictive
    from armillary.uncertainty.recalibration.estimator import (
        CalibrationLeakWarning as CalibrationLeakWarning,
    )
    from armillary.uncertainty.recalibration.estimator import (
        ConstantOutcomes as ConstantOutcomes,
    )
    from armillary.uncertainty.recalibration.estimator import (
        DegeneratePredictions as DegeneratePredictions,
    )
    from armillary.uncertainty.recalibration.estimator import (
        ExtrapolatedPredictions as ExtrapolatedPredictions,
    )
    from armillary.uncertainty.recalibration.estimator import (
        KernelRecalibrator as KernelRecalibrator,
    )
    from armillary.uncertainty.recalibration.regressor import (
        RecalibratedRegressor as RecalibratedRegressor,
    )
    from armillary.uncertainty.recalibration.regressor import predictive_of as predictive_of
    from armillary.uncertainty.recalibration.reporting import (
        expected_coverage_table as expected_coverage_table,
    )
    from armillary.uncertainty.recalibration.reporting import report as report

_HOMES = {
    "CalibrationLeakWarning": "estimator",
    "DegeneratePredictions": "estimator",
    "ConstantOutcomes": "estimator",
    "ExtrapolatedPredictions": "estimator",
    "GaussianMixture": "distributions",
    "KernelRecalibrator": "estimator",
    "Quantiles": "distributions",
    "RecalibratedRegressor": "regressor",
    "SupportWeights": "distributions",
    "WeightedSamples": "distributions",
    "as_predictive": "distributions",
    "dcor": "diagnostics",
    "expected_coverage_table": "reporting",
    "pit": "diagnostics",
    "predictive_of": "regressor",
    "report": "reporting",
    "skce": "diagnostics",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="recalibration", extra="uncertainty")
