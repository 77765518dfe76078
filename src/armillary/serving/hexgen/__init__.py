"""Hexgen: the fleet of mixed GPUs that serves a language model for the least money.

    from armillary.serving.hexgen import Catalog, Slo, Workload, plan, simulate

    workload = Workload.from_csv("trace.csv")
    fleet = plan("Qwen/Qwen3-30B-A3B", Catalog.load(), workload, Slo(2.0, 50.0), rate=workload.rate)
    fleet.describe(), fleet.price, fleet.gap          # a certificate, not a guess
    simulate(fleet, workload).summary()               # what it serves, request by request

Source: "HexGen-3: A Fully Disaggregated LLM Serving Framework with Fine-Grained Heterogeneous
Resource Autoscaling", ICML 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.serving.hexgen.autoscaler import HpaLike as HpaLike
    from armillary.serving.hexgen.autoscaler import Market as Market
    from armillary.serving.hexgen.autoscaler import Proportional as Proportional
    from armillary.serving.hexgen.autoscaler import StaticPeak as StaticPeak
    from armillary.serving.hexgen.autoscaler import TransitionAware as TransitionAware
    from armillary.serving.hexgen.autoscaler import autoscale as autoscale
    from armillary.serving.hexgen.catalog import Catalog as Catalog
    from armillary.serving.hexgen.catalog import Gpu as Gpu
    from armillary.serving.hexgen.catalog import UnknownGpuError as UnknownGpuError
    from armillary.serving.hexgen.closing import close_loop as close_loop
    from armillary.serving.hexgen.closing import compare as compare
    from armillary.serving.hexgen.closing import sustained as sustained
    from armillary.serving.hexgen.deploy import DeployError as DeployError
    from armillary.serving.hexgen.deploy import deploy_local as deploy_local
    from armillary.serving.hexgen.model_shape import ModelShape as ModelShape
    from armillary.serving.hexgen.optables import OpTable as OpTable
    from armillary.serving.hexgen.planner import InfeasibleError as InfeasibleError
    from armillary.serving.hexgen.planner import Plan as Plan
    from armillary.serving.hexgen.planner import plan as plan
    from armillary.serving.hexgen.simulator import Failure as Failure
    from armillary.serving.hexgen.simulator import SimResult as SimResult
    from armillary.serving.hexgen.simulator import simulate as simulate
    from armillary.serving.hexgen.steptimes import PhysicalityError as PhysicalityError
    from armillary.serving.hexgen.traces import Slo as Slo
    from armillary.serving.hexgen.traces import Workload as Workload

_HOMES = {
    "Catalog": "catalog",
    "DeployError": "deploy",
    "Failure": "simulator",
    "Gpu": "catalog",
    "HpaLike": "autoscaler",
    "InfeasibleError": "planner",
    "Market": "autoscaler",
    "ModelShape": "model_shape",
    "OpTable": "optables",
    "PhysicalityError": "steptimes",
    "Plan": "planner",
    "Proportional": "autoscaler",
    "SimResult": "simulator",
    "Slo": "traces",
    "StaticPeak": "autoscaler",
    "TransitionAware": "autoscaler",
    "UnknownGpuError": "catalog",
    "Workload": "traces",
    "autoscale": "autoscaler",
    "close_loop": "closing",
    "compare": "closing",
    "deploy_local": "deploy",
    "plan": "planner",
    "simulate": "simulator",
    "sustained": "closing",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="hexgen", extra="serving")
