"""The simulator beside a token-by-token twin, and beside closed forms of queues."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.serving.hexgen import Failure, Slo, Workload, plan, simulate
from armillary.serving.hexgen.columns import AfdTimes, Column
from armillary.serving.hexgen.simulator import Fleet


def by_token(times, workload: Workload, batch: int, chunk: int):
    """One AGG replica, step by step, in the most obvious way."""
    n = len(workload)
    first, finish = np.full(n, np.nan), np.full(n, np.nan)
    waiting, prompts, live = [], [], []
    made = [0] * n
    t, seen = 0.0, 0
    while np.isnan(finish).any():
        while seen < n and workload.t[seen] <= t + 1e-12:
            waiting.append(seen)
            seen += 1
        while waiting and len(live) + len(prompts) < batch:
            prompts.append([waiting.pop(0), 0])
        if not live and not prompts:
            t = workload.t[seen]
            continue
        left, seconds, done = chunk, times.overhead, []
        for entry in prompts:
            piece = min(left, workload.inputs[entry[0]] - entry[1])
            seconds += times.prompt[entry[1] + piece] - times.prompt[entry[1]]
            entry[1] += piece
            left -= piece
            if entry[1] == workload.inputs[entry[0]]:
                done.append(entry)
            if left == 0:
                break
        tokens = len(live) + chunk - left
        seconds += times.linear[tokens] - times.overhead
        context = sum(workload.inputs[i] + made[i] for i in live)
        seconds += times.slope[len(live)] * context
        t += seconds
        for i in list(live):
            made[i] += 1
            if made[i] == workload.outputs[i]:
                finish[i] = t
                live.remove(i)
        for entry in done:
            prompts.remove(entry)
            i = entry[0]
            first[i] = t
            made[i] = 1
            if workload.outputs[i] <= 1:
                finish[i] = t
            else:
                live.append(i)
    return first, finish


def random_workload(seed: int, n: int = 40, rate: float = 4.0) -> Workload:
    rng = np.random.default_rng(seed)
    t = np.cumsum(rng.exponential(1 / rate, n))
    return Workload(t, rng.integers(1, 900, n), rng.integers(0, 60, n))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([64, 300, 1000]))
def test_skipping_ahead_is_exact(flat, seed: int, batch: int, chunk: int) -> None:
    times = flat.times(step=0.008, slope=3e-6, a_token=2e-5, prompt=1e-6)
    work = random_workload(seed)
    first, finish = by_token(times, work, batch, chunk)
    run = simulate(flat.plan((flat.column(times, "agg", batch, chunk), 1)), work)
    assert run.ttft == pytest.approx(first - work.t, abs=1e-9)
    assert run.finish == pytest.approx(finish, abs=1e-9)


def test_one_request_alone_has_its_closed_form(flat) -> None:
    """k decode steps of an affine step time take k·c + slope·(context sum)."""
    times = flat.times(step=0.01, slope=1e-6, a_token=1e-5)
    work = Workload(np.array([0.0, 1000.0]), np.array([100, 100]), np.array([11, 11]))
    run = simulate(flat.plan((flat.column(times), 1)), work)
    assert run.ttft[0] == pytest.approx(0.01 + 100e-5)
    contexts = sum(range(101, 111))
    assert run.tpot[0] == pytest.approx((10 * (0.01 + 1e-5) + 1e-6 * contexts) / 10)


def poisson(rate: float, n: int, outputs: np.ndarray, seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload(np.cumsum(rng.exponential(1 / rate, n)), np.ones(n, int), outputs)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_d_1_waits_as_pollaczek_and_khinchine_say(flat, load: float) -> None:
    """Service of exactly 1 s (100 steps): mean wait ρ/(2(1 − ρ)) s."""
    waits = []
    for seed in range(6):
        work = poisson(load, 5000, np.full(5000, 100), seed)
        run = simulate(flat.plan((flat.column(flat.times(0.01), batch=1), 1)), work)
        waits.append(float((run.ttft - 0.01)[1000:].mean()))
    mean, error = np.mean(waits), np.std(waits, ddof=1) / math.sqrt(len(waits))
    assert abs(mean - load / (2 * (1 - load))) < 4.03 * error  # t, 99 %, 6 runs


def erlang_c(c: int, a: float) -> float:
    top = a**c / math.factorial(c) * c / (c - a)
    return top / (sum(a**k / math.factorial(k) for k in range(c)) + top)


def test_m_m_c_waits_as_erlang_says(flat) -> None:
    """Geometric answers of mean 100 steps on a batch of 5: M/M/5 at a load of 0.8."""
    c, load = 5, 0.8
    waits = []
    for seed in range(6):
        rng = np.random.default_rng(100 + seed)
        work = poisson(c * load, 8_000, rng.geometric(0.01, 8_000), seed)
        run = simulate(flat.plan((flat.column(flat.times(0.01), batch=c), 1)), work)
        waits.append(float((run.ttft - 0.01)[1000:].mean()))
    truth = erlang_c(c, c * load) / (c * (1 - load))
    mean, error = np.mean(waits), np.std(waits, ddof=1) / math.sqrt(len(waits))
    assert abs(mean - truth) < 4.03 * error + 0.01  # a step of 0.01 s is the unit of time


def test_every_request_is_served_once_and_in_order(paper, wildgpt) -> None:
    fleet = plan("Qwen/Qwen3-30B-A3B", paper, wildgpt, Slo(), budget_per_hour=20.0)
    for router in ("least", "round-robin", "two"):
        run = simulate(fleet, wildgpt, router=router, seed=1)
        assert np.isfinite(run.finish).all()
        assert (run.ttft > 0).all()
        assert (run.tpot >= 0).all()
        assert run.cost == pytest.approx(fleet.price * wildgpt.t[-1] / 3600)
    again = simulate(fleet, wildgpt, router="two", seed=1)
    assert again.ttft.tolist() == run.ttft.tolist()
    assert len(run.table()) == len(wildgpt)
    assert run.summary()["requests"] == len(wildgpt)


def test_no_token_is_faster_than_the_floor(paper, wildgpt) -> None:
    """Whatever the batch, an answer's tokens take at least an empty replica's step each."""
    fleet = plan("Qwen/Qwen3-30B-A3B", paper, wildgpt, Slo(), budget_per_hour=20.0, modes=("pd",))
    floor = min(
        float(c.times.decode(1, 0.0)) for c in fleet.columns if not isinstance(c.times, AfdTimes)
    )
    run = simulate(fleet, wildgpt)
    assert run.tpot[wildgpt.outputs > 1].min() >= floor


def test_disaggregation_ships_the_cache_over_its_link(flat) -> None:
    pre, dec = flat.column(flat.times(0.01), "pre"), flat.column(flat.times(0.02), "dec")
    work = Workload(np.array([0.0, 50.0]), np.array([1000, 1000]), np.array([11, 1]))
    run = simulate(flat.plan((pre, 1), (dec, 1)), work)
    shipped = 1001 * flat.plan((pre, 1)).shape.kv_bytes / 5e10
    assert run.ttft[0] == pytest.approx(0.02)  # 1000 tokens are two steps of 512
    assert run.finish[0] - run.t[0] - run.ttft[0] == pytest.approx(shipped + 10 * 0.02)
    assert run.tpot[1] == 0.0


def test_full_cache_preempts_and_still_serves_all(flat) -> None:
    times = flat.times(0.01, a_token=1e-5, kv_tokens=600)
    work = Workload(np.linspace(0, 0.5, 12), np.full(12, 100), np.full(12, 60))
    run = simulate(flat.plan((flat.column(times), 1)), work)
    assert np.isfinite(run.finish).all()
    assert run.preempted.sum() > 0
    roomy = simulate(flat.plan((flat.column(flat.times(0.01, a_token=1e-5)), 1)), work)
    assert roomy.preempted.sum() == 0
    assert roomy.finish.max() < run.finish.max()


def test_a_decode_replica_without_room_fetches_the_cache_again(flat) -> None:
    pre = flat.column(flat.times(0.01), "pre")
    dec = flat.column(flat.times(0.01, kv_tokens=600), "dec")
    work = Workload(np.linspace(0, 0.5, 12), np.full(12, 100), np.full(12, 60))
    run = simulate(flat.plan((pre, 1), (dec, 1)), work)
    assert np.isfinite(run.finish).all()
    assert run.preempted.sum() > 0


def test_failures_lose_nothing_but_time(flat) -> None:
    column = flat.column(flat.times(0.01, a_token=1e-5))
    work = random_workload(3, n=200, rate=10.0)
    fleet = flat.plan((column, 2))
    calm = simulate(fleet, work)
    run = simulate(fleet, work, failures=[Failure(5.0, 0, 4.0), Failure(6.0, 1, 1.0)])
    assert np.isfinite(run.finish).all()
    assert run.finish.max() >= calm.finish.max()
    assert run.ttft.mean() > calm.ttft.mean()
    with pytest.raises(ValueError, match="replica 7"):
        simulate(fleet, work, failures=[Failure(5.0, 7, 4.0)])


def test_cold_starts_and_drains(flat) -> None:
    column = flat.column(flat.times(0.01))
    work = Workload(np.arange(20.0), np.ones(20, int), np.full(20, 50))
    fleet = Fleet(work, Slo(100.0, 1000.0), 1.0)
    old = fleet.add(column)
    fleet.run(until=5.0)
    new = fleet.add(column, ready=8.0)
    fleet.drain(old)
    fleet.run()
    run = fleet.result()
    assert np.isfinite(run.finish).all()
    assert run.ttft[6] == pytest.approx(8.0 - 6.0 + 0.01)  # it waited for the cold start
    assert old.stop == pytest.approx(5.51, abs=0.02)
    assert run.cost == pytest.approx(4.02 / 3600 * (old.stop + 19.0 - new.start))


def test_afd_group_matches_a_replica_where_it_is_one(flat, paper, wildgpt) -> None:
    """One worker of each, one micro-batch, free links: its step is the sum of its parts."""
    fleet = plan("Qwen/Qwen3-30B-A3B", paper, wildgpt, Slo(), budget_per_hour=20.0, modes=("pd",))
    pre, dec = (next(c for c in fleet.columns if c.kind == k) for k in ("pre", "dec"))
    times = dec.times
    assert not isinstance(times, AfdTimes)
    group = AfdTimes(times, times, 1, 1, 1, times.kv_tokens)
    afd = Column(
        "afd", "afd-one", dec.use, dec.price, dec.capacity, dec.batch, 0, 0.0, 0.0, 5e10, group
    )
    slow = wildgpt.at_rate(5.0)
    one = simulate(flat.plan((pre, 1), (dec, 1), slo=Slo()), slow)
    two = simulate(flat.plan((pre, 1), (afd, 1), slo=Slo()), slow)
    link = times.shape.layers * 2 * (1e-5 + 40 * group.link)
    many = wildgpt.outputs > 5
    assert (two.tpot[many] >= one.tpot[many] * (1 - 1e-9)).all()
    assert np.median(two.tpot[many] - one.tpot[many]) < 2 * link


def test_unknown_router_is_named(flat, wildgpt) -> None:
    with pytest.raises(ValueError, match="router='nearest'"):
        simulate(flat.plan((flat.column(flat.times()), 1)), wildgpt, router="nearest")
