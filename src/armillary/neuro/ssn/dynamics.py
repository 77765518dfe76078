"""The stabilised supralinear network: rates, their fixed points, and what regime they are in.

Legend: B items (patches), E excitatory and I inhibitory units, N = E + I, T time steps. Rates are
in Hz, drives in mV, times in milliseconds. With u = h + W r and phi(u) = k [u]_+^n,

    tau_E dr_E/dt = -r_E + phi(h_E + W_EE r_E - W_EI r_I)
    tau_I dr_I/dt = -r_I + phi(h_I + W_IE r_E - W_II r_I),            all W_AB >= 0.

``W_AB`` is (post, pre): the synapses onto population A from population B. Source: Ahmadian, Rubin,
Miller, Neural Computation 2013; Rubin, Van Hooser, Miller, Neuron 2015.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

#: Rates beyond this (Hz), or ten times the feed-forward rate if that is more, are a runaway.
RUNAWAY_RATE = 1e3
#: How often convergence is looked at, and the window in which an oscillation is looked for (ms).
CHECK_EVERY, OSCILLATION_WINDOW = 10.0, 50.0
#: The step in ms with which items are tried again that a coarser one did not settle; and finer ones
#: for those whose rates jump to and fro from step to step, which no continuous motion does.
FINE_STEP, FINER_STEPS = 0.5, (0.125, 0.03125)
#: At a fixed point the residual, too, is small: so many tolerances. (Where rates creep, a change of
#: the tolerance in 10 ms is a residual of about twice that.)
RESIDUAL_BOUND = 100.0


class UnstableNetwork(ValueError):
    """Lateral excitation is too strong for inhibition to hold: rates grow without bound, or the
    fixed point repels."""


class FixedPoint(NamedTuple):
    """Where the rates of each item came to rest.

    Attributes:
        rates: (B, N) in Hz, excitatory units first.
        converged: (B,) whether the rates changed by less than the tolerance in the last 10 ms, and
            the residual was below 100 tolerances.
        residual: (B,) ||phi(u) - r|| / ||r||; zero at a fixed point.
        oscillating: (B,) not converged, and rates moved by more than 1 % (standard deviation over
            the last 50 ms, relative to the mean).
        milliseconds: (B,) simulated time that the item took.
    """

    rates: Float[Tensor, "B N"]
    converged: Bool[Tensor, " B"]
    residual: Float[Tensor, " B"]
    oscillating: Bool[Tensor, " B"]
    milliseconds: Float[Tensor, " B"]


class Regime(NamedTuple):
    """What a fixed point's surroundings look like; NaN where rates do not settle.

    Attributes:
        exponent: (B,) d log(sum r_E) / d log(contrast): n without lateral connections, above 1
            where the response is supralinear, below where it saturates, negative where it falls.
            NaN where no excitatory unit is active.
        isn_index: (B,) largest real part of the eigenvalues of -1 + phi'_E W_EE. Above zero the
            excitatory units alone are unstable: the network is inhibition-stabilised.
        abscissa: (B,) largest real part of the eigenvalues of the whole Jacobian, in 1/ms; below
            zero the fixed point is stable.
    """

    exponent: Float[Tensor, " B"]
    isn_index: Float[Tensor, " B"]
    abscissa: Float[Tensor, " B"]


class SSNDynamics(nn.Module):
    """An excitatory and an inhibitory population with a power-law transfer function.

    Args:
        w_ee: (E, E) synapses onto E from E, non-negative.
        w_ei: (E, I) onto E from I.
        w_ie: (I, E) onto I from E.
        w_ii: (I, I) onto I from I.
        n: exponent of the transfer function, at least 1.
        k: its gain, in Hz mV^-n.
        tau: time constants of E and I in ms. Slow inhibition oscillates at strong drive.
        lateral: False cuts all lateral connections: then r = phi(h) in one step.

    The weights are one signed matrix ``weight`` (N, N), a parameter that takes no gradient unless
    it is asked to. `fixed_point` can be differentiated by drive and weight: gradients come from the
    implicit function theorem, not from the simulated time.

    Raises:
        ValueError: weights are negative, not finite, or of shapes that do not fit.
    """

    weight: nn.Parameter
    time_constants: Tensor

    def __init__(
        self,
        w_ee: Float[Tensor, "E E"],
        w_ei: Float[Tensor, "E I"],
        w_ie: Float[Tensor, "I E"],
        w_ii: Float[Tensor, "I I"],
        *,
        n: float = 2.0,
        k: float = 0.04,
        tau: tuple[float, float] = (20.0, 5.0),
        lateral: bool = True,
    ) -> None:
        super().__init__()
        n_exc, n_inh = w_ei.shape
        shapes = {
            "w_ee": (w_ee, (n_exc, n_exc)),
            "w_ie": (w_ie, (n_inh, n_exc)),
            "w_ii": (w_ii, (n_inh, n_inh)),
            "w_ei": (w_ei, (n_exc, n_inh)),
        }
        for name, (w, shape) in shapes.items():
            if tuple(w.shape) != shape:
                raise ValueError(
                    f"{name} has the shape {tuple(w.shape)}, expected {shape} beside w_ei of "
                    f"shape {(n_exc, n_inh)}: W_AB is (post, pre)"
                )
            if not torch.isfinite(w).all() or (w < 0).any():
                raise ValueError(
                    f"{name} holds negative or non-finite numbers: weights are magnitudes >= 0, "
                    "the signs of E and I are the network's own"
                )
        if len(tau) != 2 or not all(0 < number < math.inf for number in (*tau, k)):
            raise ValueError(f"k={k}, tau={tau}: expected k > 0 and two times > 0, all finite")
        if not 1 <= n < math.inf:
            raise ValueError(f"n={n}: expected n >= 1 and finite")
        signed = torch.cat([torch.cat([w_ee, -w_ei], 1), torch.cat([w_ie, -w_ii], 1)], 0)
        self.weight = nn.Parameter(signed, requires_grad=False)
        constants = signed.new_tensor([tau[0]] * n_exc + [tau[1]] * n_inh)
        self.register_buffer("time_constants", constants)
        self.n_exc, self.n_inh = n_exc, n_inh
        self.n, self.k, self.lateral = float(n), float(k), lateral

    # ---- the transfer function -----------------------------------------------------------------

    def transfer(self, u: Tensor) -> Tensor:
        """phi(u) = k [u]_+^n."""
        u = u.clamp(min=0)
        return self.k * (u * u if self.n == 2 else u**self.n)

    def slope(self, u: Tensor) -> Tensor:
        """phi'(u) = n k [u]_+^(n-1), which is n k^(1/n) r^(1-1/n) at a fixed point."""
        if self.n == 1:
            return self.k * (u > 0).to(u.dtype)
        return self.n * self.k * u.clamp(min=0) ** (self.n - 1)

    def net_input(self, drive: Tensor, rates: Tensor) -> Tensor:
        """u = h + W r."""
        return drive + rates @ self.weight.T if self.lateral else drive

    # ---- where rates come to rest --------------------------------------------------------------

    def fixed_point(
        self,
        drive: Float[Tensor, "B N"],
        *,
        dt: float = 2.0,
        tolerance: float = 1e-4,
        cap: float = 400.0,
    ) -> FixedPoint:
        """The steady state that rates reach from silence under a constant drive.

        Exponential Euler steps; an item is frozen once its rates change by less than ``tolerance``
        (relative to their norm) in 10 ms. Units whose net input is then negative, and whose rates
        are therefore still decaying towards zero, are set to zero.

        Args:
            drive: (B, N) h of every unit in mV, excitatory units first.
            dt: step in ms. The step does not move a fixed point, but a coarse one may miss it:
                items that do not converge are tried again with a step of at most 0.5 ms.
            tolerance: relative change in 10 ms at which an item has converged.
            cap: ms after which an item is given up: it is returned as it is and flagged.

        Raises:
            UnstableNetwork: rates run away.
            ValueError: the drive has another number of units, or is not finite and real; a step,
                tolerance or cap is out of its range.
        """
        self._refuse_drive(drive)
        if not 0 < dt <= CHECK_EVERY:
            raise ValueError(f"dt={dt!r}: expected a step > 0 and <= {CHECK_EVERY:g} ms")
        if not 0 < tolerance < 1:
            raise ValueError(f"tolerance={tolerance!r}: expected a number between 0 and 1")
        if not CHECK_EVERY <= cap < math.inf:
            raise ValueError(f"cap={cap!r}: expected a finite time of at least {CHECK_EVERY:g} ms")
        with torch.no_grad():
            found = self._settled(drive, dt, tolerance, cap) if self.lateral else None
        if found is None:
            rates, items = self.transfer(drive), len(drive)
            settled = torch.ones(items, dtype=torch.bool, device=drive.device)
            zero = torch.zeros(items, dtype=drive.dtype, device=drive.device)
            return FixedPoint(rates, settled, zero, ~settled, zero)
        if torch.is_grad_enabled() and (drive.requires_grad or self.weight.requires_grad):
            return found._replace(rates=self._attached(drive, found.rates))
        return found

    def _refuse_drive(self, drive: Tensor) -> None:
        if drive.ndim != 2 or drive.shape[1] != self.n_exc + self.n_inh:
            raise ValueError(
                f"drive has the shape {tuple(drive.shape)}, expected (items, "
                f"{self.n_exc + self.n_inh}): {self.n_exc} excitatory and {self.n_inh} inhibitory"
            )
        if not torch.isfinite(drive).all():
            raise ValueError("drive holds NaN or infinite numbers: leave those items out")
        if not drive.is_floating_point():
            raise ValueError(f"drive holds numbers of type {drive.dtype}: expected real floats")

    def _settled(self, drive: Tensor, dt: float, tolerance: float, cap: float) -> FixedPoint:
        found = self._settle(drive, dt, tolerance, cap)
        for step in (FINE_STEP, *FINER_STEPS):
            again = ~found.converged
            if step < FINE_STEP and again.any():
                again = again & self._flips(drive, found.rates, min(dt, step * 4))
            if step >= dt or not again.any():
                continue
            left = torch.nonzero(again)[:, 0]
            for whole, part in zip(
                found, self._settle(drive[left], step, tolerance, cap), strict=True
            ):
                whole[left] = part
        return found

    def _flips(self, drive: Tensor, rates: Tensor, dt: float) -> Tensor:
        """(B,) whether two steps in a row go opposite ways: the step is too coarse."""
        decay = torch.exp(-dt / self.time_constants)
        path = [rates]
        for _ in range(2):
            target = self.transfer(self.net_input(drive, path[-1]))
            path.append(decay * path[-1] + (1 - decay) * target)
        return ((path[1] - path[0]) * (path[2] - path[1])).sum(1) < 0

    def _settle(self, drive: Tensor, dt: float, tolerance: float, cap: float) -> FixedPoint:
        items = len(drive)
        rates = torch.zeros_like(drive)
        converged = torch.zeros(items, dtype=torch.bool, device=drive.device)
        oscillating = torch.zeros_like(converged)
        time = torch.full((items,), cap, dtype=drive.dtype, device=drive.device)
        limit = (10 * self.transfer(drive).amax(1)).clamp(min=RUNAWAY_RATE)
        every = max(1, round(CHECK_EVERY / dt))
        decay = torch.exp(-dt / self.time_constants)
        gain = self.k * (1 - decay)
        weight_t = self.weight.T.contiguous()
        left = torch.arange(items, device=drive.device)
        now, h = rates.clone(), drive
        watch: list[Tensor] = []
        for check in range(1, int(cap / (every * dt)) + 1):
            before = now.clone()
            for _ in range(every):
                u = torch.addmm(h, now, weight_t).clamp_(min=0)
                u = u.mul_(u) if self.n == 2 else u.pow_(self.n)
                now.mul_(decay).add_(u.mul_(gain))
            self._refuse_runaway(now, limit[left])
            if check * every * dt > cap - OSCILLATION_WINDOW:
                watch.append(now.clone())
            norm = now.norm(dim=1)
            done = (now - before).norm(dim=1) <= tolerance * norm
            if done.any():
                # After an even number of steps a cycle of two would look like rest.
                done[done.clone()] = self._at_rest(h[done], now[done], tolerance)
            if not done.any():
                continue
            at = left[done]
            rates[at], converged[at], time[at] = now[done], True, check * every * dt
            keep = ~done
            left, now, h = left[keep], now[keep], h[keep]
            watch = [w[keep] for w in watch]
            if not len(left):
                break
        if len(left):
            rates[left] = now
            spread = torch.stack(watch).std(0).norm(dim=1) / now.norm(dim=1).clamp(min=1e-12)
            oscillating[left] = spread > 1e-2
        u = self.net_input(drive, rates)
        rates = torch.where((u > 0) | ~converged[:, None], rates, torch.zeros_like(rates))
        return FixedPoint(rates, converged, self.residual(drive, rates), oscillating, time)

    def _at_rest(self, drive: Tensor, rates: Tensor, tolerance: float) -> Tensor:
        bound = max(RESIDUAL_BOUND * tolerance, 1e3 * torch.finfo(rates.dtype).eps)
        return self.residual(drive, rates) <= bound

    def _refuse_runaway(self, rates: Tensor, limit: Tensor) -> None:
        highest = rates.amax(1) if rates.numel() else rates.new_zeros(len(rates))
        if bool(((highest > limit) | ~torch.isfinite(highest)).any()):
            totals = self.totals()
            raise UnstableNetwork(
                f"rates ran away past {float(limit.min()):.0f} Hz with J_EE={totals[0]:.3g} and "
                f"J_EI={totals[1]:.3g}: lateral excitation outruns inhibition; lower J_EE or raise "
                "J_EI"
            )

    def residual(self, drive: Float[Tensor, "B N"], rates: Float[Tensor, "B N"]) -> Tensor:
        """(B,) ||phi(h + W r) - r|| / ||r||, zero for silent items at rest."""
        gap = (self.transfer(self.net_input(drive, rates)) - rates).norm(dim=1)
        return gap / rates.norm(dim=1).clamp(min=torch.finfo(rates.dtype).tiny)

    def totals(self) -> tuple[float, float, float, float]:
        """Mean total weight a unit receives: J_EE, J_EI, J_IE, J_II."""
        e, size = self.n_exc, self.weight.detach().abs()
        return (
            float(size[:e, :e].sum() / e),
            float(size[:e, e:].sum() / e),
            float(size[e:, :e].sum() / self.n_inh),
            float(size[e:, e:].sum() / self.n_inh),
        )

    def _attached(self, drive: Tensor, rates: Tensor) -> Tensor:
        """The rates with their gradient: dr = (1 - phi' W)^-1 phi' (dh + dW r)."""
        u = self.net_input(drive, rates)
        attached = self.transfer(u)
        coupling = self.slope(u.detach())[:, :, None] * self.weight.detach()
        matrix = torch.eye(coupling.shape[1], dtype=u.dtype, device=u.device) - coupling

        def adjoint(gradient: Tensor | None) -> Tensor | None:
            if gradient is None:  # nothing that was computed depends on the rates
                return None
            return torch.linalg.solve(matrix.mT, gradient[:, :, None])[:, :, 0]

        if attached.requires_grad:
            attached.register_hook(adjoint)
        # The value is the settled one; the gradient that of phi(u).
        return attached + (rates - attached).detach()

    def trajectory(
        self, drive: Float[Tensor, "B N"], *, duration: float = 200.0, dt: float = 1.0
    ) -> Float[Tensor, "T B N"]:
        """Rates after each step of ``dt`` ms, from silence; differentiable through time.

        Raises:
            UnstableNetwork: rates run away.
            ValueError: see `fixed_point`; or ``dt`` and ``duration`` are not above zero.
        """
        self._refuse_drive(drive)
        if not (0 < dt < math.inf and 0 < duration < math.inf):
            raise ValueError(f"dt={dt!r}, duration={duration!r}: expected two times > 0 in ms")
        decay = torch.exp(-dt / self.time_constants)
        limit = (10 * self.transfer(drive.detach()).amax(1)).clamp(min=RUNAWAY_RATE)
        rates, found = torch.zeros_like(drive), []
        for _ in range(max(1, round(duration / dt))):
            target = self.transfer(self.net_input(drive, rates))
            rates = decay * rates + (1 - decay) * target
            self._refuse_runaway(rates.detach(), limit)
            found.append(rates)
        return torch.stack(found)

    # ---- what regime they are in ---------------------------------------------------------------

    def jacobian(
        self, drive: Float[Tensor, "B N"], rates: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B N N"]:
        """T^-1 (-1 + phi' W) at each item's rates, in 1/ms; T holds the time constants."""
        slope = self.slope(self.net_input(drive, rates))
        weight = self.weight if self.lateral else torch.zeros_like(self.weight)
        eye = torch.eye(len(weight), dtype=rates.dtype, device=rates.device)
        return (slope[:, :, None] * weight - eye) / self.time_constants[:, None]

    def abscissa(self, drive: Float[Tensor, "B N"], rates: Float[Tensor, "B N"]) -> Tensor:
        """(B,) largest real part of the Jacobian's eigenvalues, in 1/ms.

        A silent unit has slope zero: its row of the Jacobian is -1/tau on the diagonal alone, which
        is then an eigenvalue. The others are those of the active units.
        """
        jacobians = self.jacobian(drive, rates)
        return torch.stack(
            [
                self._largest(j, slope > 0, self.time_constants)
                for j, slope in zip(
                    jacobians, self.slope(self.net_input(drive, rates)), strict=True
                )
            ]
        )

    @staticmethod
    def _largest(jacobian: Tensor, active: Tensor, time_constants: Tensor) -> Tensor:
        silent = (-1 / time_constants[~active]).amax() if (~active).any() else None
        if not active.any():
            assert silent is not None
            return silent
        found = torch.linalg.eigvals(jacobian[active][:, active]).real.amax()
        return found if silent is None else torch.maximum(found, silent)

    @torch.no_grad()
    def regime(self, drive: Float[Tensor, "B N"]) -> Regime:
        """The local exponent, the ISN index and the stability at the fixed point of each item.

        The drive is taken to be proportional to contrast, so that
        dr / d log(contrast) = (1 - phi' W)^-1 phi' h.
        """
        # The exponent divides by the rates: 1e-4 of them would be 1e-4 of it. Slow items are given
        # their time: to leave them out would hide the slowest modes.
        rates, converged, *_ = self.fixed_point(drive, tolerance=1e-6, cap=4000)
        u = self.net_input(drive, rates)
        slope = self.slope(u)
        weight = self.weight if self.lateral else torch.zeros_like(self.weight)
        eye = torch.eye(len(weight), dtype=rates.dtype, device=rates.device)
        gain = torch.linalg.solve(eye - slope[:, :, None] * weight, (slope * drive)[:, :, None])
        total = rates[:, : self.n_exc].sum(1)
        exponent = gain[:, : self.n_exc, 0].sum(1) / total
        e = self.n_exc
        isn = [self._isn(s[:e], weight[:e, :e]) for s in slope]
        found = (exponent, torch.stack(isn), self.abscissa(drive, rates))
        return Regime(*(value.masked_fill(~converged, math.nan) for value in found))

    @staticmethod
    def _isn(slope: Tensor, w_ee: Tensor) -> Tensor:
        active = slope > 0
        if not active.any():
            return slope.new_tensor(-1.0)
        coupling = slope[active][:, None] * w_ee[active][:, active]
        # The matrix is non-negative: its largest eigenvalue is real and at least zero.
        return torch.linalg.eigvals(coupling).real.amax() - 1
