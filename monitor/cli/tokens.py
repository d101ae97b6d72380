"""``conclad tokens``."""

from __future__ import annotations

import click

from monitor.cli.options import with_config, with_output
from monitor.cli.output import Output, table
from monitor.cli.people import me
from monitor.config.load import Loaded
from monitor.desk.roles_and_tokens import Role, add_token, holders, remove_token
from monitor.jobs.from_config import open_store

ROLES = ("reader", "annotator", "admin")


@click.group()
def tokens() -> None:
    """Say who may come to the desk."""


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(ROLES),
    default="annotator",
    show_default=True,
    help="A reader looks, an annotator answers, an admin corrects classes and versions.",
)
@with_config
@with_output
def add(name: str, role: str, loaded: Loaded, output: Output) -> None:
    """Make a token for somebody and show it, this once."""
    with open_store(loaded.config) as store:
        token = add_token(store, name, Role.named(role), by=me())
        with store.reading() as tx:
            nobody_rules = all(one.role < Role.ADMIN for one in holders(tx))
    output.note(f"{name} may come as {role}. Keep the token safe; it cannot be shown again.")
    if nobody_rules:
        output.note(
            "Nobody is an admin yet, so nobody can correct classes or choose versions at the desk: "
            "conclad tokens add NAME --role admin"
        )
    output.result({"name": name, "role": role, "token": token}, token)


@tokens.command("list")
@with_config
@with_output
def list_(loaded: Loaded, output: Output) -> None:
    """Who has a token, and since when."""
    with open_store(loaded.config) as store, store.reading() as tx:
        found = holders(tx)
    data = [
        {"name": one.name, "role": one.role.word, "created_at": one.created_at} for one in found
    ]
    rows = [(one.name, one.role.word, (one.created_at or "-")[:16]) for one in found]
    text = table(("name", "role", "since"), rows) if rows else "Nobody has a token."
    output.result(data, text)


@tokens.command()
@click.argument("name")
@with_config
@with_output
def remove(name: str, loaded: Loaded, output: Output) -> None:
    """Take a token away; whoever holds it is signed out at once."""
    with open_store(loaded.config) as store:
        remove_token(store, name, by=me())
    output.result({"removed": name}, f"{name} may no longer come")
