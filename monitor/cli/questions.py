"""``conclad questions``."""

from __future__ import annotations

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, table
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.people.exchange.csv_jsonl import to_csv, to_jsonl
from monitor.people.exchange.label_studio import interface, to_tasks
from monitor.people.exchange.question_records import QuestionRecord, Which, read_questions

# What fits on a screen; --json and --export have them all.
SHOWN = 50


@click.command()
@click.option(
    "--which",
    type=click.Choice(["open", "answered", "all"]),
    default="open",
    show_default=True,
    help="Questions that wait, those with an answer, or both.",
)
@click.option(
    "--export",
    "export",
    type=click.Choice(["csv", "jsonl", "label-studio", "label-studio-interface"]),
    help="Print them in a format for other tools; for Label Studio also its labelling interface.",
)
@click.option(
    "--url",
    default="http://127.0.0.1:8484",
    show_default=True,
    help="Where the desk is reached, for the pictures of Label Studio tasks.",
)
@with_config
@with_output
def questions(which: Which, export: str | None, url: str, loaded: Loaded, output: Output) -> None:
    """List the questions that wait for an answer."""
    with open_existing_store(loaded.config) as store:
        if export == "label-studio-interface":
            with store.reading() as tx:
                click.echo(interface(row.name for row in tx.classes.living()), nl=False)
            return
        found = read_questions(store, which)
    if export == "csv":
        click.echo(to_csv(found), nl=False)
    elif export == "jsonl":
        click.echo(to_jsonl(found), nl=False)
    elif export == "label-studio":
        import json

        click.echo(json.dumps(to_tasks(found, base_url=url), indent=2, ensure_ascii=False))
    else:
        output.result([question.record() for question in found], describe(found, which))


def describe(found: list[QuestionRecord], which: Which) -> str:
    if not found:
        return "No question is open." if which == "open" else "There are no such questions."
    rows = [
        (
            str(one.question.id),
            one.question.source_id,
            one.question.image_id,
            f"{one.question.score_ratio:.2f}",
            one.nearest or "-",
            one.suggested or "-",
            _answer(one),
        )
        for one in found[:SHOWN]
    ]
    header = ("question", "source", "image", "score / T_inner", "nearest", "suggested", "answer")
    lines = [table(header, rows)]
    if len(found) > SHOWN:
        lines.append(f"… and {len(found) - SHOWN:,} more (see --json)")
    if which == "open":
        lines += ["", f"{len(found):,} open. Answer with: conclad label QUESTION CLASS"]
    return "\n".join(lines)


def _answer(question: QuestionRecord) -> str:
    if question.answered is not None:
        return question.answered
    return "-" if question.answer is None else question.answer.kind.replace("_", " ")
