"""Wages of 3000 workers: an ensemble's predictive distributions before and after recalibration.

Needs: pip install 'armillary[uncertainty-peers]' (for the table); no network.
"""

import numpy as np
from sklearn.ensemble import BaggingRegressor

from armillary.corpora import tables
from armillary.uncertainty.recalibration import KernelRecalibrator, predictive_of, report

wage = tables.load("wage")
order = np.random.default_rng(0).permutation(len(wage))
train, calibration, test = np.split(order, [1200, 2400])

# Trees of a bagged ensemble, read as samples: they know the model's doubt, not the noise in wages.
model = BaggingRegressor(n_estimators=60, random_state=0).fit(wage.X[train], wage.y[train])
before = predictive_of(model, wage.X[test])

# Learn from rows that the ensemble has not seen, then recalibrate the test rows.
recalibrator = KernelRecalibrator(random_state=0)
recalibrator.fit(predictive_of(model, wage.X[calibration]), wage.y[calibration])
after = recalibrator.predict(before)

figures = report(before, after, wage.y[test])
for label, row in figures.lines():
    print(f"{label:36s} {row['before']:>18s} {row['after']:>18s}")

person = 0
low, middle, high = recalibrator.predict_quantiles(before[[person]], [0.05, 0.5, 0.95])[0]
print(f"\none worker: {middle:.0f} thousand dollars, 90 % between {low:.0f} and {high:.0f}")
print(f"earned: {wage.y[test][person]:.0f}")
