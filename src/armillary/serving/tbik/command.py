"""``armillary tbik``: audit a model, generate on several ranks, compare two runs bit by bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from armillary import output
from armillary.errors import require

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL_DIR", help="The folder of a model; 'embedded': the built-in one."
    ),
]
PromptFile = Annotated[
    Path,
    typer.Option(
        "--prompts", help='A .jsonl of {"prompt": text} or {"ids": [..]} a line, or .txt.'
    ),
]
Dtype = Annotated[str, typer.Option(help="Type of the weights: bfloat16 or float32.")]
Transport = Annotated[str, typer.Option(help="How ranks talk: shm or gloo.")]


@app.callback()
def root() -> None:
    """The same bits out of a language model on any number of ranks, and a check of any model.

    Example: armillary tbik audit MODEL_DIR --prompts prompts.jsonl --tp 1,2,3 --batch 1,8 -o audit/
    """


@app.command()
def audit(
    model: Model,
    prompts: PromptFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder for the report.")],
    tp: Annotated[str, typer.Option(help="Numbers of ranks, by commas.")] = "1,2,4",
    batch: Annotated[str, typer.Option(help="Prompts together, by commas.")] = "1,4,16",
    chunk: Annotated[str, typer.Option(help="Tokens of a prefill chunk; 0: all at once.")] = "0",
    backend: Annotated[str, typer.Option(help="tbik, torch, layercast or double.")] = "tbik",
    tokens: Annotated[int, typer.Option(min=1, help="Greedy tokens a prompt.")] = 16,
    dtype: Dtype = "bfloat16",
    transport: Transport = "shm",
) -> None:
    """Run prompts in every setting and say whether outputs differ, and in which layer first.

    Writes audit.json and audit.csv. It exits 0 whatever it finds.

    Example: armillary tbik audit MODEL_DIR --prompts p.jsonl --tp 1,2,3,4,8 --batch 1,16 -o report/
    """
    _need_extra()
    from armillary.serving.tbik.audit import audit as run

    ranks, rows, chunks = (_numbers(n, v) for n, v in (("tp", tp), ("batch", batch),
                                                       ("chunk", chunk)))  # fmt: skip
    folder, ids, _ = _read(model, prompts)
    report = run(
        folder, ids, tp=ranks, batch=rows, chunk=chunks, dtype=_dtype(dtype), backend=backend,
        new_tokens=tokens, transport=transport,
        bar=lambda groups: output.progress(groups, "numbers of ranks"),
    )  # fmt: skip
    output.write_json(out / "audit.json", report.to_dict())
    columns = ["setting", "prompts_differing", "prompts_with_other_tokens", "max_dlogprob",
               "first_layer", "nan_or_infinite_logits"]  # fmt: skip
    output.write_csv(
        out / "audit.csv",
        columns,
        [
            [f.setting, f.differing, f.token_differing, f.max_dlogprob, f.first_layer, f.unfinite]
            for f in report.findings
        ],
    )
    several = sum(n > 1 for n in report.distinct)
    found = (
        "every prompt has one output"
        if report.invariant
        else f"{several} of {report.prompts} prompts have several outputs (up to "
        f"{max(report.distinct)}); the first layer that differs: {report.first_layer or 'none'}"
    )
    output.console().print(f"{len(report.findings)} settings, {backend}: {found} -> {out}")


@app.command()
def generate(
    model: Model,
    prompts: PromptFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="Answers (.jsonl).")],
    tp: Annotated[int, typer.Option(min=1, help="Ranks.")] = 1,
    batch: Annotated[int, typer.Option(min=1, help="Prompts together.")] = 8,
    chunk: Annotated[int, typer.Option(min=0, help="Tokens of a prefill chunk.")] = 0,
    backend: Annotated[str, typer.Option(help="tbik, torch, layercast or double.")] = "tbik",
    tokens: Annotated[int, typer.Option(min=1, help="Greedy tokens a prompt.")] = 32,
    dtype: Dtype = "bfloat16",
    transport: Transport = "shm",
) -> None:
    """Greedy answers on several ranks; each line carries the SHA-256 of its logits.

    Example: armillary tbik generate MODEL_DIR --tp 4 --prompts prompts.jsonl -o out.jsonl
    """
    _need_extra()
    from armillary.serving.tbik.audit import run_settings
    from armillary.serving.tbik.generation import Setting

    folder, ids, tokenizer = _read(model, prompts)
    kind = str(_dtype(dtype)).removeprefix("torch.")
    name = "naive" if backend == "torch" else backend
    setting = Setting(tp, batch, chunk, transport=transport)
    output.console().note(f"generating {len(ids)} answers on {tp} ranks")
    answers = run_settings(folder, ids, tokens, [setting], backend=name, dtype=kind)[0]
    lines = []
    for prompt, answer in zip(ids, answers, strict=True):
        row: dict[str, Any] = {
            "prompt_ids": prompt,
            "tokens": answer.tokens.tolist(),
            "logprobs": [float(p) for p in answer.logprobs],
            "sha256": answer.sha256,
        }
        if tokenizer is not None:
            row["text"] = tokenizer.decode(answer.tokens.tolist())
        lines.append(json.dumps(row, ensure_ascii=False))
    output.write_text(out, "\n".join(lines) + "\n")
    output.console().print(f"{len(lines)} answers of {tokens} tokens on {tp} ranks -> {out}")


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A .jsonl that `generate` wrote.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same prompts.")],
) -> None:
    """Compare two runs: which answers differ in a bit, and from which token on.

    Example: armillary tbik diff a.jsonl b.jsonl
    """
    a, b = (_answers(path) for path in (first, second))
    if [row["prompt_ids"] for row in a] != [row["prompt_ids"] for row in b]:
        raise ValueError(f"{first} and {second} are not of the same prompts in the same order")
    bits = tokens = 0
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x["sha256"] == y["sha256"]:
            continue
        bits += 1
        pairs = zip(x["tokens"], y["tokens"], strict=False)
        step = next((t for t, (u, v) in enumerate(pairs) if u != v), None)
        tokens += step is not None
        where = "the same tokens" if step is None else f"other tokens from {step} on"
        gap = max(
            (abs(u - v) for u, v in zip(x["logprobs"][:step], y["logprobs"][:step], strict=False)),
            default=0.0,
        )
        output.console().print(f"prompt {i}: {where}, log-probabilities differ by {gap:.3g} before")
    output.console().print(
        f"{len(a)} answers: {len(a) - bits} equal in every bit, {bits} not, "
        f"{tokens} with other tokens"
    )


def _answers(path: Path) -> list[dict[str, Any]]:
    rows = _lines(path)
    for number, row in enumerate(rows, 1):
        missing = {"prompt_ids", "tokens", "logprobs", "sha256"} - set(row)
        if missing:
            raise ValueError(f"{path}, line {number}: {sorted(missing)} missing; is it generate's?")
    return rows


def _lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: no JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: an object is needed, not {line[:40]!r}")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} is empty: one line a prompt is needed")
    return rows


def _read(model: str, prompts: Path) -> tuple[str, list[list[int]], Any]:
    """The model's folder, prompts as token ids, and its tokenizer if texts were given."""
    if prompts.suffix == ".txt":
        texts: list[Any] = [t for t in prompts.read_text("utf-8").splitlines() if t.strip()]
        if not texts:
            raise ValueError(f"{prompts} is empty: one line a prompt is needed")
    else:
        texts = []
        for number, row in enumerate(_lines(prompts), 1):
            if not isinstance(row.get("prompt"), str) and not row.get("ids"):
                raise ValueError(f'{prompts}, line {number}: "prompt" (text) or "ids" is needed')
            texts.append(row.get("ids") or row["prompt"])
    folder = model
    if model == "embedded":
        from armillary import models

        folder = str(models.embedded().folder)
    elif not (Path(model) / "config.json").is_file():
        raise FileNotFoundError(f"MODEL_DIR {model!r} has no config.json: give a model's folder")
    tokenizer = None
    if any(isinstance(text, str) for text in texts):
        transformers: Any = require("transformers", what="tbik", extra="serving")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = [tokenizer(t)["input_ids"] if tokenizer and isinstance(t, str) else t for t in texts]
    return folder, ids, tokenizer


def _numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--{name} {text!r}: give whole numbers by commas, such as 1,2,4"
        ) from None


def _dtype(name: str) -> Any:
    import torch

    if name not in ("bfloat16", "float32"):
        raise ValueError(f"--dtype {name!r}: it must be bfloat16 or float32")
    return getattr(torch, name)


def _need_extra() -> None:
    for module in ("torch", "transformers", "safetensors"):
        require(module, what="tbik", extra="serving")
