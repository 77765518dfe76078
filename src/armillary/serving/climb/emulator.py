"""An engine over HTTP that answers in the time that an `EngineModel` takes, for tests and evidence.

It speaks vLLM's dialect (completions, streaming, load and unload of adapters, the metric of
slots), runs the engine of the simulator in real time, and counts what an ingress should never make
it do: ``unasked_misses``, requests whose adapter it had to load by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from armillary.serving.climb.engine_model import EngineModel
from armillary.serving.climb.requests import Request
from armillary.serving.climb.simulation import Engine

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response

BASE = "base"


class EmulatedEngine:
    """The step loop in real time.

    Args:
        model: how long steps and loads take.
        slots: adapters that it holds.
        adapters: names that it knows.
        priority: whether VIP goes first inside (by the header ``x-armillary-priority``).
    """

    def __init__(
        self, model: EngineModel, slots: int, adapters: list[str], *, priority: bool = False
    ) -> None:
        self.engine = Engine(model, slots, loads_itself=True, priority=priority)
        self.adapters = adapters
        self.asked: list[tuple[str, str, asyncio.Future[None]]] = []
        self.queues: dict[int, asyncio.Queue[int]] = {}
        self.gone: set[int] = set()
        self.failing: set[str] = set()
        self.served = self.aborted = self.loads = 0
        self.ids = itertools.count()
        self.work = asyncio.Event()

    async def run(self) -> None:
        """Steps, one after the other, as long as there is work."""
        engine = self.engine
        while True:
            if not (engine.running or engine.waiting_count or self.asked):
                self.work.clear()
                await self.work.wait()
            for kind, name, done in self._taken():
                await self._change(kind, name, done)
            stalled = engine.admit()
            if not engine.running:
                continue
            running = [r for _, _, r in engine.running]
            start = time.monotonic()
            end, _, finished = engine.advance(start + stalled, 0.0)  # one step
            await asyncio.sleep(max(0.0, end - time.monotonic()))
            for request in running:
                self._token(request, 1)
            for request in finished:
                self._token(request, 0)
                self.served += 1

    def _taken(self) -> list[tuple[str, str, asyncio.Future[None]]]:
        taken, self.asked = self.asked, []
        return taken

    async def _change(self, kind: str, name: str, done: asyncio.Future[None]) -> None:
        engine = self.engine
        if done.cancelled():
            return
        try:
            if kind == "unload":
                engine.evict(name)
            elif name in self.failing:
                raise ValueError(f"{name} is broken")
            elif name not in engine.resident:
                await asyncio.sleep(engine.load(name))
                self.loads += 1
            done.set_result(None)
        except ValueError as error:
            done.set_exception(error)

    def _token(self, request: Request, token: int) -> None:
        queue = self.queues.get(request.id)  # pyright: ignore[reportArgumentType,reportCallIssue]
        if queue is not None:
            queue.put_nowait(token)

    async def tokens(
        self, adapter: str | None, klass: Any, prompt: int, output: int
    ) -> AsyncIterator[int]:
        """The numbers of an answer's tokens as they come."""
        id = next(self.ids)
        queue = self.queues[id] = asyncio.Queue()
        request = Request(id, adapter, klass, time.monotonic(), None, prompt, output)
        self.engine.add(request)
        self.work.set()
        count = 0
        try:
            while await queue.get():
                yield count
                count += 1
        finally:
            del self.queues[id]
            if count < output:
                self.aborted += 1

    async def change(self, kind: str, name: str) -> None:
        done = asyncio.get_running_loop().create_future()
        self.asked.append((kind, name, done))
        self.work.set()
        await done


def create_engine(
    model: EngineModel, slots: int, adapters: list[str], *, priority: bool = False
) -> Starlette:
    """An application that serves an `EmulatedEngine`."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    machine = EmulatedEngine(model, slots, adapters, priority=priority)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(machine.run())
        try:
            yield
        finally:
            task.cancel()

    async def complete(request: HttpRequest) -> Response:
        content = json.loads(await request.body())
        name = content["model"]
        adapter = None if name == BASE else name
        if adapter is not None and adapter not in machine.adapters:
            return JSONResponse({"error": {"message": f"no model {name}"}}, 404)
        klass = request.headers.get("x-armillary-priority", "background")
        prompt = len(str(content.get("prompt") or content.get("messages") or "")) // 4
        tokens = machine.tokens(adapter, klass, prompt, int(content.get("max_tokens", 16)))
        if content.get("stream"):
            return StreamingResponse(_events(tokens, name), media_type="text/event-stream")
        text = "".join([f"{i} " async for i in tokens])
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        return JSONResponse({"object": "text_completion", "model": name, "choices": [choice]})

    def changing(kind: str) -> Any:
        async def change(request: HttpRequest) -> Response:
            name = json.loads(await request.body())["lora_name"]
            try:
                await machine.change(kind, name)
            except ValueError as error:
                return JSONResponse({"error": {"message": str(error)}}, 400)
            return Response(f"Success: {kind} {name}")

        return change

    async def models(request: HttpRequest) -> Response:
        listed = [{"id": BASE, "object": "model", "parent": None}]
        listed += [
            {"id": n, "object": "model", "parent": BASE, "root": f"/adapters/{n}"}
            for n in machine.adapters
        ]
        return JSONResponse({"object": "list", "data": listed})

    async def metrics(request: HttpRequest) -> Response:
        text = f'vllm:lora_requests_info{{max_lora="{slots}",running_lora_adapters=""}} 1.0\n'
        return Response(text, media_type="text/plain")

    async def state(request: HttpRequest) -> Response:
        return JSONResponse(
            {
                "unasked_misses": machine.engine.misses,
                "served": machine.served,
                "aborted": machine.aborted,
                "loads": machine.loads,
                "resident": list(machine.engine.resident),
            }
        )

    async def health(request: HttpRequest) -> Response:
        return Response("")

    app = Starlette(
        routes=[
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/load_lora_adapter", changing("load"), methods=["POST"]),
            Route("/v1/unload_lora_adapter", changing("unload"), methods=["POST"]),
            Route("/v1/models", models),
            Route("/metrics", metrics),
            Route("/state", state),
            Route("/health", health),
        ],
        lifespan=lifespan,
    )
    app.state.machine = machine
    return app


async def _events(tokens: AsyncIterator[int], name: str) -> AsyncIterator[bytes]:
    async for i in tokens:
        choice = {"index": 0, "text": f"{i} ", "finish_reason": None}
        yield b"data: " + json.dumps({"model": name, "choices": [choice]}).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


def create_emitter(tokens: int = 8) -> Starlette:
    """A server that answers at once with ``tokens`` events: what is left is the ingress's cost."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    whole = _chat_stream(tokens)

    async def complete(request: HttpRequest) -> Response:
        await request.body()
        return Response(whole, media_type="text/event-stream")

    async def models(request: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": BASE, "object": "model"}]})

    async def metrics(request: HttpRequest) -> Response:
        return Response('vllm:lora_requests_info{max_lora="8"} 1.0\n', media_type="text/plain")

    async def health(request: HttpRequest) -> Response:
        return Response("")

    return Starlette(
        routes=[
            Route("/v1/completions", complete, methods=["POST"]),
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/v1/models", models),
            Route("/metrics", metrics),
            Route("/health", health),
        ]
    )


def _chat_stream(tokens: int) -> bytes:
    """A chat answer as vLLM streams it, with the usage at the end."""
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": BASE}
    events = [
        {
            **head,
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "word "},
                    "finish_reason": "stop" if i == tokens - 1 else None,
                }
            ],
        }
        for i in range(tokens)
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": tokens, "total_tokens": tokens + 3}
    parts = [
        b"data: " + json.dumps(e).encode()
        for e in [*events, {**head, "choices": [], "usage": usage}]
    ]
    return b"\n\n".join([*parts, b"data: [DONE]\n\n"])
