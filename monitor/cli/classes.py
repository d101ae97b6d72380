"""``conclad classes``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, table
from monitor.cli.people import with_who
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.people.answer_questions import find_class
from monitor.people.class_catalog import ClassView, list_classes
from monitor.people.class_corrections import Changed, merge, rename, retire
from monitor.people.review_pseudo_labels import mark_wrong
from monitor.store import Store
from monitor.store.errors import NotFound


@click.group(invoke_without_command=True)
@with_config
@with_output
@click.pass_context
def classes(ctx: click.Context, loaded: Loaded, output: Output) -> None:
    """List the classes, and correct them.

    Every correction makes a detector version, so it can be undone with 'conclad detector
    rollback'. CLASS is the name or the id of a class.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_existing_store(loaded.config) as store:
        found = list_classes(store)
    output.result([as_json(view) for view in found], describe(found))


@classes.command("rename")
@click.argument("class_", metavar="CLASS")
@click.argument("name")
@with_who
@with_config
@with_output
def rename_class(class_: str, name: str, who: str, loaded: Loaded, output: Output) -> None:
    """Give a class another name."""
    with open_existing_store(loaded.config) as store:
        _done(rename(store, class_id(store, class_), name, who=who), output)


@classes.command("merge")
@click.argument("others", metavar="CLASS...", nargs=-1, required=True)
@click.option("--into", required=True, metavar="CLASS", help="The class whose name and id stay.")
@with_who
@with_config
@with_output
def merge_classes(
    others: tuple[str, ...], into: str, who: str, loaded: Loaded, output: Output
) -> None:
    """Make one class out of several."""
    with open_existing_store(loaded.config) as store:
        ids = [class_id(store, one) for one in others]
        _done(merge(store, ids, class_id(store, into), who=who), output)


@classes.command("retire")
@click.argument("class_", metavar="CLASS")
@with_who
@with_config
@with_output
def retire_class(class_: str, who: str, loaded: Loaded, output: Output) -> None:
    """Forget a class: similar images count as new again."""
    with open_existing_store(loaded.config) as store:
        _done(retire(store, class_id(store, class_), who=who), output)


@classes.command("wrong")
@click.argument("class_", metavar="CLASS")
@click.argument("source")
@click.argument("images", metavar="IMAGE...", nargs=-1, required=True)
@with_who
@with_config
@with_output
def wrong(
    class_: str, source: str, images: tuple[str, ...], who: str, loaded: Loaded, output: Output
) -> None:
    """Take pseudo-labelled images of SOURCE out of a class."""
    wanted = [(source, image) for image in images]
    with open_existing_store(loaded.config) as store:
        _done(mark_wrong(store, class_id(store, class_), wanted, who=who), output)


def class_id(store: Store, text: str) -> str:
    """The id that a name or an id means."""
    with store.reading() as tx:
        row = find_class(tx, text)
    if row is None:
        raise NotFound(f"class {text!r}: there is no such class; 'conclad classes' lists them")
    return row.id


def as_json(view: ClassView) -> dict[str, Any]:
    return {
        **asdict(view),
        "created_at": view.created_at.isoformat(),
        "exemplars": [one.thumbnail for one in view.exemplars],
    }


def describe(found: list[ClassView]) -> str:
    if not found:
        return "There are no classes yet; fit a detector with: conclad fit --data FILES"
    rows = [
        (
            view.name,
            view.id,
            view.standing if view.merged_into is None else f"merged into {view.merged_into}",
            f"{view.images:,}",
            f"{view.human:,}",
            f"{view.pseudo:,}",
            f"{view.answers:,}",
            "-" if view.created_in is None else str(view.created_in),
        )
        for view in found
    ]
    return table(
        ("class", "id", "standing", "images", "by people", "pseudo", "answers", "since version"),
        rows,
    )


def _done(changed: Changed, output: Output) -> None:
    version = "" if changed.version is None else f"; detector version {changed.version} is in use"
    output.result(asdict(changed), f"{changed.what}{version}")
