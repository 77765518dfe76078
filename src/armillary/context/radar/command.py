"""``armillary radar``: answers from documents that may be poisoned, one question or a stream."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from armillary.context.radar.own_questions import Outcome
    from armillary.context.radar.question_sets import Asked
    from armillary.context.radar.radar import Radar

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

    Lines that cannot be read are named and left out; the exit code is 3 then.

    Example: armillary radar answer --question "Who leads it?" --docs docs.jsonl
    """
    from armillary.context.radar.lines import Lines

    lines = Lines(docs)
    documents = [found for _, found in lines.documents()]
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
    exit code is 3 then. Answers are kept in OUT.partial until all are there; with --memory, the
    same command after an abort goes on from it.

    Example: armillary radar stream events.jsonl --out answers.jsonl --memory beliefs.db
    """
    from armillary.context.radar.journal import Journal
    from armillary.context.radar.lines import BadLine, Lines, event
    from armillary.context.radar.store import StaleObservationError

    _other_file(out, events)
    lines = Lines(events)
    radar = _radar(memory, mode, endpoint, model, options, abstain_below)
    with Journal(out, keep=memory is not None) as journal:
        before = {line.get("line"): line.get("event") for line in journal.lines}
        for number, digest, record in output.progress(lines.with_digests(), "events"):
            if number in before:
                if before[number] != digest:
                    raise ValueError(
                        f"{str(journal.path)!r} has answers to other events (line {number}): "
                        "remove it to start anew, or give another --out"
                    )
                continue
            try:
                question, documents, key, time = event(record)
                result = radar.answer(question, documents, key=key, time=time)
            except (StaleObservationError, BadLine) as error:
                lines.refuse(number, str(error))
                continue
            told = {"line": number, "event": digest, "question": question}
            journal.add({**told, **dataclasses.asdict(result)})
        journal.finish(out)
    replayed = sum("replayed" in line["flags"] for line in journal.lines)
    seen = f", {replayed} of them seen before" if replayed else ""
    seen += f", {len(before)} of them before an abort" if before else ""
    output.console().print(f"{len(journal.lines)} events answered{seen} -> {out}")
    _exit(lines.bad)


@app.command()
def attack(
    docs: Annotated[Path, typer.Argument(help="JSON lines of honest documents.")],
    target: Annotated[str, typer.Option(help="The wrong answer that the attack wants.")],
    question: Annotated[str, typer.Option(help="The question that is attacked.")],
    out: Annotated[Path, typer.Option(help="Where the poisoned set goes (.jsonl).")],
    kind: Annotated[
        str,
        typer.Option(help="pia (injected instruction), poison (statements) or edited (copies)."),
    ] = "poison",
    copies: Annotated[int, typer.Option(min=1, help="Poisoned documents.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Times that an instruction is repeated.")] = 1,
    rank: Annotated[str, typer.Option(help="first, middle or last.")] = "first",
    truth: Annotated[
        str | None,
        typer.Option(help="What --kind edited replaces by the target in copies of documents."),
    ] = None,
) -> None:
    """Poison your own documents, harmlessly, to test your own system.

    Fields of your own stay as they are; each document gets "poisoned": true or false.

    Example: armillary radar attack docs.jsonl --question Q --target "the wrong one" --out bad.jsonl
    """
    from armillary.context.radar.attacks import attack_texts, edited, placed
    from armillary.context.radar.lines import Lines

    _other_file(out, docs)
    lines = Lines(docs)
    honest = list(lines.documents())
    texts = [document.text for _, document in honest]
    if not texts:
        raise ValueError(f"{str(docs)!r} holds no documents that could be attacked")
    if kind == "edited":
        planted = edited(texts, truth or "", target, copies)
    else:
        planted = attack_texts(kind, question, target, copies, repeats=repeats)
    _, at = placed(texts, planted, rank)
    sources, poison = iter(honest), iter(planted)
    records = [
        {"text": next(poison), "id": f"poisoned-{i}", "source": "attack", "poisoned": True}
        if i in at
        else {**next(sources)[0], "poisoned": False}
        for i in range(len(honest) + len(planted))
    ]
    output.write_text(out, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    output.console().print(f"{len(planted)} of {len(records)} documents poisoned -> {out}")
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
    if out is not None:
        if out.suffix.lower() != ".csv":
            raise ValueError(f"--out {str(out)!r}: the name must end in .csv")
        _other_file(out, questions)
    radar = _radar(None, mode, endpoint, model, None, None)
    chat = models.chat(endpoint, model)
    who = own_questions.contenders(radar, chat, contender or ())
    setting = {"attack": attack, "copies": copies, "rank": rank, "top": top, "mode": mode}
    setting |= {"who": list(who), "model": chat.digest}

    def answered(group: list[Asked]) -> list[Outcome]:
        return list(own_questions.outcomes(group, who, attack, copies=copies, rank=rank, top=top))

    found = _evaluated(own_questions.grouped(asked), answered, setting, out)
    rows = [
        (n, k, f"{right:.3f}", f"{bad:.3f}") for n, k, right, bad in own_questions.summary(found)
    ]
    output.console().table(("contender", "questions", "accuracy", "attack success"), rows)


def _evaluated(
    groups: list[list[Asked]],
    answered: Callable[[list[Asked]], list[Outcome]],
    setting: dict[str, Any],
    out: Path | None,
) -> list[Outcome]:
    """Every outcome, question by question; with a file, kept beside it until all are there."""
    from armillary.context.radar.journal import Journal
    from armillary.context.radar.own_questions import Outcome

    if out is None:
        return [o for group in output.progress(groups, "questions") for o in answered(group)]
    names = [field.name for field in dataclasses.fields(Outcome)]
    with Journal(out) as journal:
        before = {line.get("group"): line.get("outcomes", []) for line in journal.lines}
        found: list[Outcome] = []
        for group in output.progress(groups, "questions"):
            told = repr((setting, group)).encode("utf-8", "backslashreplace")
            digest = hashlib.sha256(told).hexdigest()[:16]
            if digest not in before:
                outcomes = [dataclasses.astuple(o) for o in answered(group)]
                journal.add({"group": digest, "outcomes": outcomes})
                before[digest] = outcomes
            found += [Outcome(*outcome) for outcome in before[digest]]
        output.write_csv(out, names, [dataclasses.astuple(o) for o in found])
        journal.drop()
    return found


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


def _other_file(out: Path, source: Path) -> None:
    """Refuse to write over what is read."""
    if out.exists() and source.exists() and out.samefile(source):
        raise ValueError(f"--out {str(out)!r} is the file that is read; give another name")


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
