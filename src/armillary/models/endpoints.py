"""A chat with an OpenAI-compatible endpoint, through the ``openai`` client.

The client waits and tries again after 408, 409, 429, 5xx and dropped connections, with growing
pauses or as long as the Retry-After of the endpoint says. An answer that has begun to stream is not
asked for again: half an answer is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from armillary.errors import require
from armillary.models import conversation
from armillary.models.conversation import CannotScore, Completion, Delta, Messages, Request, Usage
from armillary.models.option_scores import OptionScores


class EndpointError(RuntimeError):
    """An endpoint could not be reached, refused, or answered what is no completion.

    Attributes:
        endpoint: its address, without user, password, query and key.
        status: the HTTP status, or None where there was none.
    """

    def __init__(self, endpoint: str, problem: str, status: int | None = None) -> None:
        self.endpoint, self.status = endpoint, status
        super().__init__(f"{endpoint}: {problem}")


def public_address(url: str) -> str:
    """The address that may be shown: without user, password, query and fragment.

    Raises:
        ValueError: ``url`` is no http or https address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("url: give an http or https address, such as http://localhost:8000/v1")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


class EndpointChat:
    """A model behind an endpoint; see ``armillary.models.chat`` for the arguments."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 3,
    ) -> None:
        self.endpoint = public_address(url)
        if not timeout > 0:
            raise ValueError(f"timeout={timeout}: give a positive number of seconds")
        if retries < 0:
            raise ValueError(f"retries={retries}: give 0 or more")
        self.name, self.usage = model, Usage()
        self.digest = f"{self.endpoint} {model}"
        key = api_key or os.environ.get("OPENAI_API_KEY")
        self._secrets = [secret for secret in (key, urlsplit(url).password) if secret]
        self._openai: Any = require("openai", what="an endpoint", extra="models")
        settings = {
            "base_url": url,
            "api_key": key or "none",
            "timeout": timeout,
            "max_retries": retries,
        }
        self._client = self._openai.OpenAI(**settings)
        self._settings = settings

    def complete(self, messages: Messages, **settings: Any) -> Completion:
        """The whole answer; see ``Chat.complete``.

        Raises:
            EndpointError: the endpoint could not be reached after all attempts, refused, or its
                answer is no completion.
        """
        asked = conversation.request(messages, **settings)
        with self._told():
            return self._whole(self._client.chat.completions.create(**self._body(asked)))

    def stream(self, messages: Messages, **settings: Any) -> Iterator[Delta]:
        """The answer piece by piece; see ``Chat.stream``.

        Raises:
            EndpointError: as for ``complete``, and where the stream ends before the answer does.
        """
        asked = conversation.request(messages, **settings)
        return self._pieces(asked)

    def _pieces(self, asked: Request) -> Iterator[Delta]:
        gathered = _Gathered()
        with self._told():
            with self._client.chat.completions.create(**self._body(asked, True)) as chunks:
                for chunk in chunks:
                    if text := gathered.take(chunk):
                        yield Delta(text)
            done = self._ended(gathered)
        yield Delta("", done)

    async def acomplete(self, messages: Messages, **settings: Any) -> Completion:
        """``complete`` for asynchronous code, without threads."""
        asked = conversation.request(messages, **settings)
        with self._told():
            async with self._openai.AsyncOpenAI(**self._settings) as client:
                return self._whole(await client.chat.completions.create(**self._body(asked)))

    async def astream(self, messages: Messages, **settings: Any) -> AsyncIterator[Delta]:
        """``stream`` for asynchronous code, without threads."""
        asked = conversation.request(messages, **settings)
        gathered = _Gathered()
        with self._told():
            async with self._openai.AsyncOpenAI(**self._settings) as client:
                async for chunk in await client.chat.completions.create(**self._body(asked, True)):
                    if text := gathered.take(chunk):
                        yield Delta(text)
            done = self._ended(gathered)
        yield Delta("", done)

    def score_options(
        self, prompt: Messages, options: Sequence[str], *, calibrate: Sequence[Messages] = ()
    ) -> OptionScores:
        """Not offered: a chat endpoint gives no log-probabilities of text it did not write.

        Raises:
            CannotScore: always.
        """
        raise CannotScore(
            f"{self.endpoint} gives no log-probabilities of given options; score them with a model "
            "in process: models.chat(model='/path/of/a/model')"
        )

    def _body(self, asked: Request, stream: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": asked.conversation,
            "max_tokens": asked.max_tokens,
            "temperature": asked.temperature,
        }
        if asked.stop:
            body["stop"] = list(asked.stop)
        if asked.seed is not None:
            body["seed"] = asked.seed
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def _whole(self, answer: Any) -> Completion:
        try:
            choice = answer.choices[0]
            text, reason = choice.message.content, choice.finish_reason
            used = answer.usage
            read, written = (used.prompt_tokens, used.completion_tokens) if used else (0, 0)
        except (AttributeError, IndexError, TypeError):
            raise self._error("the answer is JSON of another shape than a completion") from None
        done = Completion(text or "", read or 0, written or 0, reason or "stop", self.name)
        self.usage.add(done)
        return done

    def _ended(self, gathered: _Gathered) -> Completion:
        if gathered.reason is None:
            raise self._error(f"the stream ended after {len(gathered.text)} characters, unfinished")
        done = Completion(gathered.text, *gathered.tokens, gathered.reason, self.name)
        self.usage.add(done)
        return done

    def _error(self, problem: str, status: int | None = None) -> EndpointError:
        for secret in self._secrets:
            problem = problem.replace(secret, "[key]")
        return EndpointError(self.endpoint, problem, status)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the client raises into one kind of error that never shows the key."""
        openai = self._openai
        try:
            yield
        except EndpointError:
            raise
        except openai.APITimeoutError:
            seconds, tries = self._settings["timeout"], self._settings["max_retries"] + 1
            problem = f"no answer within {seconds:g} s, tried {tries} times"
            raise self._error(problem) from None
        except openai.APIStatusError as error:
            problem = f"HTTP {error.status_code}: {_reason(error)}"
            raise self._error(problem, error.status_code) from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            tries = self._settings["max_retries"] + 1
            problem = f"connection failed, tried {tries} times: {cause}"
            raise self._error(problem) from None
        except (openai.APIError, ValueError) as error:
            problem = f"the answer cannot be read ({type(error).__name__}: {error})"
            raise self._error(problem) from None
        except Exception as error:
            # What the transport raises while a stream is being read is not wrapped by the client.
            if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore2"):
                raise
            problem = f"the connection broke while the answer arrived ({error})"
            raise self._error(problem) from None


class _Gathered:
    """What a stream has brought so far."""

    def __init__(self) -> None:
        self.text, self.reason, self.tokens = "", None, (0, 0)

    def take(self, chunk: Any) -> str:
        """Add a chunk and return its text."""
        if used := getattr(chunk, "usage", None):
            self.tokens = (used.prompt_tokens or 0, used.completion_tokens or 0)
        text = ""
        for choice in (getattr(chunk, "choices", None) or [])[:1]:
            self.reason = choice.finish_reason or self.reason
            text = (choice.delta.content if choice.delta else None) or ""
        self.text += text
        return text


def _reason(error: Any) -> str:
    """What an endpoint says of its refusal, in at most 300 characters of one line."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    said = body.get("message") if isinstance(body, dict) else body
    return " ".join(str(said or error.message).split())[:300]
