"""From a plan to running engines: vLLM commands, Ray Serve's configuration, local processes.

`deploy_local` starts commands, waits until every one answers, and takes everything back if one does
not: after a failure no process of it is left.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from armillary.serving.hexgen.columns import AfdTimes, Column
from armillary.serving.hexgen.planner import Plan

FIRST_PORT = 8100
#: How Ray names the accelerators that the shipped catalogue has.
RAY_ACCELERATORS = {
    "h100": "H100", "h200": "H200", "a100": "A100", "l40s": "L40S", "b200": "B200", "h20": "H20",
}  # fmt: skip


class DeployError(RuntimeError):
    """A backend did not come up; what had been started is ended."""


@dataclasses.dataclass(frozen=True)
class Backend:
    """One engine process.

    Attributes:
        name: of the replica.
        argv: the command.
        port: where it listens on this machine.
        env: variables beside the user's own.
        weight: share of requests, in proportion to its capacity.
        health: path that answers 200 when it serves.
    """

    name: str
    argv: tuple[str, ...]
    port: int
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    health: str = "/health"

    @property
    def url(self) -> str:
        """Base address of its OpenAI-compatible interface."""
        return f"http://127.0.0.1:{self.port}"


def _replicas(plan: Plan) -> list[tuple[str, Column]]:
    return [
        (f"{column.name}-{i}", column)
        for column, count in zip(plan.columns, plan.counts, strict=True)
        for i in range(count)
    ]


def to_vllm(plan: Plan, *, model: str | None = None, first_port: int = FIRST_PORT) -> list[Backend]:
    """One ``vllm serve`` a replica; prefill and decode replicas ship caches by NIXL.

    Args:
        plan: the fleet.
        model: what vLLM loads; default: the plan's model name.
        first_port: of the first replica; the others follow.

    Raises:
        ValueError: the plan holds groups that split attention from feed-forward blocks: no
            released engine serves them.
    """
    roles = {"pre": "kv_producer", "dec": "kv_consumer"}
    found = []
    for port, (name, column) in enumerate(_replicas(plan), first_port):
        times = column.times
        if isinstance(times, AfdTimes):
            raise ValueError(
                f"{name}: vLLM serves no group that splits attention from feed-forward blocks; "
                "plan with modes agg,pd"
            )
        argv = [
            "vllm", "serve", model or plan.shape.name, "--host", "127.0.0.1", "--port", str(port),
            "--tensor-parallel-size", str(times.tp), "--max-num-seqs", str(column.batch),
            "--gpu-memory-utilization", "0.9",
        ]  # fmt: skip
        if column.chunk:
            budget = column.chunk + (column.batch if column.kind == "agg" else 0)
            argv += ["--max-num-batched-tokens", str(budget)]
        if column.kind in roles:
            config = {"kv_connector": "NixlConnector", "kv_role": roles[column.kind]}
            argv += ["--kv-transfer-config", json.dumps(config)]
        env = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port + 1000)} if column.kind in roles else {}
        found.append(Backend(name, tuple(argv), port, env, column.capacity))
    return found


def to_ray_serve(plan: Plan, *, model: str | None = None) -> dict[str, Any]:
    """Configuration for ``serve deploy``: one application of ``ray.serve.llm`` a kind of replica.

    Prefill and decode replicas become one application of `build_pd_openai_app`; it takes one kind
    of each, that of most replicas. Fleets with several kinds of a phase get a note in the name.

    Raises:
        ValueError: the plan holds groups that split attention from feed-forward blocks, or several
            kinds of prefill or decode replicas, which Ray's application cannot mix.
    """
    source = model or plan.shape.name
    pairs = list(zip(plan.columns, plan.counts, strict=True))
    applications = []
    for column, count in pairs:
        if column.kind == "agg":
            applications.append({
                "name": column.name, "route_prefix": f"/{column.name}",
                "import_path": "ray.serve.llm:build_openai_app",
                "args": {"llm_configs": [_ray_model(source, column, count)]},
            })  # fmt: skip
    phases = {kind: [(c, n) for c, n in pairs if c.kind == kind] for kind in ("pre", "dec")}
    if any(c.kind == "afd" for c, _ in pairs):
        raise ValueError("Ray Serve: no released engine serves split groups; plan with agg,pd")
    if any(len(found) > 1 for found in phases.values()):
        names = [c.name for found in phases.values() for c, _ in found]
        raise ValueError(
            f"Ray Serve's disaggregated application takes one kind of prefill and one of decode "
            f"replicas; the plan has {', '.join(names)}: use the vLLM commands"
        )
    if phases["pre"] and phases["dec"]:
        applications.append({
            "name": "disaggregated", "route_prefix": "/disaggregated",
            "import_path": "ray.serve.llm:build_pd_openai_app",
            "args": {
                "prefill_config": _ray_model(source, *phases["pre"][0]),
                "decode_config": _ray_model(source, *phases["dec"][0]),
            },
        })  # fmt: skip
    return {"applications": applications}


def _ray_model(source: str, column: Column, count: int) -> dict[str, Any]:
    assert not isinstance(column.times, AfdTimes)
    engine: dict[str, Any] = {
        "tensor_parallel_size": column.times.tp, "max_num_seqs": column.batch
    }  # fmt: skip
    if column.chunk:
        engine["max_num_batched_tokens"] = column.chunk + (
            column.batch if column.kind == "agg" else 0
        )
    if column.kind in ("pre", "dec"):
        engine["kv_transfer_config"] = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    gpu = column.times.gpu.name
    return {
        "model_loading_config": {"model_id": source, "model_source": source},
        "accelerator_type": RAY_ACCELERATORS.get(gpu, gpu.upper()),
        "deployment_config": {"num_replicas": count},
        "engine_kwargs": engine,
    }


@dataclasses.dataclass
class Deployment:
    """Running backends; `close` ends them. Use it as a context.

    Attributes:
        backends: what runs.
        processes: one a backend.
    """

    backends: list[Backend]
    processes: list[subprocess.Popen[bytes]]

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    @property
    def weights(self) -> dict[str, float]:
        """Share of requests by address, for a router in front."""
        whole = sum(b.weight for b in self.backends) or 1.0
        return {b.url: b.weight / whole for b in self.backends}

    def alive(self) -> list[str]:
        """Names of the backends whose process runs."""
        pairs = zip(self.backends, self.processes, strict=True)
        return [b.name for b, p in pairs if p.poll() is None]

    def close(self, patience_s: float = 10.0) -> None:
        """End every process, by force after a while."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + patience_s
        for process in self.processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def deploy_local(backends: Sequence[Backend], *, timeout_s: float = 300.0) -> Deployment:
    """Start backends on this machine and wait until each answers its health path.

    Raises:
        DeployError: a port is taken, a program is missing, a backend ends early or does not answer
            in time; everything that was started is ended first.
        ValueError: two backends share a port, or there is none.
    """
    ports = [b.port for b in backends]
    if not backends:
        raise ValueError("backends: there is none to start")
    if len(set(ports)) != len(ports):
        raise ValueError(f"backends: ports {ports} are not all different")
    for backend in backends:
        if not _free(backend.port):
            raise DeployError(
                f"{backend.name}: port {backend.port} is in use; nothing was started: choose "
                "other ports or end what listens there"
            )
    running = Deployment([], [])
    try:
        for backend in backends:
            try:
                process = subprocess.Popen(
                    list(backend.argv), env={**os.environ, **backend.env},
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )  # fmt: skip
            except OSError as error:
                raise DeployError(
                    f"{backend.name}: {backend.argv[0]!r} cannot be started ({error.strerror}); "
                    "what had been started is ended"
                ) from None
            running.backends.append(backend)
            running.processes.append(process)
        deadline = time.monotonic() + timeout_s
        for backend, process in zip(running.backends, running.processes, strict=True):
            _wait(backend, process, deadline)
    except BaseException:
        running.close()
        raise
    return running


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _wait(backend: Backend, process: subprocess.Popen[bytes], deadline: float) -> None:
    while True:
        if process.poll() is not None:
            raise DeployError(
                f"{backend.name}: it ended with code {process.returncode} before it served; "
                "all backends are ended"
            )
        try:
            with urllib.request.urlopen(backend.url + backend.health, timeout=2.0) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        if time.monotonic() > deadline:
            raise DeployError(f"{backend.name}: no answer in time; all backends are ended")
        time.sleep(0.1)
