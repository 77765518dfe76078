"""Chat traffic for Qwen3-30B-A3B: what H100s alone cost, what a mix with H20s costs, who serves it.

Needs: pip install 'armillary[serving]'; no network. Uses the Azure conversation trace where
ARMILLARY_DATA has it, and lengths of a stated law elsewhere.
"""

from armillary.serving.hexgen import Catalog, Slo, Workload, close_loop, plan, simulate

MODEL, SLO, RATE = "Qwen/Qwen3-30B-A3B", Slo(ttft_p99_s=2.0, tpot_p99_ms=50.0), 25.0

try:
    trace = Workload.from_azure(kind="conv").head(4000)
except FileNotFoundError:
    trace = Workload.synthetic_of("wildgpt", 4000, RATE, seed=1)
trace = trace.at_rate(RATE)
print(f"{len(trace)} requests of {trace.name}, {RATE:g} a second")

gpus = Catalog.load(book="paper")  # the paper's prices of H100 and H20
for name, catalog in (("H100 alone", gpus.only("h100")), ("H100 and H20", gpus)):
    closed = close_loop(MODEL, catalog, trace, SLO, rate=RATE)
    print(f"\n{name}: {closed.plan.price:.2f} an hour, {closed.plan.describe()}")
    for key, value in closed.run.summary().items():
        if key in ("attainment", "ttft_p99_s", "tpot_p99_ms", "cost_per_1k_requests"):
            print(f"  {key:22s} {value:.4g}")

fleet = plan(MODEL, gpus, trace, SLO, budget_per_hour=12.28)  # four H100 at the paper's price
print(f"\nfor 12.28 an hour: {fleet.describe()}")
print(f"  by the planner's account {fleet.throughput:.0f} requests/s, proven to {fleet.gap:.1%}")
print(f"  stopped by {', '.join(fleet.binding)}; no measurement: {', '.join(fleet.estimated)}")
doubled = simulate(fleet, trace.at_rate(2 * fleet.throughput))
print(f"  at twice that load {doubled.attainment():.0%} of requests meet the targets")
