"""CLIMB: an OpenAI-compatible ingress that keeps multi-LoRA serving off the residency cliff.

    armillary climb serve --upstream http://127.0.0.1:8000 --classes classes.yaml --port 8080

    from armillary.serving.climb import Climb, EngineModel, multi_lora_trace, simulate
    trace = multi_lora_trace(seconds=300, rate=10.66, working_set=16)
    simulate(trace, EngineModel(load=0.35), Climb(), slots=8).requests

An engine holds a few LoRA adapters at once. With more in use than fit, requests wait for each
other's loads inside the engine, and the tail of waiting jumps. Here a request waits outside until
its adapter is resident: VIP first, background adapters in turns.

Source: Zhang, Liang, Zuo, Wang, "CLIMB: Taming the LoRA Residency Cliff in Multi-LoRA Serving",
ICML 2026. Of the paper only the abstract is public: what it leaves open is our reconstruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.serving.climb.app import create_app as create_app
    from armillary.serving.climb.calibration import calibrate as calibrate
    from armillary.serving.climb.config import AdapterConfig as AdapterConfig
    from armillary.serving.climb.config import ClimbConfig as ClimbConfig
    from armillary.serving.climb.controller import Controller as Controller
    from armillary.serving.climb.controller import Limits as Limits
    from armillary.serving.climb.engine_model import EngineModel as EngineModel
    from armillary.serving.climb.engine_model import cliff_loss as cliff_loss
    from armillary.serving.climb.policies import AffinityLongestQueue as AffinityLongestQueue
    from armillary.serving.climb.policies import Climb as Climb
    from armillary.serving.climb.policies import Fcfs as Fcfs
    from armillary.serving.climb.policies import LoraAffinityRouter as LoraAffinityRouter
    from armillary.serving.climb.policies import PriorityOnly as PriorityOnly
    from armillary.serving.climb.policies import StaticPartition as StaticPartition
    from armillary.serving.climb.requests import Request as Request
    from armillary.serving.climb.simulation import SimResult as SimResult
    from armillary.serving.climb.simulation import simulate as simulate
    from armillary.serving.climb.traces import azure_trace as azure_trace
    from armillary.serving.climb.traces import multi_lora_trace as multi_lora_trace
    from armillary.serving.climb.traces import read_trace as read_trace

_HOMES = {
    "AdapterConfig": "config",
    "AffinityLongestQueue": "policies",
    "Climb": "policies",
    "ClimbConfig": "config",
    "Controller": "controller",
    "EngineModel": "engine_model",
    "Fcfs": "policies",
    "Limits": "controller",
    "LoraAffinityRouter": "policies",
    "PriorityOnly": "policies",
    "Request": "requests",
    "SimResult": "simulation",
    "StaticPartition": "policies",
    "azure_trace": "traces",
    "calibrate": "calibration",
    "cliff_loss": "engine_model",
    "create_app": "app",
    "multi_lora_trace": "traces",
    "read_trace": "traces",
    "simulate": "simulation",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="climb", extra="serving")
