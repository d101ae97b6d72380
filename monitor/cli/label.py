"""``conclad label``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output
from monitor.cli.people import with_who
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.people.answer_questions import Fate, Receipt, Said, Word, give, take_back
from monitor.people.class_corrections import operation_id
from monitor.people.class_names import alike
from monitor.people.errors import BadAnswer
from monitor.people.exchange.parsed_answers import Imported, take_in
from monitor.people.exchange.read_answers import read_answers
from monitor.store import Store

# As for a damaged store: the command worked, and what it found is not whole.
NOT_WHOLE = 3


@click.command()
@click.argument("question", type=int, required=False)
@click.argument("class_", metavar="[CLASS]", required=False)
@click.option("--cannot-tell", is_flag=True, help="Nobody can say what it is.")
@click.option("--bad-image", is_flag=True, help="The image is broken, black, or of nothing.")
@click.option("--undo", is_flag=True, help="Take the answer back; the question is open again.")
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the answers from a file: .csv, .jsonl, or .json as Label Studio exports it.",
)
@with_who
@with_config
@with_output
@click.pass_context
def label(
    ctx: click.Context,
    question: int | None,
    class_: str | None,
    cannot_tell: bool,
    bad_image: bool,
    undo: bool,
    file: Path | None,
    who: str,
    loaded: Loaded,
    output: Output,
) -> None:
    """Answer a question: CLASS is the name or id of a class, or a new name.

    With --from, answers to unknown or closed questions are reported one by one, the rest goes
    in, and the command exits with 3.
    """
    said = [class_ is not None, cannot_tell, bad_image, undo]
    if (question is None) != (file is not None) or sum(said) != (0 if file else 1):
        raise click.UsageError(
            "give QUESTION and one of CLASS, --cannot-tell, --bad-image, --undo; or --from FILE"
        )
    with open_existing_store(loaded.config) as store:
        if file is not None:
            content = file.read_bytes()
            imported = take_in(store, read_answers(file.name, content), who=who, content=content)
            output.result(_as_json(imported), describe(imported))
            if not imported.whole:
                ctx.exit(NOT_WHOLE)
            return
        assert question is not None
        if undo:
            back = take_back(store, question, who=who, action=operation_id(), anybodys=True)
            output.result(_answer(back), f"question {question}: is open again")
            return
        word = Word.CANNOT_TELL if cannot_tell else Word.BAD_IMAGE if bad_image else Word.CLASS
        receipt = _one(store, Said(question, word, class_), who, output)
    output.result(_receipt(receipt), receipt.message)


def _one(store: Store, said: Said, who: str, output: Output) -> Receipt:
    with store.reading() as tx:
        names = [row.name for row in tx.classes.living()]
    [receipt] = give(store, [said], who=who, action=operation_id())
    if receipt.fate is Fate.REFUSED:
        raise BadAnswer(receipt.message)
    if receipt.new_class and (close := alike(receipt.class_name or "", names)):
        output.note(
            f"{receipt.class_name!r} is a new class; if {close[0]!r} was meant: "
            f"conclad label {said.question_id} --undo"
        )
    return receipt


def describe(imported: Imported) -> str:
    lines = [f"{problem.where}: {problem.message}" for problem in imported.problems]
    lines += [
        f"{where}: {receipt.message}"
        for where, receipt in imported.receipts
        if receipt.fate in (Fate.REFUSED, Fate.CONFLICT)
    ]
    lines.append(", ".join(f"{n:,} {word}" for word, n in imported.counts.items() if n) + ".")
    return "\n".join(lines)


def _as_json(imported: Imported) -> dict[str, Any]:
    return {
        "counts": imported.counts,
        "records": [{"where": w, **_receipt(receipt)} for w, receipt in imported.receipts],
        "problems": [asdict(problem) for problem in imported.problems],
    }


def _receipt(receipt: Receipt) -> dict[str, Any]:
    return {
        "question_id": receipt.question_id,
        "fate": str(receipt.fate),
        "message": receipt.message,
        "class": receipt.class_name,
        "new_class": receipt.new_class,
        **({} if receipt.answer is None else {"answer": _answer(receipt.answer)}),
    }


def _answer(answer: Any) -> dict[str, Any]:
    return {**asdict(answer), "at": answer.at.isoformat()}
