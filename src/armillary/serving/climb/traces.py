"""Traffic of many adapters: read from a file, or drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("t_s", "adapter", "class", "prompt_tokens", "output_tokens")


def multi_lora_trace(
    seconds: float,
    rate: float,
    working_set: int,
    *,
    vip_adapters: int = 2,
    vip_share: float = 0.3,
    skew: float = 0.0,
    output_tokens: float = 24,
    prompt_tokens: float = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """Poisson arrivals over a working set of adapters; some adapters are VIP.

    Args:
        seconds: length.
        rate: requests a second.
        working_set: adapters in use, VIP ones among them.
        vip_adapters: how many are VIP: ``vip-0``, ….
        vip_share: share of requests that are VIP's, evenly over its adapters.
        skew: background adapters are drawn with weights rank^-skew (Zipf); 0 is even.
        output_tokens: mean length of answers (geometric, at least 1).
        prompt_tokens: mean length of prompts (geometric, at least 1).
        seed: of the draws.

    Returns:
        One row a request, see `read_trace`.

    Raises:
        ValueError: a figure is out of range.
    """
    if not (seconds > 0 and rate > 0 and output_tokens >= 1 and prompt_tokens >= 1):
        raise ValueError(
            f"seconds={seconds}, rate={rate}, output_tokens={output_tokens}, "
            f"prompt_tokens={prompt_tokens}: expected > 0, > 0, >= 1, >= 1"
        )
    if not (0 <= vip_share <= 1 and 0 <= vip_adapters <= working_set and working_set >= 1):
        raise ValueError(
            f"working_set={working_set}, vip_adapters={vip_adapters}, vip_share={vip_share}: "
            "expected at least one adapter, at most all of them VIP, and a share in [0, 1]"
        )
    import pandas as pd

    rng = np.random.default_rng(seed)
    count = rng.poisson(rate * seconds)
    times = np.sort(rng.uniform(0, seconds, count))
    names, classes = draw_adapters(
        count, working_set, vip_adapters=vip_adapters, vip_share=vip_share, skew=skew, rng=rng
    )
    return pd.DataFrame(
        {
            "t_s": times,
            "adapter": names,
            "class": classes,
            "prompt_tokens": rng.geometric(1 / prompt_tokens, count),
            "output_tokens": rng.geometric(1 / output_tokens, count),
        }
    )


def draw_adapters(
    count: int,
    working_set: int,
    *,
    vip_adapters: int,
    vip_share: float,
    skew: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Adapter names and classes of ``count`` requests."""
    background = working_set - vip_adapters
    if vip_adapters == 0:
        vip_share = 0.0
    elif background == 0:
        vip_share = 1.0
    vip = rng.random(count) < vip_share
    names = np.empty(count, dtype=object)
    if vip_adapters:
        names[vip] = [f"vip-{i}" for i in rng.integers(0, vip_adapters, int(vip.sum()))]
    if background:
        weights = np.arange(1, background + 1, dtype=float) ** -skew
        drawn = rng.choice(background, int((~vip).sum()), p=weights / weights.sum())
        names[~vip] = [f"bg-{i}" for i in drawn]
    return names, np.where(vip, "vip", "background").astype(object)


def read_trace(path: str | Path) -> pd.DataFrame:
    """A CSV of ``t_s, adapter, class, prompt_tokens, output_tokens``.

    Args:
        path: the file. An empty ``adapter`` is the base model; ``class`` is ``vip`` or
            ``background``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a column is missing, or a line is out of order or out of range (it is named).
    """
    import pandas as pd

    table = pd.read_csv(path, dtype={"adapter": str, "class": str}, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise ValueError(f"{str(path)!r} lacks the columns {', '.join(missing)}")
    for name in ("t_s", "prompt_tokens", "output_tokens"):
        numbers = np.asarray(pd.to_numeric(table[name], errors="coerce"), dtype=float)
        wrong = ~np.isfinite(numbers) | (numbers < 0)
        _refuse(path, table, wrong, name, "a number >= 0")
        table[name] = numbers
    _refuse(path, table, ~table["class"].isin(["vip", "background"]).to_numpy(), "class",
            "vip or background")  # fmt: skip
    falls = np.r_[False, np.diff(table["t_s"].to_numpy()) < 0]
    _refuse(path, table, falls, "t_s", "times that do not fall")
    return pd.DataFrame(table[list(COLUMNS)])


def _refuse(
    path: str | Path, table: pd.DataFrame, wrong: np.ndarray, name: str, expected: str
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{str(path)!r}, line {row + 2}: {name} is {table[name].iloc[row]!r}; "
            f"expected {expected}"
        )


def azure_trace(
    path: str | Path,
    working_set: int,
    *,
    rate: float | None = None,
    vip_adapters: int = 2,
    vip_share: float = 0.3,
    skew: float = 0.9,
    most_output: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """The arrivals and lengths of the Azure LLM inference trace; adapters are drawn (synthetic).

    Args:
        path: ``AzureLLMInferenceTrace_conv.csv`` or ``…_code.csv`` (TIMESTAMP, ContextTokens,
            GeneratedTokens).
        working_set: adapters in use.
        rate: requests a second that times are stretched to; None: as they are.
        vip_adapters: of these are VIP.
        vip_share: of requests.
        skew: Zipf's exponent of background adapters.
        most_output: longer answers are cut to this; None: none is.
        seed: of the draws of adapters.
    """
    import pandas as pd

    given = pd.read_csv(path)
    missing = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} - set(given)
    if missing:
        raise ValueError(f"{str(path)!r} lacks the columns {', '.join(sorted(missing))}")
    times = pd.to_datetime(given["TIMESTAMP"], format="ISO8601")
    t = (times - times.min()).dt.total_seconds().to_numpy()
    order = np.argsort(t, kind="stable")
    t = t[order]
    if rate is not None:
        t = t * (len(t) / max(t[-1], 1e-9)) / rate
    rng = np.random.default_rng(seed)
    names, classes = draw_adapters(
        len(t), working_set, vip_adapters=vip_adapters, vip_share=vip_share, skew=skew, rng=rng
    )
    output = given["GeneratedTokens"].to_numpy()[order]
    return pd.DataFrame(
        {
            "t_s": t,
            "adapter": names,
            "class": classes,
            "prompt_tokens": given["ContextTokens"].to_numpy()[order],
            "output_tokens": np.minimum(output, most_output or output.max()),
        }
    )
