"""A network's learned state, and how it learns: fixed point, then local changes, batch by batch.

Legend: B patches, D whitened dimensions, E excitatory and I inhibitory units.

A patch enters as a direction x (unit norm) and a contrast c:

    h_E = g c [F_E x - b]_+,        h_I = g c [F_I x]_+.

The threshold b is subtracted before the contrast multiplies: it is feed-forward inhibition in
proportion to the patch's norm. Drives are therefore proportional to contrast, and without lateral
connections every ratio of rates is the same at all contrasts.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from armillary.neuro.ssn.dynamics import FixedPoint, SSNDynamics, UnstableNetwork
from armillary.neuro.ssn.plasticity import (
    compete,
    covariance,
    hebb,
    homeostasis,
    relative_rates,
    unit_rows,
)

if TYPE_CHECKING:
    from jaxtyping import Float

BATCH = 48
#: Every so many batches the fixed points of so many patches are checked for stability, at contrasts
#: from a quarter of the lowest to twice the highest that is learned at.
STABILITY_EVERY, STABILITY_PATCHES = 50, 8
#: A fixed point must draw rates back within so many membrane time constants.
SLOWEST = 5.0
#: While learning, rates need to settle to this only: the rules average over patches.
LEARNING_TOLERANCE = 1e-3
#: An excitatory total that leaves a fixed point too near instability is lowered by this factor.
SHRINK = 0.98
MOST_SHRINKS = 35  # to half of it


@dataclasses.dataclass(frozen=True)
class Rules:
    """Learning rates of the local rules; zero turns a rule off.

    Attributes:
        excitatory: of the excitatory units' afferents, for a drive of mean contrast.
        inhibitory: of the inhibitory units' afferents.
        lateral: of the lateral synapses, relative to their mean weight.
        inhibition: how much faster E-to-I and I-to-E synapses learn.
        threshold: step of the homeostasis.
        memory: of the running mean rate, in (0, 1).
        slowing: batches after which the afferents' rates have halved.
    """

    excitatory: float = 0.24
    inhibitory: float = 0.08
    lateral: float = 0.002
    inhibition: float = 5.0
    threshold: float = 0.004
    memory: float = 0.98
    slowing: float = 400.0


@dataclasses.dataclass
class Network:
    """Afferents, thresholds and lateral weights.

    Attributes:
        f_exc: (E, D) afferents of excitatory units, rows of unit length.
        f_inh: (I, D) afferents of inhibitory units.
        threshold: (E,) b.
        w_ee, w_ei, w_ie, w_ii: lateral weights, (post, pre), rows adding up to their total.
        totals: J_EE, J_EI, J_IE, J_II.
        gain: g in mV.
    """

    f_exc: Tensor
    f_inh: Tensor
    threshold: Tensor
    w_ee: Tensor
    w_ei: Tensor
    w_ie: Tensor
    w_ii: Tensor
    totals: tuple[float, float, float, float]
    gain: float = 60.0

    @classmethod
    def random(
        cls,
        dimensions: int,
        n_exc: int,
        n_inh: int,
        totals: tuple[float, float, float, float],
        gain: float,
        generator: torch.Generator,
    ) -> Network:
        """Random afferents of unit length and random lateral weights of the given totals."""

        def normal(rows: int) -> Tensor:
            return unit_rows(torch.randn(rows, dimensions, generator=generator))

        def positive(post: int, pre: int, total: float, own: bool = False) -> Tensor:
            return compete(torch.rand(post, pre, generator=generator), total, own=own)

        return cls(
            normal(n_exc),
            normal(n_inh),
            torch.zeros(n_exc),
            positive(n_exc, n_exc, totals[0], own=True),
            positive(n_exc, n_inh, totals[1]),
            positive(n_inh, n_exc, totals[2]),
            positive(n_inh, n_inh, totals[3]),
            totals,
            gain,
        )

    def tensors(self) -> dict[str, Tensor]:
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }

    def to(self, dtype: torch.dtype, device: str | torch.device = "cpu") -> Network:
        """A copy of another precision or on another device."""
        moved = {name: t.to(device, dtype) for name, t in self.tensors().items()}
        return dataclasses.replace(self, **moved)

    def drive(self, x: Float[Tensor, "B D"], contrast: Float[Tensor, " B"]) -> Tensor:
        """(B, E + I) the feed-forward drive of unit-norm patches at a contrast each, in mV."""
        h_exc = (x @ self.f_exc.T - self.threshold).clamp(min=0)
        h_inh = (x @ self.f_inh.T).clamp(min=0)
        return self.gain * contrast[:, None] * torch.cat([h_exc, h_inh], 1)

    def dynamics(
        self, n: float, k: float, tau: tuple[float, float], *, lateral: bool = True
    ) -> SSNDynamics:
        weights = (self.w_ee, self.w_ei, self.w_ie, self.w_ii)
        return SSNDynamics(*weights, n=n, k=k, tau=tau, lateral=lateral)

    def shrink_excitation(self, factor: float = SHRINK) -> None:
        """Lower J_EE, keeping the pattern of the synapses."""
        self.w_ee = self.w_ee * factor
        self.totals = (self.totals[0] * factor, *self.totals[1:])


@dataclasses.dataclass
class Learner:
    """Learns a network from batches of unit-norm patches; no gradient, no target.

    Attributes:
        network: changed in place.
        n, k, tau, lateral: of the dynamics while learning.
        rules: learning rates.
        contrast_range: lowest and highest contrast while learning. Afferents see c x; their
            learning rates are for the contrast in the middle.
        batches: how many have been learned.
        mean_rate: (E,) running mean rates, None before the first batch.
        shrunk: the batches at which J_EE was lowered.
        unconverged: items of all batches whose rates had not settled.
    """

    network: Network
    n: float
    k: float
    tau: tuple[float, float]
    lateral: bool
    rules: Rules
    contrast_range: tuple[float, float]
    batches: int = 0
    mean_rate: Tensor | None = None
    shrunk: list[int] = dataclasses.field(default_factory=list)
    unconverged: int = 0

    @property
    def middle(self) -> float:
        return sum(self.contrast_range) / 2

    @torch.no_grad()
    def learn(self, x: Float[Tensor, "B D"], contrast: Float[Tensor, " B"]) -> None:
        """One batch: rates at the fixed point, then every synapse and threshold by its rule.

        Raises:
            UnstableNetwork: no total J_EE down to half of the one given is stable.
        """
        if self.lateral and self.batches % STABILITY_EVERY == 0:
            self.keep_stable(x[:STABILITY_PATCHES])
        found = self._settled(self.network.drive(x, contrast))
        self.unconverged += int((~found.converged).sum())
        self._update(found.rates, x * (contrast / self.middle)[:, None])
        self.batches += 1

    @torch.no_grad()
    def keep_stable(self, x: Float[Tensor, "P D"]) -> None:
        """Lower J_EE until the fixed points of some patches, over all contrasts, are stable.

        Raises:
            UnstableNetwork: see `learn`.
        """
        drive = self._over_contrasts(x)
        while True:
            found = self._settled(drive)
            dynamics = self.network.dynamics(self.n, self.k, self.tau)
            slowest = float(dynamics.abscissa(drive, found.rates).max())
            if slowest <= -1 / (SLOWEST * self.tau[0]):
                return
            self._shrink()

    @torch.no_grad()
    def keep_finite(self, x: Float[Tensor, "P D"]) -> None:
        """Lower J_EE until no patch's rates run away: cheaper than `keep_stable`, so for many."""
        self._settled(self._over_contrasts(x))

    def _over_contrasts(self, x: Tensor) -> Tensor:
        """The drive of patches at contrasts from below the lowest to above the highest."""
        low, high = self.contrast_range
        contrast = torch.logspace(math.log10(low / 4), math.log10(high * 2), len(x))
        return self.network.drive(x, contrast.to(x))

    def _settled(self, drive: Tensor) -> FixedPoint:
        while True:
            dynamics = self.network.dynamics(self.n, self.k, self.tau, lateral=self.lateral)
            try:
                return dynamics.fixed_point(drive, tolerance=LEARNING_TOLERANCE)
            except UnstableNetwork:
                self._shrink()

    def _shrink(self) -> None:
        if len(self.shrunk) >= MOST_SHRINKS:
            j_ee, j_ei, j_ie, j_ii = self.network.totals
            given = j_ee / SHRINK ** len(self.shrunk)
            raise UnstableNetwork(
                f"J_EE={given:.3g} with J_EI={j_ei:.3g} is unstable (and J_IE={j_ie:.3g}, "
                f"J_II={j_ii:.3g}), and so is every J_EE down to {j_ee:.3g}: lateral excitation "
                f"outruns inhibition; try J_EE={self._stable_total():.2g}"
            )
        self.network.shrink_excitation()
        self.shrunk.append(self.batches)

    def _stable_total(self) -> float:
        """A J_EE at which the mean of each population alone could not run away.

        With every unit of a population alike, rates stay finite at any drive if
        J_EI J_IE > J_EE J_II, and inhibition at half of the excitatory feedback.
        """
        _, j_ei, j_ie, j_ii = self.network.totals
        return 0.5 * min(j_ei, j_ie, j_ei * j_ie / max(j_ii, 1e-9))

    def _update(self, rates: Tensor, x: Tensor) -> None:
        net, rules, exc = self.network, self.rules, self.network.f_exc.shape[0]
        slowed = 1 / (1 + self.batches / rules.slowing)
        r_exc, r_inh = relative_rates(rates[:, :exc]), relative_rates(rates[:, exc:])
        net.f_exc = unit_rows(net.f_exc + rules.excitatory * slowed * hebb(r_exc, x))
        above = (r_inh - 1).clamp(min=0)
        net.f_inh = unit_rows(net.f_inh + rules.inhibitory * slowed * hebb(above, x))
        if self.lateral:
            self._update_lateral(r_exc, r_inh)
        mean = rates[:, :exc].mean(0)
        if self.mean_rate is None:
            self.mean_rate = mean
        self.mean_rate = rules.memory * self.mean_rate + (1 - rules.memory) * mean
        if rules.threshold:
            net.threshold = homeostasis(net.threshold, self.mean_rate, step=rules.threshold)

    def _update_lateral(self, r_exc: Tensor, r_inh: Tensor) -> None:
        net, rules = self.network, self.rules
        j_ee, j_ei, j_ie, j_ii = net.totals

        def grown(w: Tensor, total: float, post: Tensor, pre: Tensor, speed: float) -> Tensor:
            rate = rules.lateral * speed * total / w.shape[1]
            # As the random weights: no excitatory unit drives itself, inhibitory ones may.
            return compete(w + rate * covariance(post, pre), total, own=w is net.w_ee)

        net.w_ee = grown(net.w_ee, j_ee, r_exc, r_exc, 1.0)
        net.w_ei = grown(net.w_ei, j_ei, r_exc, r_inh, rules.inhibition)
        net.w_ie = grown(net.w_ie, j_ie, r_inh, r_exc, rules.inhibition)
        net.w_ii = grown(net.w_ii, j_ii, r_inh, r_inh, 1.0)
