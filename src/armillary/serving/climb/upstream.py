"""One engine over HTTP: what it holds, how an adapter gets in and out, how a request is sent on.

The engine is taken to be vLLM's OpenAI server: ``/v1/models``, ``/metrics``
(``vllm:lora_requests_info``), and with ``VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`` the endpoints
``/v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from armillary.serving.climb.config import AdapterConfig, LoadBy

if TYPE_CHECKING:
    import aiohttp

#: Headers of one hop, which are not passed on (RFC 9110, 7.6.1), and what aiohttp sets itself.
HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade host content-length".split()
)
_MAX_LORA = re.compile(r'^vllm:lora_requests_info\{[^}]*max_lora="(\d+)"', re.MULTILINE)


class UpstreamError(RuntimeError):
    """The engine did not do what it was asked for."""


class Upstream:
    """An engine.

    Args:
        address: ``http://host:port``.
        session: of the client; its pool must be as large as the requests in flight.
        adapters: by name.
        load_by: how adapters are loaded.
        load_seconds: after which a load counts as failed.
        base_model: name of the model without an adapter, for warm-ups and checks.
    """

    def __init__(
        self,
        address: str,
        session: aiohttp.ClientSession,
        adapters: Mapping[str, AdapterConfig],
        load_by: LoadBy,
        load_seconds: float,
    ) -> None:
        self.address, self.session = address.rstrip("/"), session
        self.adapters, self.load_by, self.load_seconds = adapters, load_by, load_seconds

    async def models(self) -> list[dict[str, Any]]:
        """What the engine lists."""
        async with self.session.get(f"{self.address}/v1/models", timeout=_timeout(10)) as answer:
            if answer.status != 200:
                raise UpstreamError(f"/v1/models answers {answer.status}")
            return (await answer.json())["data"]

    async def alive(self) -> bool:
        """Whether it answers."""
        import aiohttp

        try:
            async with self.session.get(f"{self.address}/health", timeout=_timeout(5)) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def slots(self) -> int | None:
        """How many adapters it holds at once, by its metrics; None if they do not say."""
        import aiohttp

        try:
            async with self.session.get(f"{self.address}/metrics", timeout=_timeout(10)) as answer:
                found = _MAX_LORA.search(await answer.text())
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return int(found[1]) if found else None

    async def load(self, name: str) -> None:
        """Load an adapter.

        Raises:
            UpstreamError: the engine refuses, or takes too long.
        """
        if self.load_by == "endpoint":
            path = self.adapters[name].path
            if path is None:
                raise UpstreamError("no path of it is known")
            await self._post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        else:
            await self._post(
                "/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1, "temperature": 0}
            )

    async def unload(self, name: str) -> None:
        """Unload an adapter (only the endpoint can: else the engine replaces one by itself)."""
        if self.load_by == "endpoint":
            await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def _post(self, path: str, content: dict[str, Any]) -> None:
        import aiohttp

        try:
            async with self.session.post(
                self.address + path, json=content, timeout=_timeout(self.load_seconds)
            ) as answer:
                text = await answer.text()
                if answer.status != 200:
                    raise UpstreamError(f"{path} answers {answer.status}: {text[:200]}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamError(f"{path}: {type(error).__name__} {error}") from error

    async def send(
        self, path: str, headers: list[tuple[bytes, bytes]], body: bytes, seconds: float
    ) -> aiohttp.ClientResponse:
        """Send a request on, as it came; the answer is open."""
        passed = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in headers if k not in HOP]
        return await self.session.post(
            self.address + path, data=body, headers=passed, timeout=_timeout(seconds),
            allow_redirects=False,
        )  # fmt: skip


def _timeout(seconds: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, 10))
