"""Which expert gets how many bits: one program for the whole model.

With c[l, e, b] the damage of giving expert e of layer l the width b, and s[l, e, b] its bytes,

    min  sum c z     s.t.  sum_b z[l, e, b] = 1,   sum s z <= budget,   z binary,

optionally with one expert of each layer at the largest and one at the second largest width
(diversity), and with a cap on each layer's mean bits (trust region). The program is solved by
HiGHS. A multiple-choice knapsack without side rules has a linear relaxation with one fractional
group, so Lagrange multipliers give a solution with a proven gap as well: it bounds every plan, and
stands in when the solver runs out of time.

Source: GEMQ (ICML 2026, arXiv 2605.23078), section on global allocation. True bytes, the cap and
the bound are ours.

Shapes: L layers, E experts of a layer, S widths.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from armillary.serving.gemq.importance import Importance

Doubles = NDArray[np.float64]
Scope = Literal["global", "layer"]
Weighting = Literal["fisher", "fisher-raw", "recon", "frequency"]
Budget = Literal["true", "nominal"]


class AllocationWarning(UserWarning):
    """A rule was dropped, or a plan is not proved optimal."""


@dataclasses.dataclass(frozen=True)
class BitPlan:
    """The width of every expert, and how good the plan is known to be.

    Attributes:
        bits: (L, E) widths.
        layers: names of the MoE blocks, in order.
        widths: the widths that were allowed.
        group: features that share a scale.
        objective: the damage of the plan, in the units of the coefficients.
        bound: no plan under the same rules does less damage than this.
        bytes: of all routed experts, true bytes whatever the budget counted.
        budget: what was allowed, in the units that were counted.
        counted: ``"true"`` bytes or ``"nominal"`` bits.
        scope, weighting: how it was made.
        trust: the cap on a layer's mean bits above the average; None: none.
        solver: ``highs``, ``lagrange`` or ``fixed``.
        notes: rules that were dropped.
    """

    bits: NDArray[np.int64]
    layers: tuple[str, ...]
    widths: tuple[int, ...]
    group: int
    objective: float
    bound: float
    bytes: int
    budget: float
    counted: str
    scope: str
    weighting: str
    trust: float | None
    solver: str
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """How far the objective may be above the best, as a share of it."""
        if self.objective <= self.bound:
            return 0.0
        return (self.objective - self.bound) / self.objective

    @property
    def mean_bits(self) -> float:
        return float(self.bits.mean())

    @property
    def layer_means(self) -> Doubles:
        """(L,)"""
        return self.bits.mean(axis=1)

    def to_dict(self) -> dict[str, Any]:
        about = dataclasses.asdict(self)
        about["bits"] = dict(zip(self.layers, self.bits.tolist(), strict=True))
        about.pop("layers")
        return about | {"gap": self.gap, "mean_bits": self.mean_bits,
                        "layer_means": self.layer_means.tolist()}  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write as JSON."""
        from armillary import output

        return output.write_json(path, self.to_dict())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> BitPlan:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is no plan.
        """
        try:
            about = json.loads(Path(path).read_text("utf-8"))
            names = {f.name for f in dataclasses.fields(BitPlan)} - {"layers"}
            rows = about["bits"]
            values = {name: about[name] for name in names}
            values["bits"] = np.array(list(rows.values()), np.int64)
            if values["bits"].ndim != 2:
                raise ValueError("layers have different numbers of experts")
            for name in ("widths", "notes"):
                values[name] = tuple(values[name])
            return BitPlan(layers=tuple(rows), **values)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} is no plan of `armillary gemq allocate`: {error}"
            ) from error


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a plan must satisfy.

    Attributes:
        budget: on the sum of sizes.
        diverse: (L,) layers that need the largest and the second largest width.
        cap: (L,) the largest sum of bits of a layer; infinite: none.
        barred: (L, E) experts that may not have the largest width.
    """

    budget: float
    diverse: NDArray[np.bool_]
    cap: Doubles
    barred: NDArray[np.bool_]


def allocate(
    importance: Importance,
    *,
    avg_bits: float | None = None,
    budget_bytes: float | None = None,
    budget: Budget = "true",
    scope: Scope = "global",
    weighting: Weighting = "fisher",
    diversity: bool = True,
    trust: float | None = None,
    solver: Literal["highs", "lagrange"] = "highs",
    seconds: float = 30.0,
    coefficients: Doubles | None = None,
) -> BitPlan:
    """The plan of least damage within a budget.

    Args:
        importance: what `collect` measured.
        avg_bits: the budget as an average width: the bytes of a model quantised uniformly at it
            (between two widths: in proportion).
        budget_bytes: the budget in bytes of routed experts instead.
        budget: ``"true"`` counts codes, scales and zeros; ``"nominal"`` counts bits of codes, as
            the authors do.
        scope: ``"global"``: one program; ``"layer"``: each layer gets its share of the budget.
        weighting: ``"fisher"``: squared gradients times squared error; ``"fisher-raw"``: the same
            as the authors have it, no position left out, nothing clipped; ``"recon"``: squared
            error; ``"frequency"``: frequency times routing weight times squared error.
        diversity: in each layer one expert at the largest and one at the second largest width.
        trust: each layer's mean bits may exceed the average by so much; None: no cap.
        solver: HiGHS, or Lagrange multipliers alone.
        seconds: limit for HiGHS.
        coefficients: (L, E, S) damages to use instead of those of ``weighting``.

    Raises:
        ValueError: not one of the two budgets is given, or it lies outside what the widths allow.
    """
    c = importance.damage(weighting) if coefficients is None else np.asarray(coefficients, float)
    widths = np.array(importance.bits)
    if c.shape != importance.sizes.shape or not np.isfinite(c).all():
        raise ValueError(
            f"coefficients have shape {c.shape}; finite ones of {importance.sizes.shape} are needed"
        )
    if scope not in ("global", "layer"):
        raise ValueError(f"scope={scope!r}: it must be 'global' or 'layer'")
    if budget not in ("true", "nominal"):
        raise ValueError(f"budget={budget!r}: it must be 'true' or 'nominal'")
    true_sizes = importance.sizes.astype(float)
    nominal = importance.parameters[:, :, None] * widths / 8.0
    sizes = true_sizes if budget == "true" else nominal
    allowed = _budget(sizes, widths, avg_bits, budget_bytes)
    mean = avg_bits if avg_bits is not None else _mean_bits(sizes, widths, allowed)

    notes: list[str] = []
    diverse = _diverse(importance, widths, mean, diversity, notes)
    experts = c.shape[1]
    cap = np.full(len(c), np.inf if trust is None else np.floor(experts * (mean + trust) + 1e-9))
    rules = Rules(allowed, diverse, cap, importance.uncalibrated & (len(widths) > 1))
    if scope == "global":
        bits, bound, used = _solve(c, sizes, widths, rules, solver, seconds, notes)
    else:
        share = allowed / sizes[:, :, -1].sum()
        parts = []
        for i in range(len(c)):
            one = Rules(
                share * sizes[i, :, -1].sum(), diverse[i : i + 1], cap[i : i + 1],
                rules.barred[i : i + 1],
            )  # fmt: skip
            parts.append(
                _solve(c[i : i + 1], sizes[i : i + 1], widths, one, solver, seconds, notes)
            )
        bits = np.concatenate([part[0] for part in parts])
        bound = sum(part[1] for part in parts)
        used = parts[0][2]
    for note in notes:
        warnings.warn(note, AllocationWarning, stacklevel=2)
    chosen = np.searchsorted(widths, bits)
    return BitPlan(
        bits=bits,
        layers=importance.layers,
        widths=importance.bits,
        group=importance.group,
        objective=float(_taken(c, chosen).sum()),
        bound=float(bound),
        bytes=int(_taken(true_sizes, chosen).sum()),
        budget=float(allowed),
        counted=budget,
        scope=scope,
        weighting=weighting,
        trust=trust,
        solver=used,
        notes=tuple(notes),
    )


def fixed_plan(importance: Importance, bits: NDArray[Any] | int, *, name: str = "given") -> BitPlan:
    """A plan that is given: one width for all, or an (L, E) array of widths."""
    widths = np.array(importance.bits)
    wanted = np.broadcast_to(np.asarray(bits, np.int64), importance.sizes.shape[:2]).copy()
    if not np.isin(wanted, widths).all():
        raise ValueError(f"bits must be among {importance.bits}, given {np.unique(wanted)}")
    chosen = np.searchsorted(widths, wanted)
    size = int(_taken(importance.sizes, chosen).sum())
    damage = float(_taken(importance.damage("fisher"), chosen).sum())
    return BitPlan(
        wanted, importance.layers, importance.bits, importance.group, damage, 0.0, size, size,
        "true", name, "none", None, "fixed",
    )  # fmt: skip


def uniform_plan(importance: Importance, avg_bits: float, seed: int = 0) -> BitPlan:
    """One width for all; between two widths, a seeded split of each layer's experts."""
    layers, experts = importance.sizes.shape[:2]
    low = int(np.floor(avg_bits))
    bits = np.full((layers, experts), low)
    more = round((avg_bits - low) * experts)
    rng = np.random.default_rng(seed)
    for row in bits:
        row[rng.permutation(experts)[:more]] += 1
    return fixed_plan(importance, bits, name="uniform")


def permuted(plan: BitPlan, importance: Importance, seed: int) -> BitPlan:
    """The same widths given to experts at random, over the whole model."""
    flat = np.random.default_rng(seed).permutation(plan.bits.ravel())
    return fixed_plan(importance, flat.reshape(plan.bits.shape), name="permuted")


# ---- budgets and rules --------------------------------------------------------------------------


def _taken(table: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[Any]:
    return np.take_along_axis(table, chosen[:, :, None], axis=2)[:, :, 0]


def _mean_bits(sizes: Doubles, widths: NDArray[Any], allowed: float) -> float:
    return float(np.interp(allowed, sizes.sum(axis=(0, 1)), widths))


def _budget(
    sizes: Doubles, widths: NDArray[Any], avg_bits: float | None, budget_bytes: float | None
) -> float:
    totals = sizes.sum(axis=(0, 1))
    legal = (
        f"{widths[0]:g} to {widths[-1]:g} bits on average, {totals[0]:,.0f} to {totals[-1]:,.0f} "
        "bytes"
    )
    if (avg_bits is None) == (budget_bytes is None):
        raise ValueError(f"give one of avg_bits and budget_bytes; legal are {legal}")
    if avg_bits is not None:
        if not widths[0] <= avg_bits <= widths[-1]:
            raise ValueError(f"avg_bits={avg_bits:g} is outside what widths allow: {legal}")
        return float(np.interp(avg_bits, widths, totals))
    assert budget_bytes is not None
    if not totals[0] <= budget_bytes <= totals[-1]:
        raise ValueError(f"budget_bytes={budget_bytes:,.0f} is outside what widths allow: {legal}")
    return float(budget_bytes)


def _diverse(
    importance: Importance, widths: NDArray[Any], mean: float, asked: bool, notes: list[str]
) -> NDArray[np.bool_]:
    layers, experts = importance.sizes.shape[:2]
    if not asked:
        return np.zeros(layers, bool)
    if len(widths) < 2 or experts < 2:
        notes.append(
            f"diversity rule dropped: it needs two experts and two widths, there are {experts} "
            f"and {len(widths)}"
        )
        return np.zeros(layers, bool)
    needed = (widths[-1] - widths[0]) + (widths[-2] - widths[0])
    if experts * (mean - widths[0]) < needed - 1e-9:
        notes.append(
            f"diversity rule dropped: {experts} experts at {mean:g} bits leave "
            f"{experts * (mean - widths[0]):g} bits above the least, {needed} are needed"
        )
        return np.zeros(layers, bool)
    found = np.array([not row.all() for row in importance.uncalibrated])
    if not found.all():
        names = ", ".join(np.array(importance.layers)[~found])
        notes.append(f"diversity rule dropped where no expert was calibrated: {names}")
    return found


# ---- solvers ------------------------------------------------------------------------------------


def _solve(
    c: Doubles, sizes: Doubles, widths: NDArray[Any], rules: Rules, solver: str, seconds: float,
    notes: list[str],
) -> tuple[NDArray[np.int64], float, str]:  # fmt: skip
    """Widths (L, E), a proven lower bound of the objective, and which solver it was."""
    chosen, bound = lagrange(c, sizes, widths, rules)
    if chosen is not None and _taken(c, chosen).sum() <= bound * (1 + 1e-12):
        return widths[chosen], bound, "lagrange"
    if solver == "highs" or chosen is None:
        found, lower = highs(c, sizes, widths, rules, seconds, bound)
        bound = max(bound, lower)
        if found is not None:
            best = _taken(c, found).sum()
            if chosen is None or best <= _taken(c, chosen).sum():
                return widths[found], bound, "highs"
        elif chosen is None:
            raise ValueError(
                f"no plan satisfies the rules within {rules.budget:,.0f} bytes; give more bytes, "
                "or drop diversity or the trust region"
            )
        else:
            notes.append(f"HiGHS found no plan in {seconds:g} s; the plan is that of multipliers")
    assert chosen is not None
    return widths[chosen], bound, "lagrange"


def highs(
    c: Doubles, sizes: Doubles, widths: NDArray[Any], rules: Rules, seconds: float, bound: float
) -> tuple[NDArray[np.int64] | None, float]:
    """The program by HiGHS: the chosen widths' indices (L, E), or None, and a lower bound."""
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    layers, experts, count = c.shape
    n = c.size
    # HiGHS stops at an absolute gap of 1e-6: objectives near 1,000 make that a share of 1e-9.
    scale = 1e3 / bound if bound > 0 else 1.0 / max(float(np.abs(c).max()), 1e-300)
    one = sparse.kron(sparse.eye(layers * experts), np.ones((1, count)))
    rows = [LinearConstraint(one, 1, 1)]
    unit = float(sizes.max())
    rows.append(LinearConstraint(sizes.reshape(1, n) / unit, -np.inf, rules.budget / unit + 1e-9))
    index = np.arange(n).reshape(c.shape)
    for i in np.flatnonzero(rules.diverse):
        for width in (count - 1, count - 2):
            row = np.zeros(n)
            row[index[i, :, width]] = 1
            rows.append(LinearConstraint(row, 1, np.inf))
    for i in np.flatnonzero(np.isfinite(rules.cap)):
        row = np.zeros(n)
        row[index[i]] = widths
        rows.append(LinearConstraint(row, -np.inf, rules.cap[i]))
    upper = np.ones(c.shape)
    upper[:, :, -1][rules.barred] = 0
    answer = milp(
        c.ravel() * scale, constraints=rows, integrality=np.ones(n),
        bounds=Bounds(0, upper.ravel()),  # pyright: ignore[reportArgumentType]
        options={"time_limit": seconds, "mip_rel_gap": 1e-9},
    )  # fmt: skip
    lower = getattr(answer, "mip_dual_bound", None)
    lower = -np.inf if lower is None else lower / scale
    if answer.x is None:
        return None, lower
    return answer.x.reshape(c.shape).argmax(axis=2), lower


def lagrange(
    c: Doubles, sizes: Doubles, widths: NDArray[Any], rules: Rules, rounds: int = 60
) -> tuple[NDArray[np.int64] | None, float]:
    """The best plan that a multiplier on the budget finds, and the best bound it proves.

    For a price of bytes every layer is solved exactly on its own; the price is bisected, and what
    the dearest feasible price leaves over is spent greedily.
    """

    def at(price: float) -> tuple[NDArray[np.int64] | None, float, float]:
        chosen = np.empty(c.shape[:2], np.int64)
        total = 0.0
        for i in range(len(c)):
            row, value = _layer(c[i] + price * sizes[i], widths, rules, i)
            if row is None:
                return None, np.inf, np.inf
            chosen[i], total = row, total + value
        return chosen, total - price * rules.budget, float(_taken(sizes, chosen).sum())

    slack = rules.budget * (1 + 1e-12) + 1e-9
    free, bound, used = at(0.0)
    if free is None:
        return None, -np.inf
    if used <= slack:
        return free, bound
    low, high = 0.0, float(np.abs(c).max() / np.maximum(sizes, 1).min()) + 1e-300
    best, dual, used = at(high)
    for _ in range(60):
        if used <= slack:
            break
        high *= 8
        best, dual, used = at(high)
    if used > slack:
        return None, bound
    bound = max(bound, dual)
    for _ in range(rounds):
        middle = (low + high) / 2
        found, dual, used = at(middle)
        bound = max(bound, dual)
        if used <= slack:
            best, high = found, middle
        else:
            low = middle
        if high - low <= 1e-12 * high:
            break
    assert best is not None
    return _spend(best, c, sizes, widths, rules, slack), bound


def _layer(
    cost: Doubles, widths: NDArray[Any], rules: Rules, i: int
) -> tuple[NDArray[np.int64] | None, float]:
    """The cheapest widths of one layer under its rules: a table over (bits used, which widths)."""
    experts, count = cost.shape
    diverse, barred, cap = rules.diverse[i], rules.barred[i], rules.cap[i]
    usable = cost.copy()
    usable[barred, -1] = np.inf
    free = usable.argmin(axis=1)
    # Often the cheapest widths already satisfy the rules.
    seen = set(free.tolist())
    if widths[free].sum() <= cap and (not diverse or {count - 1, count - 2} <= seen):
        return free, float(usable[np.arange(experts), free].sum())
    most = int(min(cap, experts * widths[-1])) if np.isfinite(cap) else 0
    step = widths if np.isfinite(cap) else np.zeros_like(widths)
    flag = np.zeros(count, np.int64)
    if diverse:
        flag[-1], flag[-2] = 1, 2
    table = np.full((most + 1, 4), np.inf)
    table[0, 0] = 0.0
    back = np.zeros((experts, most + 1, 4), np.int64)
    for e in range(experts):
        following = np.full_like(table, np.inf)
        for s in range(count):
            if not np.isfinite(usable[e, s]) or step[s] > most:
                continue
            for f in range(4):
                to = f | flag[s]
                reached = table[: most + 1 - step[s], f] + usable[e, s]
                place = following[step[s] :, to]
                better = reached < place
                place[better] = reached[better]
                back[e, step[s] :, to][better] = s * 4 + f
        table = following
    goal = 3 if diverse else 0
    end = int(table[:, goal].argmin())
    if not np.isfinite(table[end, goal]):
        return None, np.inf
    value, chosen, f = float(table[end, goal]), np.empty(experts, np.int64), goal
    for e in range(experts - 1, -1, -1):
        s, before = divmod(int(back[e, end, f]), 4)
        chosen[e], end, f = s, end - int(step[s]), before
    return chosen, value


def _spend(
    chosen: NDArray[np.int64], c: Doubles, sizes: Doubles, widths: NDArray[Any], rules: Rules,
    slack: float,
) -> NDArray[np.int64]:  # fmt: skip
    """Spend what is left: the change that saves most damage, as long as one fits."""
    chosen = chosen.copy()
    count = c.shape[2]
    while True:
        left = slack - _taken(sizes, chosen).sum()
        now, size = _taken(c, chosen), _taken(sizes, chosen)
        saved = now[:, :, None] - c
        fits = (sizes - size[:, :, None] <= left) & (saved > 0)
        fits[:, :, -1] &= ~rules.barred
        room = rules.cap - widths[chosen].sum(axis=1)
        fits &= (widths - widths[chosen][:, :, None]) <= room[:, None, None]
        for i in np.flatnonzero(rules.diverse):
            for width in (count - 1, count - 2):
                holders = np.flatnonzero(chosen[i] == width)
                if len(holders) == 1:  # the only one of its width stays
                    fits[i, holders[0]] = False
        gain = np.where(fits, saved, 0.0)
        best = int(gain.argmax())
        if gain.ravel()[best] <= 0:
            return chosen
        i, e, s = np.unravel_index(best, c.shape)
        chosen[i, e] = s


def candidates(importance: Importance, average: float, deltas: Sequence[float]) -> list[BitPlan]:
    """Plans of different caps on a layer's mean bits, each different plan once."""
    found: list[BitPlan] = []
    for delta in deltas:
        trust = None if np.isinf(delta) else float(delta)
        plan = allocate(importance, avg_bits=average, trust=trust)
        if not any((plan.bits == other.bits).all() for other in found):
            found.append(plan)
    return found


def planted(seed: int, layers: int, experts: int) -> tuple[Doubles, NDArray[np.int64]]:
    """Damages of widths 1, 2, 3 with a known best plan at 2 bits on average.

    Expert j has noise sensitivity a_j, and rounding to b bits costs a_j 4^-b (the variance of a
    uniform error whose step halves with each bit). A bit always costs the same (nominal budget) and
    saves less than the one before it, so that the best plan buys bits in the order of what they
    save; where sensitivities of neighbouring thirds are more than four times apart, that gives the
    thirds 1, 2 and 3 bits.

    Returns:
        Damages (L, E, 3) and the best widths (L, E).
    """
    rng = np.random.default_rng(seed)
    count = layers * experts
    if count % 3:
        raise ValueError(f"{count} experts cannot be dealt in thirds")
    third = np.repeat([0, 1, 2], count // 3)
    rng.shuffle(third)
    sensitivity = 10.0**third * rng.uniform(1, 1.5, size=count)
    damage = sensitivity[:, None] * 4.0 ** -np.array([1, 2, 3])
    return damage.reshape(layers, experts, 3), (third + 1).reshape(layers, experts)
