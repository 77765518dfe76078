"""``armillary gemq``: measure experts, plan their widths, quantise, evaluate, make a small MoE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from armillary import output
from armillary.errors import require

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Model = Annotated[str, typer.Argument(metavar="MODEL_DIR", help="The folder of a model.")]
Text = Annotated[
    Path,
    typer.Argument(metavar="TEXT", help='A .txt (one document) or a .jsonl of {"text": ..} lines.'),
]
Length = Annotated[int, typer.Option(min=8, help="Tokens of a sequence.")]
Count = Annotated[int, typer.Option("--sequences", min=0, help="How many; 0: all of the text.")]
Seed = Annotated[int, typer.Option(help="Of every random draw.")]


@app.callback()
def root() -> None:
    """Shrink a mixture of experts to 2 or 3 bits an expert by one bit budget for the whole model.

    Example: armillary gemq collect MODEL_DIR calibration.txt -o importance.npz
    """


@app.command()
def collect(
    model: Model,
    text: Text,
    out: Annotated[Path, typer.Option("-o", "--out", help="A file (.npz).")],
    bits: Annotated[str, typer.Option(help="Widths, by commas: some of 1, 2, 3, 4.")] = "1,2,3",
    group: Annotated[int, typer.Option(min=0, help="Features a scale; 0: 128 or 64.")] = 0,
    length: Length = 256,
    count: Count = 16,
    seed: Seed = 0,
    strict: Annotated[bool, typer.Option(help="Fail if an expert sees no token.")] = False,
) -> None:
    """Measure how much each expert's rounding hurts, by a backward pass a sequence.

    Example: armillary gemq collect MODEL_DIR text.txt --bits 2,3,4 -o importance.npz
    """
    _need_extra()
    from armillary.serving.gemq.importance import collect as measure

    widths = _widths(bits)
    loaded, tokenizer = _load(model)
    tokens = _tokens(tokenizer, text, length, count, seed)
    found = measure(
        loaded, tokens, bits=widths, group=group or None, strict=strict,
        bar=lambda rows: output.progress(rows, "sequences"),
    )  # fmt: skip
    found.save(out)
    spread = found.fisher[:, :, 0].sum(axis=1)
    low, high = float(spread.min()), float(spread.max())
    output.console().print(
        f"{found.fisher.shape[0]} layers of {found.fisher.shape[1]} experts, {tokens.numel()} "
        f"tokens: damage at {found.bits[0]} bits differs between layers by a factor of "
        f"{high / max(low, 1e-300):.3g}; {int(found.uncalibrated.sum())} experts saw no token "
        f"-> {out}"
    )


@app.command()
def allocate(
    importance: Annotated[Path, typer.Argument(help="What `collect` wrote (.npz).")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A plan (.json).")],
    avg_bits: Annotated[float | None, typer.Option(help="Average width of experts.")] = None,
    budget_bytes: Annotated[float | None, typer.Option(help="Bytes of all experts.")] = None,
    budget: Annotated[str, typer.Option(help="true (bytes with scales) or nominal.")] = "true",
    scope: Annotated[str, typer.Option(help="global or layer.")] = "global",
    weighting: Annotated[
        str, typer.Option(help="fisher, fisher-raw, recon, frequency.")
    ] = "fisher",
    trust: Annotated[
        float | None, typer.Option(help="A layer's mean bits may exceed the average by so much.")
    ] = None,
    diversity: Annotated[bool, typer.Option(help="Keep the two largest widths in use.")] = True,
) -> None:
    """Choose every expert's width: the plan of least damage within the budget, with its proof.

    Example: armillary gemq allocate importance.npz --avg-bits 2 -o bits.json
    """
    _need_extra()
    from armillary.serving.gemq.allocation import allocate as solve
    from armillary.serving.gemq.importance import Importance

    options: dict[str, Any] = {"budget": budget, "scope": scope, "weighting": weighting}
    plan = solve(
        Importance.load(importance), avg_bits=avg_bits, budget_bytes=budget_bytes, trust=trust,
        diversity=diversity, **options,
    )  # fmt: skip
    plan.save(out)
    output.console().table(
        ["layer", "mean bits", *(f"{b} bits" for b in plan.widths)],
        [
            [name, f"{row.mean():.2f}", *((row == b).sum() for b in plan.widths)]
            for name, row in zip(plan.layers, plan.bits, strict=True)
        ],
    )
    output.console().print(
        f"{plan.mean_bits:.3f} bits on average, {plan.bytes:,} bytes; at most {plan.gap:.2%} more "
        f"damage than the best plan ({plan.solver}) -> {out}"
    )


@app.command()
def trust(
    model: Model,
    importance: Annotated[Path, typer.Argument(help="What `collect` wrote (.npz).")],
    text: Text,
    avg_bits: Annotated[float, typer.Option(help="Average width of experts.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A plan (.json).")],
    quantizer: Annotated[str, typer.Option(help="How plans are rounded: rtn or gptq.")] = "rtn",
    length: Length = 256,
    count: Count = 4,
    seed: Seed = 0,
) -> None:
    """Choose how far layers may leave the average, by quantising and measuring on held-back text.

    Example: armillary gemq trust MODEL_DIR importance.npz held.txt --avg-bits 3 -o bits.json
    """
    _need_extra()
    from armillary.serving.gemq.importance import Importance
    from armillary.serving.gemq.trust import choose_trust

    measured = Importance.load(importance)
    loaded, tokenizer = _load(model)
    tokens = _tokens(tokenizer, text, length, count, seed)
    # GPTQ is fitted to one half and judged on the other; to nearest needs no text.
    half = len(tokens) // 2 if quantizer == "gptq" else 0
    if quantizer == "gptq" and not half:
        raise ValueError(f"{text} has one sequence of {length} tokens: gptq needs two")
    options: dict[str, Any] = {"quantizer": quantizer}
    found = choose_trust(
        loaded, measured, tokens[:half], tokens[half:], avg_bits=avg_bits,
        bar=lambda plans: output.progress(plans, "plans"), **options,
    )  # fmt: skip
    found.plan.save(out)
    output.console().table(
        ["cap above the average", "divergence, nats a token"],
        [["none" if d == float("inf") else f"{d:g}", f"{kl:.4f}"] for d, kl in found.kl.items()],
    )
    cap = "no cap" if found.plan.trust is None else f"a cap of {found.plan.trust:g}"
    output.console().print(f"{cap}: {found.plan.mean_bits:.3f} bits on average -> {out}")


@app.command()
def quantize(
    model: Model,
    plan: Annotated[Path, typer.Argument(help="What `allocate` wrote (.json).")],
    text: Text,
    out: Annotated[Path, typer.Option("-o", "--out", help="A new folder for the model.")],
    quantizer: Annotated[str, typer.Option(help="gptq or rtn.")] = "gptq",
    attention_bits: Annotated[
        int, typer.Option(min=0, max=4, help="Of attention and dense layers; 0: as they are.")
    ] = 4,
    router_ft: Annotated[bool, typer.Option(help="Tune the routers afterwards.")] = True,
    align: Annotated[bool, typer.Option(help="First fit them to the full model's choices.")] = True,
    kd: Annotated[bool, typer.Option(help="Tune them towards the full model, too.")] = True,
    length: Length = 256,
    count: Count = 16,
    seed: Seed = 0,
) -> None:
    """Quantise by a plan. The folder appears when it is whole; a run that was stopped goes on.

    Example: armillary gemq quantize MODEL_DIR bits.json text.txt -o small/
    """
    _need_extra()
    import shutil

    from armillary.serving.gemq.allocation import BitPlan
    from armillary.serving.gemq.quantization import quantize as run
    from armillary.serving.gemq.router_ft import RouterFT

    if out.exists():
        raise FileExistsError(f"--out {str(out)!r} is there already: give another folder")
    read = BitPlan.load(plan)
    loaded, tokenizer = _load(model)
    tokens = _tokens(tokenizer, text, length, count, seed)
    partial = out.parent / f".{out.name}-layers"
    done = run(
        loaded, read, tokens, quantizer=quantizer,  # pyright: ignore[reportArgumentType]
        attention_bits=attention_bits or None,
        router_ft=RouterFT(align=align, kd=kd, seed=seed) if router_ft else None, resume=partial,
        bar=lambda layers: output.progress(layers, "layers"),
    )  # fmt: skip
    done.report["calibration_sha256"] = _sha256(text)
    done.save(out, tokenizer)
    shutil.rmtree(partial, ignore_errors=True)
    for line in done.report["padded"]:
        output.console().note(line)
    share = done.report["expert_bytes"] / done.report["bf16_bytes"]
    output.console().print(
        f"experts: {read.mean_bits:.3f} bits on average, {done.report['expert_bytes']:,} bytes, "
        f"{share:.3f} of bfloat16 -> {out}"
    )


@app.command(name="eval")
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="What `quantize` wrote.")],
    text: Text,
    ref: Annotated[str, typer.Option(help="The folder of the full-precision model.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A file (.json).")] = None,
    length: Length = 256,
    count: Count = 0,
    seed: Seed = 0,
) -> None:
    """Compare a quantised model with the full one, on text that calibration has not seen.

    Example: armillary gemq eval small/ other.txt --ref MODEL_DIR -o eval.json
    """
    _need_extra()
    from armillary.serving.gemq.evaluation import Reference
    from armillary.serving.gemq.evaluation import evaluate as run

    report = folder / "gemq_report.json"
    if report.is_file():
        seen = json.loads(report.read_text("utf-8")).get("calibration_sha256")
        if seen == _sha256(text):
            raise ValueError(f"{text} is the text that {folder} was calibrated on: give another")
    full, tokenizer = _load(ref)
    tokens = _tokens(tokenizer, text, length, count, seed)
    reference = Reference.of(full, tokens)
    del full
    small, _ = _load(str(folder), tokenizer=False)
    found = run(small, reference, bar=lambda rows: output.progress(rows, "sequences"))
    if out is not None:
        output.write_json(out, found | {"tokens": tokens.numel(), "length": length})
    output.console().table(["measure", "value"], [[k, f"{v:.6g}"] for k, v in found.items()])


@app.command(name="make-moe")
def make_moe(
    out: Annotated[Path, typer.Option("-o", "--out", help="A new folder for the model.")],
    model: Annotated[str, typer.Option(help="A Llama's folder; 'embedded'.")] = "embedded",
    text: Annotated[Path | None, typer.Option(help="Text; default: Python's manual.")] = None,
    experts: Annotated[int, typer.Option(min=2, help="A layer.")] = 8,
    top_k: Annotated[int, typer.Option(min=1, help="Experts a token.")] = 4,
    steps: Annotated[int, typer.Option(min=0, help="Sequences of distillation.")] = 200,
    length: Length = 256,
    count: Count = 48,
    seed: Seed = 0,
) -> None:
    """Turn a dense Llama into a mixture of experts and distil it from its parent.

    Example: armillary gemq make-moe --experts 8 --top-k 4 --steps 200 -o moe/
    """
    _need_extra()
    from armillary import corpora, models
    from armillary.models.silence import quiet_transformers
    from armillary.serving.gemq.evaluation import log_ppl
    from armillary.serving.gemq.moefication import moefy
    from armillary.serving.gemq.text import sequences

    if out.exists():
        raise FileExistsError(f"--out {str(out)!r} is there already: give another folder")
    parent = models.embedded(None if model == "embedded" else model)
    if text is None:
        parts = corpora.split(corpora.python_topics(), {"train": 0.85, "test": 0.15})
        tokens = sequences(parent.tokenizer, parts["train"], length, count or None, seed)
        test = sequences(parent.tokenizer, parts["test"], length, 4, seed)
    else:
        tokens = _tokens(parent.tokenizer, text, length, count, seed)
        if len(tokens) < 2:
            raise ValueError(f"{text} has one sequence of {length} tokens: two are needed")
        held = max(1, len(tokens) // 10)
        tokens, test = tokens[held:], tokens[:held]
    found = moefy(
        parent.model, tokens, experts=experts, top_k=top_k, steps=steps, seed=seed,
        bar=lambda items: output.progress(items, "layers and steps"),
    )  # fmt: skip
    with quiet_transformers():
        found.save_pretrained(out)
        parent.tokenizer.save_pretrained(out)
    output.console().print(
        f"{experts} experts a layer, {top_k} a token: {log_ppl(found, test):.3f} nats a token on "
        f"{test.numel()} tokens held out, the parent {log_ppl(parent.model, test):.3f} -> {out}"
    )


@app.command()
def dense(
    folder: Annotated[Path, typer.Argument(metavar="OUT_DIR", help="What `quantize` wrote.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="A new folder for the model.")],
) -> None:
    """Unpack a quantised model into plain weights, which any engine loads.

    Example: armillary gemq dense small/ -o plain/
    """
    _need_extra()
    from armillary.models.silence import quiet_transformers

    if out.exists():
        raise FileExistsError(f"--out {str(out)!r} is there already: give another folder")
    loaded, tokenizer = _load(str(folder))
    with quiet_transformers():
        loaded.dequantize().save_pretrained(out)
        tokenizer.save_pretrained(out)
    output.console().print(f"plain weights -> {out}")


# ---- inputs -------------------------------------------------------------------------------------


def _load(folder: str, *, tokenizer: bool = True) -> tuple[Any, Any]:
    """A model of this machine in its own type, and its tokenizer."""
    if not (Path(folder) / "config.json").is_file():
        raise FileNotFoundError(f"{folder!r} has no config.json: give a model's folder")
    transformers: Any = require("transformers", what="gemq", extra="serving")
    from armillary.models.silence import quiet_transformers
    from armillary.serving.gemq.hf import register

    register()
    here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with quiet_transformers():
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto", **here)
            words = (
                transformers.AutoTokenizer.from_pretrained(folder, **here) if tokenizer else None
            )
    except (OSError, KeyError) as error:
        raise ValueError(f"{folder!r} holds no causal language model: {error}") from error
    return model.eval().requires_grad_(False), words


def documents(path: Path) -> list[str]:
    """The documents of a file: one of a .txt, one a line of a .jsonl.

    Raises:
        ValueError: the file has no text, or a line is no object with "text".
    """
    content = path.read_text("utf-8")
    if path.suffix != ".jsonl":
        found = [content]
    else:
        found = []
        for number, line in enumerate(content.splitlines(), 1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)["text"]
            except (json.JSONDecodeError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                raise ValueError(f'{path}, line {number}: {{"text": "..."}} is needed')
            found.append(text)
    if not any(text.strip() for text in found):
        raise ValueError(f"{path} has no text")
    return found


def _tokens(tokenizer: Any, path: Path, length: int, count: int, seed: int) -> Any:
    from armillary.serving.gemq.text import sequences

    return sequences(tokenizer, documents(path), length, count or None, seed)


def _widths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--bits {text!r}: give widths by commas, such as 2,3,4") from None


def _sha256(path: Path) -> str:
    from armillary.output.checksums import sha256

    return sha256(path)


def _need_extra() -> None:
    for module in ("torch", "transformers", "safetensors", "scipy"):
        require(module, what="gemq", extra="serving")
