"""``conclad detector``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, table
from monitor.cli.people import with_who
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.people import version_history as versions
from monitor.people.version_history import Difference, VersionView
from monitor.people.version_manifest import knowledge_of
from monitor.store.records import Version


@click.group()
def detector() -> None:
    """List detector versions, compare them, and go back."""


@detector.command("list")
@with_config
@with_output
def list_(loaded: Loaded, output: Output) -> None:
    """All versions, the one in use marked with an asterisk."""
    with open_existing_store(loaded.config) as store:
        found = versions.list_versions(store)
    rows = [
        (
            f"{view.number}{' *' if view.current else ''}",
            str(view.state),
            f"{view.created_at:%Y-%m-%d %H:%M}",
            f"{view.classes:,}",
            f"{view.t_inner:.4g}",
            view.reason or "-",
        )
        for view in found
    ]
    text = table(("version", "state", "made", "classes", "T_inner", "why"), rows)
    output.result([as_json(view) for view in found], text if rows else "No version yet.")


@detector.command()
@click.argument("number", type=int)
@with_config
@with_output
def show(number: int, loaded: Loaded, output: Output) -> None:
    """What one version knows and why it was made."""
    with open_existing_store(loaded.config) as store:
        view = versions.show_version(store, number)
        change = versions.compare(store, view.parent, number) if view.parent else None
        with store.reading() as tx:
            version = tx.versions.get(number)
        known = knowledge_of(store, version)
    data = {
        **as_json(view),
        "backbone": known.backbone,
        "known": [asdict(entry) for entry in known.classes.values()],
        "difference": None if change is None else asdict(change),
    }
    why = [f"for pool {view.pool}"] if view.pool else []
    why += [view.reason] if view.reason else []
    lines = [
        f"version {number}: {view.state}{', in use' if view.current else ''}",
        f"made {view.created_at:%Y-%m-%d %H:%M} UTC from version {view.parent or '-'}",
        *([", ".join(why)] if why else []),
        f"T_inner {view.t_inner:.4g}; {view.exceedance:.1%} of known images exceed it",
        *(f"  {entry.id}  {entry.name}" for entry in known.classes.values()),
        *(() if change is None else change.sentences()),
    ]
    output.result(data, "\n".join(lines))


@detector.command()
@click.argument("of", type=int)
@click.argument("to", type=int)
@with_config
@with_output
def diff(of: int, to: int, loaded: Loaded, output: Output) -> None:
    """What changes when version TO is used in place of OF."""
    with open_existing_store(loaded.config) as store:
        found = versions.compare(store, of, to)
    output.result({**asdict(found), "sentences": found.sentences()}, _sentences(found))


@detector.command()
@click.argument("number", type=int)
@click.option("--reason", default="", help="Why; kept with the version.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_who
@with_config
@with_output
def rollback(number: int, reason: str, yes: bool, who: str, loaded: Loaded, output: Output) -> None:
    """Use an older version again.

    Says what changes and asks, unless --yes or --json is given.
    """
    with open_existing_store(loaded.config) as store:
        with store.reading() as tx:
            current = tx.versions.current()
        if current is not None and not (yes or output.as_json):
            click.echo(_sentences(versions.compare(store, current.number, number)), err=True)
            click.confirm(
                f"Use version {number} in place of {current.number}?", abort=True, err=True
            )
        _done(versions.rollback(store, number, who=who, reason=reason), output)


@detector.command()
@click.argument("number", type=int)
@click.option("--reason", default="", help="Why; kept with the version.")
@with_who
@with_config
@with_output
def release(number: int, reason: str, who: str, loaded: Loaded, output: Output) -> None:
    """Put a version into use that the gate holds."""
    with open_existing_store(loaded.config) as store:
        _done(versions.release(store, number, who=who, reason=reason), output)


@detector.command()
@click.argument("number", type=int)
@click.option("--reason", required=True, help="Why; kept with the version.")
@with_who
@with_config
@with_output
def refuse(number: int, reason: str, who: str, loaded: Loaded, output: Output) -> None:
    """Turn a version down that the gate holds."""
    with open_existing_store(loaded.config) as store:
        refused = versions.refuse(store, number, who=who, reason=reason)
    output.result({"version": number, "state": str(refused.state)}, f"version {number}: refused")


def as_json(view: VersionView) -> dict[str, Any]:
    published = None if view.published_at is None else view.published_at.isoformat()
    return {**asdict(view), "created_at": view.created_at.isoformat(), "published_at": published}


def _sentences(found: Difference) -> str:
    return "\n".join(found.sentences())


def _done(version: Version, output: Output) -> None:
    data = {"version": version.number, "state": str(version.state)}
    output.result(data, f"detector version {version.number} is in use")
