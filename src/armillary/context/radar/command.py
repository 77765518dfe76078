"""``armillary radar``: answers from documents that may be poisoned, one question or a stream."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import ExitCode

if TYPE_CHECKING:
    from armillary.context.radar.radar import Document, Radar

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Endpoint = Annotated[
    str | None, typer.Option(help="OpenAI-compatible address; default: the embedded model.")
]
Model = Annotated[
    str | None, typer.Option(help="The model's name there, or a model's folder on this machine.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", help="Belief store: an .db file or SQLAlchemy URL.")
]
Mode = Annotated[str, typer.Option(help="campaign (ours) or paper.")]
Options = Annotated[
    str | None,
    typer.Option(
        help="Possible answers, separated by |: a model in process then chooses instead of writing."
    ),
]


@app.callback()
def root() -> None:
    """Keep answers right while retrieved documents are poisoned and the truth changes.

    Example: armillary radar answer --question "Who leads it?" --docs docs.jsonl --memory beliefs.db
    """


@app.command()
def answer(
    question: Annotated[str, typer.Option(help="The question.")],
    docs: Annotated[Path, typer.Option(help='JSON lines: {"text": ..., "id": ..., "source": ...}')],
    memory: Memory = None,
    mode: Mode = "campaign",
    time: Annotated[str | None, typer.Option(help="When: a number or an ISO date.")] = None,
    endpoint: Endpoint = None,
    model: Model = None,
    options: Options = None,
    abstain_below: Annotated[
        float | None, typer.Option(help="Margin under which no answer is given.")
    ] = None,
) -> None:
    """Answer one question from documents, best first; prints JSON.

    Example: armillary radar answer --question "Who leads it?" --docs docs.jsonl
    """
    lines = _Lines(docs)
    documents = [_document(record, number) for number, record in lines]
    radar = _radar(memory, mode, endpoint, model, options, abstain_below)
    result = radar.answer(question, documents, time=time)
    output.console().print(json.dumps(dataclasses.asdict(result), ensure_ascii=False, indent=1))
    _exit(lines.bad)


@app.command()
def stream(
    events: Annotated[
        Path, typer.Argument(help='JSON lines: {"question": ..., "time": ..., "docs": [...]}')
    ],
    out: Annotated[Path, typer.Option(help="Where the answers go (.jsonl).")],
    memory: Memory = None,
    mode: Mode = "campaign",
    endpoint: Endpoint = None,
    model: Model = None,
    options: Options = None,
    abstain_below: Annotated[
        float | None, typer.Option(help="Margin under which no answer is given.")
    ] = None,
) -> None:
    """Answer a stream of events in their order, keeping beliefs between them.

    Lines that cannot be read, and events older than what is known, are named and left out; the
    exit code is 3 then.

    Example: armillary radar stream events.jsonl --out answers.jsonl --memory beliefs.db
    """
    from armillary.context.radar.store import StaleObservationError

    radar = _radar(memory, mode, endpoint, model, options, abstain_below)
    lines = _Lines(events)
    told, replayed = [], 0
    for number, event in output.progress(lines, "events"):
        try:
            question, documents = _event(event, number)
            key = event.get("key")
            result = radar.answer(question, documents, key=key, time=event.get("time"))
        except (StaleObservationError, _BadLine) as error:
            lines.refuse(number, str(error))
            continue
        replayed += "replayed" in result.flags
        told.append({"line": number, "question": question, **dataclasses.asdict(result)})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in told)
    output.write_text(out, text)
    seen = f", {replayed} of them seen before" if replayed else ""
    output.console().print(f"{len(told)} events answered{seen} -> {out}")
    _exit(lines.bad)


@app.command()
def attack(
    docs: Annotated[Path, typer.Argument(help="JSON lines of honest documents.")],
    target: Annotated[str, typer.Option(help="The wrong answer that the attack wants.")],
    question: Annotated[str, typer.Option(help="The question that is attacked.")],
    out: Annotated[Path, typer.Option(help="Where the poisoned set goes (.jsonl).")],
    kind: Annotated[str, typer.Option(help="pia (injected instruction) or poison.")] = "poison",
    copies: Annotated[int, typer.Option(help="Poisoned documents.")] = 1,
    repeats: Annotated[int, typer.Option(help="Times that an instruction is repeated.")] = 1,
    rank: Annotated[str, typer.Option(help="first, middle or last.")] = "first",
) -> None:
    """Poison your own documents, harmlessly, to test your own system.

    Example: armillary radar attack docs.jsonl --question Q --target "the wrong one" --out bad.jsonl
    """
    from armillary.context.radar.attacks import attack_texts, placed

    lines = _Lines(docs)
    honest = [_document(record, number) for number, record in lines]
    texts = attack_texts(kind, question, target, copies, repeats=repeats)
    _, at = placed([d.text for d in honest], texts, rank)
    sources, poison = iter(honest), iter(texts)
    records = [
        {"text": next(poison), "id": f"poisoned-{i}", "source": "attack", "poisoned": True}
        if i in at
        else {**dataclasses.asdict(next(sources)), "poisoned": False}
        for i in range(len(honest) + len(texts))
    ]
    output.write_text(out, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    output.console().print(f"{len(texts)} of {len(records)} documents poisoned -> {out}")
    _exit(lines.bad)


@app.command()
def evaluate(
    questions: Annotated[Path, typer.Argument(help="A question set (.json), single or yearly.")],
    attack: Annotated[str, typer.Option(help="none, pia or poison.")] = "none",
    copies: Annotated[int, typer.Option(min=1, help="Poisoned documents a question.")] = 1,
    rank: Annotated[str, typer.Option(help="first, middle or last.")] = "last",
    top: Annotated[int, typer.Option(min=1, help="Honest documents a question.")] = 10,
    contender: Annotated[
        list[str] | None,
        typer.Option(help="Only these (repeatable): ours, majority, robustrag-keyword, ..."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first questions.")] = None,
    mode: Mode = "campaign",
    endpoint: Endpoint = None,
    model: Model = None,
    out: Annotated[Path | None, typer.Option(help="Every answer, as .csv.")] = None,
) -> None:
    """Answer your own question set beside the rivals, under a harmless attack.

    Reads RobustRAG's form (question, correct answer, incorrect answer, context) and yearly sets
    (question, yearly_contexts). AstuteRAG and InstructRAG need a capable model: give --endpoint.

    Example: armillary radar evaluate realtimeqa.json --attack pia --endpoint URL --model M
    """
    from armillary import models
    from armillary.context.radar import own_questions
    from armillary.context.radar.question_sets import attacked, read_questions

    asked = read_questions(questions)[:limit]
    attacked(asked[0], attack, copies=copies, rank=rank, top=top)  # a wrong option is told first
    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(f"--out {str(out)!r}: the name must end in .csv")
    radar = _radar(None, mode, endpoint, model, None, None)
    who = own_questions.contenders(radar, models.chat(endpoint, model), contender or ())
    found: list[own_questions.Outcome] = []
    for one in output.progress(asked, "questions"):
        found += own_questions.outcomes([one], who, attack, copies=copies, rank=rank, top=top)
    rows = [
        (n, k, f"{right:.3f}", f"{bad:.3f}") for n, k, right, bad in own_questions.summary(found)
    ]
    output.console().table(("contender", "questions", "accuracy", "attack success"), rows)
    if out is not None:
        names = [field.name for field in dataclasses.fields(own_questions.Outcome)]
        output.write_csv(out, names, [dataclasses.astuple(o) for o in found])


@app.command()
def migrate(
    store: Annotated[str, typer.Argument(help="A belief store: a path or SQLAlchemy URL.")],
    scorer: Annotated[
        str | None, typer.Option(help="Let its beliefs count for this judge of agreement.")
    ] = None,
) -> None:
    """Let the beliefs of a store count for another judge of agreement.

    Example: armillary radar migrate beliefs.db --scorer values
    """
    from armillary.context.radar.store import rebind

    count = rebind(store, scorer=scorer)
    output.console().print(f"{count} beliefs now belong to {scorer or 'the judge they had'}")


@app.command()
def readings(
    live: Annotated[
        bool, typer.Option("--live", help="Read a random 5 % again with the embedded model.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Which 5 %.")] = 0,
) -> None:
    """The recorded readings behind the evidence; --live fails where one differs.

    Example: armillary radar readings --live
    """
    from armillary.context.radar import evidence_readings, evidence_recording

    if not live:
        count = len(evidence_recording.wanted())
        output.console().print(f"{count} readings by {evidence_readings.READER_DIGEST[:12]}")
        return
    checked, differ = evidence_recording.live_check(seed=seed)
    output.console().print(f"{checked} readings made again, {differ} differ")
    if differ:
        raise typer.Exit(int(ExitCode.FAILED))


class _BadLine(ValueError):
    """A line that is not what it should be."""


class _Lines:
    """Readable JSON lines of a file with their numbers; the others are named and counted."""

    def __init__(self, path: Path) -> None:
        self.path, self.bad = path, 0
        if not path.is_file():
            raise FileNotFoundError(f"no file {str(path)!r}")

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    self.refuse(number, f"no JSON ({error.msg} at column {error.colno})")
                    continue
                if isinstance(record, dict):
                    yield number, record
                else:
                    self.refuse(number, f"a JSON object is wanted, got {type(record).__name__}")

    def refuse(self, number: int, why: str) -> None:
        """Name a line that is left out."""
        self.bad += 1
        output.console().note(f"{self.path}, line {number}: {why}")


def _document(record: Any, number: int) -> Document:
    from armillary.context.radar.radar import Document

    if isinstance(record, str):
        return Document(record)
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise _BadLine(f"line {number}: a document needs 'text', got {str(record)[:80]}")
    return Document(record["text"], str(record.get("id", "")), str(record.get("source", "")))


def _event(event: dict[str, Any], number: int) -> tuple[str, list[Document]]:
    question, docs = event.get("question"), event.get("docs")
    if not isinstance(question, str) or not question.strip():
        raise _BadLine("an event needs 'question', a text")
    if not isinstance(docs, list) or not docs:
        raise _BadLine(f"radar: no documents for question {question!r}")
    ranked = sorted(docs, key=lambda d: d.get("rank", 0) if isinstance(d, dict) else 0)
    documents = [_document(record, number) for record in ranked]
    if any(not document.text.strip() for document in documents):
        raise _BadLine("a document has no text")
    return question, documents


def _radar(
    memory: str | None,
    mode: str,
    endpoint: str | None,
    model: str | None,
    options: str | None,
    abstain_below: float | None,
) -> Radar:
    from armillary import models
    from armillary.context.radar.radar import Radar
    from armillary.context.radar.readers import OptionReader

    if mode not in ("campaign", "paper"):
        raise ValueError(f"--mode {mode!r}: give campaign or paper")
    chat = models.chat(endpoint, model)
    llm: Any = chat
    if options is not None:
        choices = [option.strip() for option in options.split("|") if option.strip()]
        if endpoint is not None or len(choices) < 2:
            raise ValueError("--options: give at least two, and no --endpoint (it has no scores)")
        llm = OptionReader(chat, lambda question: choices)
    return Radar(llm, memory=mode, store=memory, abstain_below=abstain_below)  # pyright: ignore


def _exit(bad: int) -> None:
    if bad:
        output.console().note(f"{bad} lines were left out")
        raise typer.Exit(int(ExitCode.PARTIAL))
