"""A chat over HTTP, against a server on this machine that behaves badly in every way asked for."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from armillary import models
from armillary.errors import MissingExtra

pytest.importorskip("openai")

KEY = "sk-very-secret"
Behaviour = Callable[["Handler"], None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        self.server.times.append(time.monotonic())
        behaviours = self.server.behaviours
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            behaviour(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def send(self, status: int, text: str, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        headers = {"Content-Type": "application/json", **headers}
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def drop(self) -> None:
        """End the connection at once, with a reset."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True

    def events(self, *events: str, end: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if end:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.flush()
            time.sleep(0.05)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours: list[Behaviour] = []
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Dropped connections are meant."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(5)


def answer(text: str = "Paris") -> str:
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        }
    )


def chunk(text: str, reason: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps({**base, "choices": [choice]})


def used() -> str:
    base = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return json.dumps({**base, "choices": [], "usage": usage})


def good(handler: Handler) -> None:
    handler.send(200, answer())


def chat(server: Server, **settings: Any) -> models.Chat:
    return models.chat(server.url, "m", api_key=KEY, **{"timeout": 5.0, "retries": 2, **settings})


PARIS = models.Completion("Paris", 7, 2, "stop", "m")


def test_the_request_holds_what_was_asked(server):
    server.behaviours = [good]
    talk = chat(server)
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The capital of France?"},
    ]
    given = talk.complete(conversation, max_tokens=9, temperature=0.5, stop=["\n"], seed=4)
    assert given == PARIS
    assert server.bodies == [
        {
            "model": "m",
            "messages": conversation,
            "max_tokens": 9,
            "temperature": 0.5,
            "stop": ["\n"],
            "seed": 4,
        }
    ]
    talk.complete("again")
    assert (talk.usage.answers, talk.usage.prompt_tokens, talk.usage.completion_tokens) == (
        2,
        14,
        4,
    )
    assert isinstance(talk, models.Chat)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda handler: handler.send(429, '{"error": {"message": "busy"}}', Retry_After="0.01"),
        lambda handler: handler.send(500, "oh", Retry_After="0.01"),
        lambda handler: handler.send(503, "oh", Retry_After="0.01"),
        lambda handler: handler.drop(),
    ],
    ids=["429", "500", "503", "dropped"],
)
def test_trouble_that_passes_is_waited_out(server, trouble):
    server.behaviours = [trouble, good]
    assert chat(server).complete("?") == PARIS
    assert len(server.bodies) == 2


def test_retry_after_is_honoured(server):
    server.behaviours = [lambda handler: handler.send(429, "{}", Retry_After="1"), good]
    assert chat(server).complete("?") == PARIS
    assert server.times[1] - server.times[0] >= 1.0  # without it the first pause is 0.5 s at most


def refused(handler: Handler) -> None:
    handler.send(
        500, json.dumps({"error": {"message": f"the key {KEY} broke"}}), Retry_After="0.01"
    )


@pytest.mark.parametrize(
    ("behaviour", "told", "status", "attempts"),
    [
        (refused, r"HTTP 500: the key \[key\] broke", 500, 3),
        (lambda h: h.send(429, "{}", Retry_After="0.01"), "HTTP 429", 429, 3),
        (lambda h: h.send(401, '{"error": {"message": "who?"}}'), "HTTP 401: who", 401, 1),
        (lambda h: h.send(404, '{"error": {"message": "no m"}}'), "HTTP 404: no m", 404, 1),
        (lambda h: h.send(200, '{"choices": [{"mess'), "cannot be read", None, 1),
        (lambda h: h.send(200, "[1, 2]"), "another shape", None, 1),
        (lambda h: h.send(200, '{"choices": []}'), "another shape", None, 1),
        (lambda h: h.send(200, "null"), "another shape", None, 1),
        (lambda h: h.send(200, "<html>", Content_Type="text/html"), "another shape", None, 1),
    ],
    ids=["500", "429", "401", "404", "cut", "list", "empty", "null", "page"],
)
def test_trouble_that_stays_is_told_without_the_key(server, behaviour, told, status, attempts):
    server.behaviours = [behaviour]
    talk = chat(server)
    with pytest.raises(models.EndpointError, match=told) as caught:
        talk.complete("?")
    assert str(caught.value).startswith(server.url)
    assert KEY not in str(caught.value)
    assert caught.value.status == status
    assert len(server.bodies) == attempts
    assert talk.usage.answers == 0


def test_retries_are_bounded_when_connections_drop(server):
    server.behaviours = [lambda handler: handler.drop()]
    with pytest.raises(models.EndpointError, match="connection failed, tried 2 times"):
        chat(server, retries=1).complete("?")
    assert len(server.bodies) == 2


def test_a_slow_endpoint_is_given_up(server):
    gone = threading.Event()
    server.behaviours = [lambda handler: (gone.wait(5), None)[1]]
    with pytest.raises(models.EndpointError, match=r"no answer within 0\.2 s, tried 1 times"):
        chat(server, timeout=0.2, retries=0).complete("?")
    gone.set()


def test_nobody_listening_is_told(server):
    url = server.url
    server.server_close()
    talk = models.chat(url, "m", retries=0)
    with pytest.raises(models.EndpointError, match="connection failed"):
        talk.complete("?")


def streams(*events: str, end: bool = True) -> Behaviour:
    return lambda handler: handler.events(*events, end=end)


def test_a_stream_arrives_piece_by_piece(server):
    server.behaviours = [streams(chunk("Par"), chunk("is"), chunk("", "stop"), used(), "[DONE]")]
    talk = chat(server)
    pieces = list(talk.stream("?"))
    assert [piece.text for piece in pieces] == ["Par", "is", ""]
    assert pieces[-1].done == PARIS
    assert talk.usage.completion_tokens == 2
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        (streams(chunk("Par"), "[DONE]"), "ended after 3 characters"),
        (streams(chunk("Par")), "ended after 3 characters"),
        (streams(chunk("Par"), end=False), "broke while the answer arrived|connection failed"),
        (streams(chunk("Par"), '{"choices": [{"del'), "cannot be read"),
        (streams(chunk("Par"), '{"error": {"message": "out of memory"}}'), "out of memory"),
    ],
    ids=["no reason", "no end", "dropped", "cut", "error"],
)
def test_half_a_stream_is_an_error_and_is_not_asked_for_again(server, behaviour, told):
    server.behaviours = [behaviour]
    talk = chat(server)
    arrived = []
    with pytest.raises(models.EndpointError, match=told):
        arrived.extend(piece.text for piece in talk.stream("?"))
    assert len(server.bodies) == 1
    assert talk.usage.answers == 0


def test_asynchronous_twins_agree(server):
    server.behaviours = [
        lambda handler: handler.send(500, "oh", Retry_After="0.01"),
        good,
        streams(chunk("Par"), chunk("is", "stop"), used(), "[DONE]"),
        refused,
    ]
    talk = chat(server)

    async def all_three() -> tuple[models.Completion, list[models.Delta]]:
        whole = await talk.acomplete("?")
        pieces = [piece async for piece in talk.astream("?")]
        with pytest.raises(models.EndpointError, match="HTTP 500"):
            await talk.acomplete("?")
        return whole, pieces

    whole, pieces = asyncio.run(all_three())
    assert whole == PARIS
    assert [piece.text for piece in pieces] == ["Par", "is", ""]
    assert pieces[-1].done == PARIS


def test_options_cannot_be_scored(server):
    with pytest.raises(models.CannotScore, match="with a model in process"):
        chat(server).score_options("x", ["a"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"url": "localhost:8000", "model": "m"}, "http or https"),
        ({"url": "http://localhost:port/v1", "model": "m"}, "http or https"),
        ({"url": "http://localhost:8000/v1"}, "name the model"),
        ({"url": "http://localhost:8000/v1", "model": "m", "timeout": 0}, "timeout=0"),
        ({"url": "http://localhost:8000/v1", "model": "m", "retries": -1}, "retries=-1"),
    ],
)
def test_bad_settings_are_told(arguments, told):
    with pytest.raises(ValueError, match=told):
        models.chat(**arguments)


def test_a_missing_client_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'armillary\[models\]'"):
        models.chat("http://localhost:8000/v1", "m")


def test_the_word_none_survives_without_a_key(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.behaviours = [lambda h: h.send(400, '{"error": {"message": "none of it"}}')]
    with pytest.raises(models.EndpointError, match="HTTP 400: none of it"):
        models.chat(server.url, "m").complete("?")


def test_the_address_that_is_shown_holds_no_secret():
    talk = models.chat("http://user:word@host.example:8000/v1/?token=abc", "m")
    assert talk.digest == "http://host.example:8000/v1 m"
