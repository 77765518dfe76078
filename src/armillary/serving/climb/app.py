"""The ingress as an ASGI application: OpenAI's routes, passed on byte for byte.

A request waits in its gateway until it may go; then its body goes to the engine as it came, and
the answer back as it comes. The client's going away is watched for all the while.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from armillary.serving.climb.config import AdapterConfig, ClimbConfig
from armillary.serving.climb.gateway import Gateway, Ticket, new_controller
from armillary.serving.climb.metrics import Metrics
from armillary.serving.climb.requests import CLASSES, Class
from armillary.serving.climb.upstream import HOP, Upstream

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ROUTES = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")
PRIORITY, DEADLINE, WAITED = (
    b"x-armillary-priority", b"x-armillary-deadline-ms", b"x-armillary-queue-ms",
)  # fmt: skip
#: A request may be this much above the mean load of engines before it goes to the next one.
SPILL = 1.25


class Refusal(Exception):
    """A request that is answered with an error in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str = "", retry_after: float = 0) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code
        self.retry_after = retry_after


class Ingress:
    """All gateways of one process.

    Args:
        config: its settings.
    """

    def __init__(self, config: ClimbConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.gateways: list[Gateway] = []
        self.adapters: dict[str, AdapterConfig] = dict(config.adapters)
        self.listed: list[dict[str, Any]] = []
        self.bases: list[str] = []
        self._by_name: dict[str, list[Gateway]] = {}

    async def open(self) -> None:
        """Ask the engines what they are, and begin.

        Raises:
            ValueError: an engine does not answer, or holds fewer adapters than ``slots``.
        """
        config = self.config
        connector = aiohttp.TCPConnector(limit=0)  # the controller bounds what is in flight
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        for address in config.upstreams:
            upstream = Upstream(
                address, self.session, self.adapters, config.load_by, config.load_seconds
            )
            try:
                self.listed = await upstream.models()
            except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError) as error:
                await self.session.close()
                raise ValueError(
                    f"upstream {address} does not answer at /v1/models: {error or 'no answer'}"
                ) from None
            self._learn()
            slots = await self._slots(upstream)
            classes: dict[str, Class] = {n: a.klass for n, a in self.adapters.items()}
            controller = new_controller(
                slots, config.new_policy(), classes, config.in_flight, dict(config.queue)
            )
            gateway = Gateway(upstream, controller, self.metrics)
            gateway.start()
            self.gateways.append(gateway)
        gateways = self.gateways
        self.metrics.watch(
            lambda: sum(g.resident for g in gateways),
            lambda: max(g.working_set / g.controller.slots for g in gateways),
            lambda: sum(g.controller.in_flight for g in gateways),
            lambda: sum(sum(g.controller.queued.values()) for g in gateways),
        )

    def _learn(self) -> None:
        """Base models and adapters, by what the engine lists."""
        self.bases = [m["id"] for m in self.listed if not m.get("parent")]
        if not self.config.adapters:
            for model in self.listed:
                if model.get("parent"):
                    root = model.get("root")
                    self.adapters.setdefault(model["id"], AdapterConfig(path=root))

    async def _slots(self, upstream: Upstream) -> int:
        found = await upstream.slots()
        wanted = self.config.slots
        if wanted is None and found is None:
            await self.session.close()
            raise ValueError(
                f"upstream {upstream.address} does not say how many adapters it holds "
                "(vllm:lora_requests_info in /metrics): give --slots"
            )
        if wanted is not None and found is not None and wanted > found:
            await self.session.close()
            raise ValueError(
                f"slots={wanted}: upstream {upstream.address} holds {found} (its max_lora); "
                f"give at most {found}"
            )
        return wanted or found or 1

    async def close(self) -> None:
        for gateway in self.gateways:
            await gateway.close()
        await self.session.close()

    def stop_admitting(self) -> None:
        """Refuse what comes and waits from now on; what engines have goes on."""
        for gateway in self.gateways:
            gateway.stop_admitting()

    def gateway(self, name: str) -> Gateway:
        """The engine of an adapter: the highest in its order whose load is not far above the mean.

        Rendezvous hashing: an engine that comes or goes moves only its own adapters.
        """
        if len(self.gateways) == 1:
            return self.gateways[0]
        order = self._by_name.get(name)
        if order is None:
            order = sorted(self.gateways, key=lambda g: _weight(name, g.upstream.address))
            self._by_name[name] = order
        loads = [len(g.tickets) for g in self.gateways]
        bound = SPILL * (sum(loads) + 1) / len(loads)
        fit = (g for g in order if g.up and len(g.tickets) < bound)
        return next(fit, next((g for g in order if g.up), order[0]))

    # ---- one request -----------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        klass: Class = "background"
        try:
            body = await _body(scope, receive, self.config.body_bytes)
            name, klass, deadline = self._read(scope, body)
            await self._pass_on(scope, receive, send, body, name, klass, deadline)
        except Refusal as refusal:
            if refusal.status not in (429, 503, 504):
                self.metrics.rejected(klass, refusal.status)
            await _refuse(send, refusal)
        except _Gone:
            self.metrics.ended(klass, "disconnected")

    def _read(self, scope: Scope, body: bytes) -> tuple[str | None, Class, float | None]:
        """Adapter (None: base model), class and deadline of a request."""
        try:
            content = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"the body is no JSON: {error}", "invalid_json") from None
        name = content.get("model") if isinstance(content, dict) else None
        if not isinstance(name, str):
            raise Refusal(400, "the body has no 'model', or it is no text", "invalid_model")
        headers = dict(scope["headers"])
        klass: Class = "background"
        if name in self.adapters:
            klass = self.adapters[name].klass
        elif name not in self.bases:
            near = difflib.get_close_matches(name, [*self.adapters, *self.bases], 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise Refusal(404, f"The model `{name}` does not exist{hint}", "model_not_found")
        given = headers.get(PRIORITY, b"").decode("latin-1").strip().lower()
        if given:
            if given not in CLASSES:
                raise Refusal(
                    400, f"{PRIORITY.decode()}: {given!r} is neither vip nor background", "priority"
                )
            klass = "vip" if given == "vip" else "background"
        return None if name in self.bases else name, klass, _deadline(headers.get(DEADLINE))

    async def _pass_on(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        body: bytes,
        name: str | None,
        klass: Class,
        deadline: float | None,
    ) -> None:
        gateway = self.gateway(name or "")
        ticket = gateway.enter(name, klass, deadline)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await _first(ticket.turn, gone)
            refused = ticket.turn.result()
            if refused is not None:
                code = {429: "queue_full", 504: "deadline"}.get(refused.status, "unavailable")
                raise Refusal(refused.status, refused.reason, code, refused.retry_after)
            await self._answer(scope, send, gateway, ticket, body, gone)
        finally:
            gone.cancel()
            gateway.leave(ticket)

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        gateway: Gateway,
        ticket: Ticket,
        body: bytes,
        gone: asyncio.Future[None],
    ) -> None:
        """Send on, and give back what comes; an engine that fails is a 502, or a cut stream."""
        lost = asyncio.ensure_future(ticket.lost.wait())
        started = False
        answer = None
        try:
            sending = asyncio.ensure_future(
                gateway.upstream.send(
                    scope["path"], scope["headers"], body, self.config.answer_seconds
                )
            )
            await _first(sending, gone, lost)
            answer = sending.result()
            await send(_start(answer, (ticket.sent - ticket.arrived) * 1000))
            started = True
            chunks = answer.content
            while True:
                reading = asyncio.ensure_future(chunks.readany())
                await _first(reading, gone, lost)
                chunk = reading.result()
                if not chunk:
                    break
                if ticket.request.id in gateway.controller.unstarted[ticket.request.klass]:
                    gateway.began(ticket)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            self.metrics.ended(ticket.request.klass, answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, _Lost) as error:
            self.metrics.ended(ticket.request.klass, 502)
            if not isinstance(error, _Lost) and not await gateway.upstream.alive():
                gateway.lost()
            if started:  # a cut connection tells the client that the answer is not whole
                raise ConnectionAbortedError(
                    "the engine was lost in the middle of an answer"
                ) from None
            raise Refusal(502, "the engine was lost before it answered", "engine_lost") from None
        finally:
            lost.cancel()
            if answer is not None:
                answer.close()


class _Gone(Exception):
    """The client went away."""


class _Lost(Exception):
    """The engine went away."""


async def _first(
    wanted: asyncio.Future[Any], gone: asyncio.Future[Any], lost: asyncio.Future[Any] | None = None
) -> None:
    """Wait for what is wanted, unless the client or the engine goes first."""
    if wanted.done():
        return
    others = {gone} if lost is None else {gone, lost}
    await asyncio.wait({wanted, *others}, return_when=asyncio.FIRST_COMPLETED)
    if wanted.done():
        return
    wanted.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await wanted
    raise _Gone if gone.done() else _Lost


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The whole body, unless it is too long."""
    too_long = Refusal(413, f"the body is longer than {most} bytes", "body_too_long")
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most:
            raise too_long
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise too_long
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _deadline(given: bytes | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = float(given) / 1000
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise Refusal(400, f"{DEADLINE.decode()}: expected milliseconds > 0", "deadline")
    return seconds


def _weight(name: str, address: str) -> bytes:
    return hashlib.blake2b(f"{name}\0{address}".encode(), digest_size=8).digest()


def _start(answer: Any, waited_ms: float) -> dict[str, Any]:
    headers = [(k.lower(), v) for k, v in answer.raw_headers if k.lower() not in HOP]
    headers += [(k, v) for k, v in answer.raw_headers if k.lower() == b"content-length"]
    headers.append((WAITED, f"{waited_ms:.1f}".encode()))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


async def _refuse(send: Send, refusal: Refusal) -> None:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code or None}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if refusal.status in (429, 503):
        headers.append((b"retry-after", str(max(1, round(refusal.retry_after + 0.5))).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def create_app(config: ClimbConfig) -> Starlette:
    """The ingress as an application for uvicorn, hypercorn or a test client.

    Routes: ``/v1/completions``, ``/v1/chat/completions``, ``/v1/embeddings`` (passed on),
    ``/v1/models``, ``/metrics`` (Prometheus), ``/climb/state`` (JSON), ``/healthz``.
    Request headers: ``x-armillary-priority: vip|background``, ``x-armillary-deadline-ms``; answers
    carry ``x-armillary-queue-ms``.

    Args:
        config: settings; engines are asked when the application starts.
    """
    ingress = Ingress(config)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await ingress.open()
        try:
            yield
        finally:
            await ingress.close()

    async def models(request: HttpRequest) -> Response:
        known = {m["id"] for m in ingress.listed}
        extra = [
            {"id": name, "object": "model", "parent": next(iter(ingress.bases), None)}
            for name in ingress.adapters
            if name not in known
        ]
        return JSONResponse({"object": "list", "data": [*ingress.listed, *extra]})

    async def metrics(request: HttpRequest) -> Response:
        return Response(ingress.metrics.text(), media_type="text/plain; version=0.0.4")

    async def state(request: HttpRequest) -> Response:
        return JSONResponse({"upstreams": [g.state() for g in ingress.gateways]})

    async def health(request: HttpRequest) -> Response:
        up = all(g.up for g in ingress.gateways)
        admitting = all(g.admitting for g in ingress.gateways)
        return JSONResponse({"up": up, "admitting": admitting}, 200 if up and admitting else 503)

    class Passed:
        """A class, so that Starlette takes it for an ASGI application."""

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await ingress(scope, receive, send)

    app = Starlette(
        routes=[
            *(Route(path, Passed(), methods=["POST"]) for path in ROUTES),
            Route("/v1/models", models),
            Route("/metrics", metrics),
            Route("/climb/state", state),
            Route("/healthz", health),
        ],
        lifespan=lifespan,
    )
    app.state.ingress = ingress
    return app


def serve(config: ClimbConfig, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C: then refuse what waits, finish what engines have, and end."""
    import uvicorn

    app = create_app(config)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            app.state.ingress.stop_admitting()
            super().handle_exit(sig, frame)

    settings = uvicorn.Config(
        app, host=host, port=port, log_level="warning", access_log=False, lifespan="on"
    )
    Server(settings).run()
