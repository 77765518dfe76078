"""Traffic sent over HTTP, and what came of it: for `replay`, calibration and evidence."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import time
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import aiohttp
    import pandas as pd

T = TypeVar("T")

#: A word that is about one token in most vocabularies.
WORD = "word "


@dataclasses.dataclass
class Sent:
    """One request's times, in seconds since the replay began; NaN where it did not come so far.

    Attributes:
        due: when it was to be sent.
        sent: when it was.
        first: when the first byte of the answer's body came.
        done: when the last came.
        status: of HTTP; 0 where the connection failed.
        waited_ms: what the ingress says that it waited there; NaN if nothing is said.
        tokens: events of the stream that came.
        token_times: of each event, if kept.
    """

    due: float
    sent: float = float("nan")
    first: float = float("nan")
    done: float = float("nan")
    status: int = 0
    waited_ms: float = float("nan")
    tokens: int = 0
    token_times: list[float] = dataclasses.field(default_factory=list)


async def replay(
    trace: pd.DataFrame,
    address: str,
    *,
    base_model: str,
    keep_times: bool = False,
    timeout: float = 600.0,
    most_seconds: float | None = None,
    headers: bool = True,
    progress: Any = None,
) -> list[Sent]:
    """Send a trace's requests when they are due, whatever became of the earlier ones (open loop).

    Args:
        trace: see `armillary.serving.climb.traces.read_trace`.
        address: ``http://host:port`` of an OpenAI-compatible server.
        base_model: sent where the adapter is empty.
        keep_times: whether the time of each event is kept.
        timeout: seconds for one request.
        most_seconds: requests that are due later are not sent.
        headers: whether the class is sent as ``x-armillary-priority``.
        progress: called with each finished request.

    Returns:
        What came of each, in the trace's order.
    """
    import aiohttp

    columns = ("t_s", "adapter", "class", "prompt_tokens", "output_tokens")
    rows = list(zip(*(trace[name].tolist() for name in columns), strict=True))
    if most_seconds is not None:
        rows = [row for row in rows if row[0] <= most_seconds]
    connector = aiohttp.TCPConnector(limit=0)
    limit = aiohttp.ClientTimeout(total=timeout)
    results = [Sent(row[0]) for row in rows]
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
        start = time.perf_counter()
        tasks = []
        for result, (due, adapter, klass, prompt, output) in zip(results, rows, strict=True):
            delay = due - (time.perf_counter() - start)
            if delay > 0:
                await asyncio.sleep(delay)
            content = {
                "model": adapter or base_model,
                "prompt": WORD * max(1, int(prompt)),
                "max_tokens": max(1, int(output)),
                "stream": True,
                "temperature": 0,
                "ignore_eos": True,
            }
            given = {"x-armillary-priority": klass} if headers else {}
            job = _one(session, f"{address}/v1/completions", content, given, result, start,
                       keep_times)  # fmt: skip
            task = asyncio.create_task(job)
            if progress is not None:
                task.add_done_callback(progress)
            tasks.append(task)
        await asyncio.gather(*tasks)
    return results


async def _one(
    session: aiohttp.ClientSession,
    url: str,
    content: dict[str, Any],
    headers: dict[str, str],
    result: Sent,
    start: float,
    keep_times: bool,
) -> None:
    import aiohttp

    result.sent = time.perf_counter() - start
    try:
        async with session.post(url, json=content, headers=headers) as answer:
            result.status = answer.status
            result.waited_ms = float(answer.headers.get("x-armillary-queue-ms", "nan"))
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                now = time.perf_counter() - start
                if not result.tokens:
                    result.first = now
                result.tokens += 1
                if keep_times:
                    result.token_times.append(now)
            result.done = time.perf_counter() - start
    except (aiohttp.ClientError, TimeoutError, OSError):
        result.status = 0


def to_table(trace: pd.DataFrame, results: Sequence[Sent]) -> pd.DataFrame:
    """One row a request, with the trace's columns."""
    import pandas as pd

    fields = ("due", "sent", "first", "done", "status", "waited_ms", "tokens")
    table = trace.iloc[: len(results)].reset_index(drop=True).copy()
    for name in fields:
        table[name] = [getattr(result, name) for result in results]
    table["ttft"] = table["first"] - table["due"]
    return pd.DataFrame(table)


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, also where this thread's event loop runs, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
