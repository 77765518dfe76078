"""Rates against closed forms, slow twins, and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.neuro.ssn.dynamics import SSNDynamics, UnstableNetwork

K = 0.04


def pair(j_ee: float, j_ei: float, j_ie: float, j_ii: float, **more) -> SSNDynamics:
    """One excitatory and one inhibitory unit."""
    weights = (torch.tensor([[j]], dtype=torch.float64) for j in (j_ee, j_ei, j_ie, j_ii))
    return SSNDynamics(*weights, **more)


def closed_form(
    r_exc: float, j: tuple[float, float, float, float], k: float = K
) -> tuple[float, float]:
    """(h, r_I) of the two-population network with h_E = h_I = h and n = 2, given r_E.

    Both equations solved for h: sqrt(r_E/k) - J_EE r_E + J_EI r_I = sqrt(r_I/k) - J_IE r_E +
    J_II r_I, a quadratic in s = sqrt(r_I) whose smaller root is the branch that starts at rest.
    """
    j_ee, j_ei, j_ie, j_ii = j
    a, b = j_ei - j_ii, -1 / math.sqrt(k)
    c = math.sqrt(r_exc / k) + (j_ie - j_ee) * r_exc
    s = (-b - math.sqrt(b * b - 4 * a * c)) / (2 * a)
    return math.sqrt(r_exc / k) - j_ee * r_exc + j_ei * s * s, s * s


def random_network(seed: int, n_exc: int = 12, n_inh: int = 4, **more) -> SSNDynamics:
    rng = np.random.default_rng(seed)

    def w(post: int, pre: int, total: float) -> torch.Tensor:
        drawn = rng.random((post, pre))
        return torch.as_tensor(total * drawn / drawn.sum(1, keepdims=True))

    return SSNDynamics(
        w(n_exc, n_exc, 0.8), w(n_exc, n_inh, 1.5), w(n_inh, n_exc, 1.5), w(n_inh, n_inh, 0.3),
        **more,
    )  # fmt: skip


def random_drive(seed: int, items: int = 5, units: int = 16) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).uniform(0, 15, (items, units)))


@pytest.mark.parametrize("r_exc", [0.01, 0.1, 0.5, 1.0, 2.0, 3.0])
def test_two_populations_come_to_rest_where_their_equations_say(r_exc):
    totals = (1.25, 0.65, 1.2, 0.5)
    h, r_inh = closed_form(r_exc, totals)
    found = pair(*totals).fixed_point(
        torch.tensor([[h, h]], dtype=torch.float64), tolerance=1e-10, cap=4000
    )
    assert bool(found.converged)
    np.testing.assert_allclose(found.rates[0], [r_exc, r_inh], rtol=1e-6)


def test_excitation_falls_at_strong_drive_where_inhibition_of_excitation_exceeds_its_own():
    """Supersaturation: det > 0 and J_II < J_EI (Ahmadian, Rubin, Miller 2013)."""
    totals = (1.25, 0.9, 1.2, 0.5)
    assert totals[1] * totals[2] - totals[0] * totals[3] > 0
    assert totals[3] < totals[1]
    h = torch.tensor([[v, v] for v in (5.0, 10.0, 20.0, 40.0, 80.0)], dtype=torch.float64)
    r = pair(*totals).fixed_point(h, cap=4000).rates[:, 0]
    assert 0 < int(r.argmax()) < len(h) - 1
    # With J_II above J_EI (and still det > 0) it keeps growing.
    other = pair(1.0, 0.9, 1.5, 0.95).fixed_point(h, cap=4000).rates[:, 0]
    assert bool((other.diff() > 0).all())


@settings(deadline=None, max_examples=25)
@given(st.floats(0.0, 100.0), st.floats(1.0, 3.0), st.integers(0, 1000))
def test_without_lateral_connections_rates_are_the_power_of_the_drive(scale, n, seed):
    network = random_network(seed, n=n, lateral=False)
    drive = random_drive(seed)
    plain, scaled = network.fixed_point(drive).rates, network.fixed_point(scale * drive).rates
    np.testing.assert_allclose(plain, K * drive.numpy() ** n, rtol=1e-12)
    np.testing.assert_allclose(scaled, scale**n * plain.numpy(), rtol=1e-9, atol=1e-300)


def slow_fixed_point(network: SSNDynamics, drive: np.ndarray) -> np.ndarray:
    """The differential equation, unit by unit, in small Euler steps."""
    w, tau = network.weight.numpy(), network.time_constants.numpy()
    rates = np.zeros_like(drive)
    for _ in range(40_000):
        for b in range(len(drive)):
            u = np.array([drive[b, i] + sum(w[i] * rates[b]) for i in range(len(w))])
            rates[b] += 0.1 / tau * (-rates[b] + network.k * np.maximum(u, 0) ** network.n)
        if np.abs(network.k * np.maximum(drive + rates @ w.T, 0) ** 2 - rates).max() < 1e-7:
            break
    return rates


def test_the_solver_ends_where_the_slow_twin_does():
    network, drive = random_network(3, n_exc=5, n_inh=2), random_drive(3, items=2, units=7)
    found = network.fixed_point(drive, tolerance=1e-8, cap=2000)
    np.testing.assert_allclose(found.rates, slow_fixed_point(network, drive.numpy()), atol=1e-4)
    assert float(found.residual.max()) < 1e-6


@pytest.mark.parametrize("dt", [0.5, 1.0, 2.0])
def test_the_step_does_not_move_the_fixed_point(dt):
    network, drive = random_network(4), random_drive(4)
    fine = network.fixed_point(drive, dt=0.25, tolerance=1e-8, cap=2000).rates
    np.testing.assert_allclose(
        network.fixed_point(drive, dt=dt, tolerance=1e-8, cap=2000).rates, fine, rtol=1e-5,
        atol=1e-7,
    )  # fmt: skip


def test_items_do_not_disturb_each_other():
    network, drive = random_network(5), random_drive(5, items=7)
    together = network.fixed_point(drive).rates
    alone = torch.cat([network.fixed_point(drive[[i]]).rates for i in range(7)])
    np.testing.assert_allclose(together, alone, rtol=1e-10)


def test_the_trajectory_ends_at_the_fixed_point():
    network, drive = random_network(6), random_drive(6)
    path = network.trajectory(drive, duration=400, dt=0.5)
    assert path.shape == (800, 5, 16)
    settled = network.fixed_point(drive, tolerance=1e-7, cap=1000).rates
    np.testing.assert_allclose(path[-1], settled, rtol=1e-3, atol=1e-5)


def test_gradients_pass_through_the_fixed_point():
    network = random_network(7, n_exc=3, n_inh=1)
    drive = random_drive(7, items=2, units=4).requires_grad_()

    def solved(h):
        return network.fixed_point(h, tolerance=1e-12, cap=4000).rates

    assert torch.autograd.gradcheck(solved, (drive,), eps=1e-5, atol=1e-5)
    network.weight.requires_grad_()
    network.fixed_point(drive.detach(), tolerance=1e-12, cap=4000).rates.sum().backward()
    step, where = 1e-5, (1, 2)
    up, down = network.weight.detach().clone(), network.weight.detach().clone()
    up[where] += step
    down[where] -= step
    sums = []
    for w in (up, down):
        network.weight.data = w
        with torch.no_grad():
            sums.append(float(solved(drive.detach()).sum()))
    assert float(network.weight.grad[where]) == pytest.approx(
        (sums[0] - sums[1]) / (2 * step), rel=1e-4
    )


def test_the_jacobian_is_the_derivative_of_the_motion():
    network, drive = random_network(8), random_drive(8, items=1)
    rates = network.fixed_point(drive, tolerance=1e-9, cap=2000).rates

    def motion(r):
        u = network.net_input(drive, r[None])
        return ((network.transfer(u) - r) / network.time_constants)[0]

    expected = torch.autograd.functional.jacobian(motion, rates[0])
    np.testing.assert_allclose(network.jacobian(drive, rates)[0].detach(), expected, atol=1e-10)
    whole = torch.linalg.eigvals(expected).real.max()
    np.testing.assert_allclose(network.abscissa(drive, rates)[0].detach(), whole, atol=1e-10)


def test_the_exponent_is_the_slope_of_the_summed_rate():
    network, drive = random_network(9), random_drive(9)
    sums = [
        network.fixed_point(drive * factor, tolerance=1e-10, cap=4000).rates[:, :12].sum(1)
        for factor in (1 - 1e-3, 1 + 1e-3)
    ]
    slope = (sums[1].log() - sums[0].log()) / math.log((1 + 1e-3) / (1 - 1e-3))
    np.testing.assert_allclose(network.regime(drive).exponent, slope, rtol=1e-4)


@pytest.mark.parametrize("n", [1.0, 1.5, 2.0, 3.0])
def test_without_lateral_connections_the_exponent_is_that_of_the_transfer_function(n):
    found = random_network(10, n=n, lateral=False).regime(random_drive(10))
    np.testing.assert_allclose(found.exponent, n, rtol=1e-12)
    np.testing.assert_allclose(found.isn_index, -1)
    np.testing.assert_allclose(found.abscissa, -1 / 20)


def test_at_weak_drive_the_exponent_moves_by_the_balance_of_excitation_and_inhibition():
    """To first order r = k h^2 (1 + 2 (J_EE r_E - J_EI r_I) / h): above 2 if excitation leads."""
    h = torch.full((1, 2), 0.2, dtype=torch.float64)
    assert float(pair(1.5, 1.0, 1.0, 0.3).regime(h).exponent) > 2
    assert float(pair(1.0, 1.5, 1.0, 0.3).regime(h).exponent) < 2
    lead = K * 0.2**2 * (1.5 - 1.0)
    expected = 2 + 2 * lead / 0.2  # d log(1 + 2 lead / h) / d log h, with lead ~ h^2
    assert float(pair(1.5, 1.0, 1.0, 0.3).regime(h).exponent) == pytest.approx(expected, rel=1e-4)


def test_inhibition_stabilises_what_excitation_alone_would_not():
    """ISN index -1 + phi' J_EE, phi' = 2 sqrt(k r)."""
    totals = (1.25, 0.65, 1.2, 0.5)
    h, _ = closed_form(9.0, (1.25, 0.9, 1.2, 0.5))
    network = pair(1.25, 0.9, 1.2, 0.5)
    drive = torch.tensor([[h, h]], dtype=torch.float64)
    found = network.regime(drive)
    assert float(found.isn_index) == pytest.approx(-1 + 2 * math.sqrt(K * 9) * 1.25, rel=1e-3)
    assert float(found.isn_index) > 0 > float(found.abscissa)
    weak = pair(*totals).regime(torch.full((1, 2), 0.1, dtype=torch.float64))
    assert float(weak.isn_index) < 0


def test_a_runaway_is_refused_with_the_totals_at_fault():
    with pytest.raises(UnstableNetwork, match=r"J_EE=3 and J_EI=0\.1.*lower J_EE or raise J_EI"):
        pair(3.0, 0.1, 0.1, 0.1).fixed_point(torch.full((1, 2), 20.0, dtype=torch.float64))


def test_slow_inhibition_oscillates_and_is_flagged():
    drive = torch.tensor([[20.0, 5.0]], dtype=torch.float64)
    found = pair(1.5, 1.5, 2.0, 0.3, tau=(10.0, 20.0)).fixed_point(drive)
    assert not bool(found.converged)
    assert bool(found.oscillating)
    assert float(found.residual) > 0.1
    quick = pair(1.5, 1.5, 2.0, 0.3, tau=(20.0, 5.0)).fixed_point(drive)
    assert bool(quick.converged)
    assert not bool(quick.oscillating)


def test_a_cycle_of_the_steps_is_no_fixed_point():
    """Strong inhibition of itself: u + J_II k u^2 = h has one root, jumped over by coarse steps."""
    network, h = pair(0, 0, 0, 5), torch.tensor([[60.0, 600.0]], dtype=torch.float64)
    found = network.fixed_point(h)
    assert bool(found.converged)
    u = (-1 + math.sqrt(1 + 4 * 5 * K * 600)) / (2 * 5 * K)
    np.testing.assert_allclose(found.rates[0], [K * 60**2, K * u * u], rtol=1e-3)
    coarse = network._settle(h, 0.5, 1e-4, 400)
    assert not bool(coarse.converged)
    assert float(coarse.residual) > 0.1


def test_what_does_not_settle_has_no_regime():
    drive = torch.tensor([[20.0, 5.0], [1.0, 1.0]], dtype=torch.float64)
    found = pair(1.5, 1.5, 2.0, 0.3, tau=(10.0, 20.0)).regime(drive)
    for value in found:
        assert bool(value[0].isnan())
        assert bool(value[1].isfinite())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"dt": 0.0}, r"dt=0\.0: expected a step > 0"),
        ({"dt": math.nan}, "dt=nan"),
        ({"cap": 5.0}, r"cap=5\.0: expected a finite time of at least 10 ms"),
        ({"cap": math.inf}, "cap=inf"),
        ({"tolerance": 0.0}, r"tolerance=0\.0"),
    ],
)
def test_bad_steps_are_told(given, told):
    with pytest.raises(ValueError, match=told):
        random_network(0).fixed_point(random_drive(0), **given)


def test_a_silent_item_is_at_rest():
    found = random_network(11).fixed_point(torch.zeros(2, 16, dtype=torch.float64))
    assert bool(found.converged.all())
    assert float(found.rates.abs().max()) == 0
    assert float(found.residual.max()) == 0


@pytest.mark.parametrize(
    ("drive", "told"),
    [
        (torch.zeros(3, 5), r"shape \(3, 5\), expected \(items, 16\): 12 excitatory"),
        (torch.ones(1, 16) * 1j, "drive holds numbers of type"),
        (torch.full((1, 16), math.nan), "drive holds NaN or infinite"),
    ],
)
def test_bad_drives_are_told(drive, told):
    with pytest.raises(ValueError, match=told):
        random_network(0).fixed_point(drive if drive.is_complex() else drive.double())


def test_bad_weights_are_told():
    ones = torch.ones(2, 2)
    with pytest.raises(ValueError, match="w_ie holds negative or non-finite"):
        SSNDynamics(ones, ones, -ones, ones)
    with pytest.raises(ValueError, match=r"w_ee has the shape \(3, 2\), expected \(2, 2\)"):
        SSNDynamics(torch.ones(3, 2), ones, ones, ones)
    with pytest.raises(ValueError, match="expected n >= 1"):
        SSNDynamics(ones, ones, ones, ones, n=0.5)
