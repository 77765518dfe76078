"""Deployment: commands that are run here against a stand-in engine, and roll-backs."""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.request

import pytest

from armillary.serving.hexgen import Slo, plan
from armillary.serving.hexgen.deploy import (
    Backend,
    DeployError,
    deploy_local,
    to_ray_serve,
    to_vllm,
)

MOE = "Qwen/Qwen3-30B-A3B"

#: An engine that takes vLLM's options (and no others), and says what it was started with.
ENGINE = """#!{python}
import argparse, json
from http.server import BaseHTTPRequestHandler, HTTPServer
parser = argparse.ArgumentParser()
parser.add_argument("verb", choices=["serve"])
parser.add_argument("model")
parser.add_argument("--host")
parser.add_argument("--port", type=int)
parser.add_argument("--tensor-parallel-size", type=int, choices=[1, 2, 4, 8])
parser.add_argument("--max-num-seqs", type=int)
parser.add_argument("--max-num-batched-tokens", type=int)
parser.add_argument("--gpu-memory-utilization", type=float)
parser.add_argument("--kv-transfer-config", type=json.loads)
options = parser.parse_args()
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(vars(options)).encode())
    def log_message(self, *_):
        pass
HTTPServer((options.host, options.port), Handler).serve_forever()
"""


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@pytest.fixture
def engine(tmp_path, monkeypatch):
    path = tmp_path / "vllm"
    path.write_text(ENGINE.format(python=sys.executable))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def serves(port: int, program: str = sys.executable) -> Backend:
    argv = (program, "-m", "http.server", str(port), "--bind", "127.0.0.1")
    return Backend(f"b{port}", argv, port, health="/")


def test_vllm_commands_start_engines_with_the_plan(paper, wildgpt, engine) -> None:
    fleet = plan(MOE, paper, wildgpt, Slo(), budget_per_hour=7.0, modes=("agg", "pd"))
    first = free_ports(1)[0]
    backends = to_vllm(fleet, first_port=first)
    with deploy_local(backends, timeout_s=60) as running:
        assert len(running.alive()) == sum(fleet.counts)
        assert sum(running.weights.values()) == pytest.approx(1.0)
        for backend in backends:
            with urllib.request.urlopen(backend.url + "/health") as answer:
                said = json.load(answer)
            column = next(c for c in fleet.columns if backend.name.startswith(c.name))
            assert said["tensor_parallel_size"] == column.use[0][1]
            assert said["max_num_seqs"] == column.batch
            role = (said["kv_transfer_config"] or {}).get("kv_role")
            assert role == {"pre": "kv_producer", "dec": "kv_consumer"}.get(column.kind)
    assert running.alive() == []


def test_a_taken_port_starts_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match="in use; nothing was started"):
            deploy_local([serves(free_ports(1)[0]), serves(port)])


def test_a_dead_backend_takes_all_with_it() -> None:
    a, b = free_ports(2)
    dead = Backend("dead", (sys.executable, "-c", "raise SystemExit(3)"), b)
    with pytest.raises(DeployError, match="ended with code 3"):
        deploy_local([serves(a), dead], timeout_s=30)
    deploy_local([serves(a)], timeout_s=30).close()  # its port is free again


def test_a_missing_program_takes_all_with_it() -> None:
    a, b = free_ports(2)
    with pytest.raises(DeployError, match="cannot be started"):
        deploy_local([serves(a), serves(b, "no-such-program")], timeout_s=30)
    deploy_local([serves(a)], timeout_s=30).close()


def test_silence_is_told_and_ended() -> None:
    port = free_ports(1)[0]
    mute = Backend("mute", (sys.executable, "-c", "import time; time.sleep(60)"), port)
    with pytest.raises(DeployError, match="no answer in time"):
        deploy_local([mute], timeout_s=0.5)


def test_wrong_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="none to start"):
        deploy_local([])
    with pytest.raises(ValueError, match="not all different"):
        deploy_local([serves(1), serves(1)])


def test_split_groups_have_no_engine(flat, paper, wildgpt) -> None:
    from armillary.serving.hexgen.columns import build_columns
    from armillary.serving.hexgen.model_shape import ModelShape

    columns = build_columns(ModelShape.load(MOE), paper, wildgpt, Slo())
    group = flat.plan((next(c for c in columns if c.kind == "afd"), 1))
    for target in (to_vllm, to_ray_serve):
        with pytest.raises(ValueError, match=r"plan with (modes )?agg,pd"):
            target(group)


def test_ray_takes_the_configuration(paper, wildgpt) -> None:
    schema = pytest.importorskip("ray.serve.schema")
    fleet = plan(MOE, paper.only("h100"), wildgpt, Slo(), budget_per_hour=13.0, modes=("agg",))
    found = to_ray_serve(fleet)
    assert len(found["applications"]) == len(fleet.columns)
    schema.ServeDeploySchema.model_validate(found)


def test_ray_takes_one_kind_of_each_phase(flat) -> None:
    pre, dec = flat.column(flat.times(), "pre"), flat.column(flat.times(), "dec")
    found = to_ray_serve(flat.plan((pre, 2), (dec, 3)), model="some/model")
    (application,) = found["applications"]
    assert application["import_path"] == "ray.serve.llm:build_pd_openai_app"
    assert application["args"]["decode_config"]["deployment_config"]["num_replicas"] == 3
    with pytest.raises(ValueError, match="use the vLLM commands"):
        to_ray_serve(flat.plan((pre, 1), (dec, 1), (dec, 1)))
