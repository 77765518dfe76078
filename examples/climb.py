"""Twelve adapters on eight slots: what VIP waits with and without an ingress that minds the slots.

Needs: pip install 'armillary[serving]'; no network. Give the Azure LLM inference trace
(AzureLLMInferenceTrace_conv.csv) as argument to use its arrivals and lengths.
"""

import sys

from armillary.serving.climb import (
    Climb,
    EngineModel,
    Fcfs,
    PriorityOnly,
    azure_trace,
    cliff_loss,
    multi_lora_trace,
    simulate,
)

SLOTS, WORKING_SET, RATE = 8, 12, 10.66
engine = EngineModel(base=0.020, per_request=0.0006, load=0.35)

if len(sys.argv) > 1:
    trace = azure_trace(sys.argv[1], WORKING_SET, rate=RATE, skew=0.0, most_output=64)
    trace = trace.query("t_s < 200")
else:
    trace = multi_lora_trace(200, RATE, WORKING_SET)
lost = cliff_loss(RATE, WORKING_SET, SLOTS, engine.load)
print(f"{len(trace)} requests of {WORKING_SET} adapters on {SLOTS} slots; if every miss loaded by")
print(f"itself, loads would eat {lost:.1f} s of each second\n")

print("                 time to the first token, s")
print("policy           vip p50   p99   background p50   p99   loads")
for name, policy in (("engine alone", Fcfs()), ("priority", PriorityOnly()), ("climb", Climb())):
    result = simulate(trace, engine, policy, SLOTS)
    rows = result.requests.query("arrived > 30")
    wait = rows.assign(wait=rows["first"] - rows["arrived"]).groupby("class")["wait"]
    p50, p99 = wait.median(), wait.quantile(0.99)
    print(
        f"{name:15}  {p50['vip']:7.2f}  {p99['vip']:4.2f}   {p50['background']:14.2f}"
        f"  {p99['background']:4.2f}  {result.loads:6d}"
    )
