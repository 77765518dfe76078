"""The ingress over HTTP, before an emulated engine that counts what it was never to be asked."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import time

import aiohttp
import openai
import pytest

from armillary.serving.climb.app import create_app
from armillary.serving.climb.config import AdapterConfig, ClimbConfig
from armillary.serving.climb.emulator import create_engine
from armillary.serving.climb.engine_model import EngineModel

NAMES = ["vip-0", *(f"bg-{i}" for i in range(4))]
ADAPTERS = {
    name: AdapterConfig("vip" if name.startswith("vip") else "background", f"/adapters/{name}")
    for name in NAMES
}
MODEL = EngineModel(base=0.01, per_request=0.0, load=0.08)


@pytest.fixture
def engine():
    return create_engine(MODEL, 2, NAMES)


@pytest.fixture
def upstream(engine, served):
    with served(engine) as address:
        yield address


@pytest.fixture
def app(upstream):
    return create_app(ClimbConfig((upstream,), adapters=ADAPTERS))


@pytest.fixture
def url(app, served):
    with served(app) as address:
        yield address


def body(model, tokens=3, stream=False):
    return {"model": model, "prompt": "hello", "max_tokens": tokens, "stream": stream}


async def post(session, url, content, **headers):
    given = {k.replace("_", "-"): v for k, v in headers.items()}
    async with session.post(f"{url}/v1/completions", json=content, headers=given) as answer:
        return answer.status, dict(answer.headers), await answer.read()


def run(work):
    """`work` with a client session."""

    async def main():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as session:
            return await work(session)

    return asyncio.run(main())


def settled(app):
    """Wait until nothing is under way; the controller's books."""
    (gateway,) = app.state.ingress.gateways
    deadline = time.monotonic() + 5
    while gateway.tickets and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not gateway.tickets
    gateway.controller.check()
    assert gateway.controller.in_flight == 0
    assert gateway.controller.queued == {"vip": 0, "background": 0}
    return gateway.controller


def test_the_engine_is_asked_for_no_miss_and_everybody_is_answered(engine, app, url):
    async def work(session):
        each = [post(session, url, body(name)) for _ in range(6) for name in [*NAMES, "base"]]
        return await asyncio.gather(*each)

    answers = run(work)
    assert {status for status, _, _ in answers} == {200}
    assert all(float(headers["x-armillary-queue-ms"]) >= 0 for _, headers, _ in answers)
    assert engine.state.machine.engine.misses == 0
    assert engine.state.machine.served == len(answers)
    controller = settled(app)
    assert controller.loads == engine.state.machine.loads >= 5


def test_streams_pass_byte_for_byte(upstream, url):
    async def work(session):
        content = body("bg-0", 5, stream=True)
        there = await post(session, upstream, content)
        through = await post(session, url, content)
        return there, through

    (_, _, there), (status, headers, through) = run(work)
    assert status == 200
    assert through == there
    assert headers["Content-Type"].startswith("text/event-stream")


def test_an_openai_client_streams_through_it(url):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    assert [m.id for m in client.models.list()] == ["base", *NAMES]
    stream = client.completions.create(model="vip-0", prompt="a", max_tokens=4, stream=True)
    assert "".join(part.choices[0].text for part in stream) == "0 1 2 3 "
    with pytest.raises(openai.NotFoundError, match="did you mean vip-0"):
        client.completions.create(model="vip-1", prompt="a")


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"{no", 400, b"no JSON"),
        (b"[]", 400, b"'model'"),
        (b'{"model": 3}', 400, b"'model'"),
        (b'{"model": "bg-7"}', 404, b"bg-3"),
        (b"[" * 100_000, 400, b"no JSON"),
        (b"x" * (8 * 2**20 + 1), 413, b"8388608"),
    ],
)
def test_bad_bodies_never_reach_the_engine(engine, app, url, content, status, said):
    async def work(session):
        async with session.post(f"{url}/v1/completions", data=io.BytesIO(content)) as answer:
            return answer.status, await answer.read()

    assert (found := run(work))[0] == status
    assert said in found[1]
    assert b'"error"' in found[1]
    assert engine.state.machine.served == 0
    settled(app)


def test_headers_of_priority_and_deadline_are_read(app, url):
    async def work(session):
        wrong = await post(session, url, body("bg-0"), x_armillary_priority="gold")
        late = await post(session, url, body("bg-0"), x_armillary_deadline_ms="1")
        odd = await post(session, url, body("bg-0"), x_armillary_deadline_ms="soon")
        fine = await post(session, url, body("bg-0"), x_armillary_priority="vip",
                          x_armillary_deadline_ms="9000")  # fmt: skip
        return [a[0] for a in (wrong, late, odd, fine)]

    assert run(work) == [400, 504, 400, 200]
    settled(app)


def test_a_full_queue_answers_429_and_says_when_to_come_back(upstream, served):
    config = ClimbConfig((upstream,), adapters=ADAPTERS, queue={"background": 1}, in_flight=1)
    with served(app := create_app(config)) as url:

        async def work(session):
            return await asyncio.gather(
                *(post(session, url, body("bg-0", 20)) for _ in range(4)),
                post(session, url, body("vip-0", 1)),
            )

        answers = run(work)
        settled(app)
    statuses = [status for status, _, _ in answers]
    assert statuses[-1] == 200  # the other class's queue is its own
    assert 429 in statuses[:4]
    refused = next(headers for status, headers, _ in answers if status == 429)
    assert int(refused["Retry-After"]) >= 1


def test_clients_that_go_away_leave_no_trace(engine, app, url):
    async def leave(session, content, after):
        task = asyncio.create_task(post(session, url, content))
        await asyncio.sleep(after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def work(session):
        await post(session, url, body("bg-0"))
        streaming = leave(session, body("bg-0", 400, stream=True), 0.3)
        queued = leave(session, body("bg-3", 400), 0.02)
        await asyncio.gather(streaming, queued)
        return await post(session, url, body("bg-1"))

    assert run(work)[0] == 200
    settled(app)
    deadline = time.monotonic() + 5
    while not engine.state.machine.aborted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert engine.state.machine.aborted >= 1  # the engine heard of it


def test_a_broken_adapter_harms_nobody_else(engine, app, url):
    engine.state.machine.failing.add("bg-1")

    async def work(session):
        broken = await post(session, url, body("bg-1"))
        again = await post(session, url, body("bg-1"))
        fine = await post(session, url, body("bg-2"))
        return broken, again, fine

    broken, again, fine = run(work)
    assert (broken[0], again[0], fine[0]) == (503, 503, 200)
    assert b"bg-1 is broken" in broken[2]
    assert int(broken[1]["Retry-After"]) >= 1
    assert settled(app).load_failures == 1  # the second is refused before it reaches the engine


def test_an_engine_that_is_killed_costs_what_it_had_and_nothing_that_waits(served, free_port):
    port = free_port()
    first = engine_process(port)
    app = create_app(ClimbConfig((f"http://127.0.0.1:{port}",), adapters=ADAPTERS))
    try:
        with served(app) as url:
            outcome = asyncio.run(_over_a_kill(url, first, port))
            settled(app)
    finally:
        first.kill()
    assert outcome == (502, 200)


def engine_process(port):
    code = (
        "import uvicorn\n"
        "from armillary.serving.climb.emulator import create_engine\n"
        "from armillary.serving.climb.engine_model import EngineModel\n"
        f"app = create_engine({MODEL!r}, 1, {NAMES!r})\n"
        f"uvicorn.run(app, host='127.0.0.1', port={port}, log_level='critical')"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise RuntimeError("the engine did not start")


async def _over_a_kill(url, first, port):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        under_way = asyncio.create_task(post(session, url, body("bg-0", 1000)))
        await asyncio.sleep(0.4)
        waits = asyncio.create_task(post(session, url, body("bg-1")))
        await asyncio.sleep(0.1)
        first.kill()
        lost = (await under_way)[0]
        second = await asyncio.to_thread(engine_process, port)
        try:
            return lost, (await waits)[0]
        finally:
            second.kill()


def test_more_slots_than_the_engine_has_are_refused_at_the_start(upstream, free_port):
    for config, said in (
        (ClimbConfig((upstream,), slots=3, adapters=ADAPTERS), "holds 2"),
        (ClimbConfig((f"http://127.0.0.1:{free_port()}",), slots=1), "does not answer"),
    ):
        app = create_app(config)
        with pytest.raises(ValueError, match=said):
            asyncio.run(_opened(app.state.ingress))


async def _opened(ingress):
    await ingress.open()
    await ingress.close()


def test_metrics_and_state_tell_what_is_where(url):
    async def work(session):
        await post(session, url, body("bg-0"))
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text()
        async with session.get(f"{url}/climb/state") as answer:
            return text, await answer.json()

    text, state = run(work)
    assert "climb_loads_total 1.0" in text
    assert "climb_resident_adapters 1.0" in text
    assert 'climb_queue_seconds_count{class="background"} 1.0' in text
    assert state["upstreams"][0]["adapters"]["bg-0"]["residency"] == "resident"


def test_adapters_stay_with_their_engine_until_it_is_crowded():
    from armillary.serving.climb.app import Ingress

    class Stub:
        def __init__(self, address):
            self.upstream = type("U", (), {"address": address})
            self.tickets, self.up = {}, True

    ingress = Ingress(ClimbConfig(("http://a", "http://b", "http://c"), slots=1))
    ingress.gateways = [Stub(a) for a in ("a", "b", "c")]  # pyright: ignore
    homes = {f"x{i}": ingress.gateway(f"x{i}") for i in range(60)}
    assert {id(g) for g in homes.values()} == {id(g) for g in ingress.gateways}
    assert all(ingress.gateway(n) is g for n, g in homes.items())
    down = ingress.gateways[0]
    down.up = False
    moved = [n for n, g in homes.items() if ingress.gateway(n) is not g]
    assert moved == [n for n, g in homes.items() if g is down]  # only its own go elsewhere
    down.up = True
    down.tickets = dict.fromkeys(range(10))  # pyright: ignore
    assert all(ingress.gateway(n) is not down for n in homes)


def test_sigterm_refuses_what_waits_and_finishes_what_is_under_way(upstream, free_port):
    port = free_port()
    code = (
        "from armillary.serving.climb.app import serve\n"
        "from armillary.serving.climb.config import AdapterConfig, ClimbConfig\n"
        f"serve(ClimbConfig(({upstream!r},), slots=1, adapters={{n: AdapterConfig(path='/x')"
        f" for n in {NAMES!r}}}), '127.0.0.1', {port})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))
    url = f"http://127.0.0.1:{port}"

    async def work(session):
        for _ in range(200):
            try:
                async with session.get(f"{url}/healthz"):
                    break
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        under_way = asyncio.create_task(post(session, url, body("bg-0", 60)))
        await asyncio.sleep(0.3)
        waits = asyncio.create_task(post(session, url, body("bg-1")))
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        return (await under_way)[0], (await waits)[0]

    try:
        assert run(work) == (200, 503)
        assert process.wait(10) in (0, -signal.SIGTERM)
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"upstreams": ()}, "at least one address"),
        ({"upstreams": ("localhost",)}, "http://host:port"),
        ({"slots": 0}, "slots=0"),
        ({"in_flight": 0}, "in_flight=0"),
        ({"policy": "magic"}, "known are climb"),
        ({"settings": {"speed": 1}}, "it has eta"),
        ({"settings": {"eta": 3}}, "eta=3"),
        ({"load_by": "hope"}, "'warm-up'"),
        ({"queue": {"gold": 1}}, "gold"),
    ],
)
def test_settings_out_of_range_are_told(settings, said):
    with pytest.raises(ValueError, match=said):
        ClimbConfig(**{"upstreams": ("http://x",), **settings})
