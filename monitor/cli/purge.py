"""``conclad purge``."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from monitor.cli.options import Moment, with_config, with_output
from monitor.cli.output import Output
from monitor.cli.people import me
from monitor.config.load import Loaded
from monitor.jobs.from_config import open_existing_store
from monitor.store.source_purge import Purged
from monitor.store.source_purge import purge as run_purge


@click.command()
@click.option("--source", required=True, help="The source whose images are removed.")
@click.option(
    "--before",
    required=True,
    type=Moment(),
    help="Images captured before this, such as 2026-01-31.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_config
@with_output
def purge(source: str, before: datetime, yes: bool, loaded: Loaded, output: Output) -> None:
    """Remove what is kept of a source's images.

    Verdicts, settled ones too, discoveries, rejected rows, pictures, features (those in detectors
    too) and what questions say of the images go; counts and answers stay, from which no image can
    be had. The feed itself and backups made before are not touched. This cannot be undone.
    """
    if not (yes or output.as_json):
        click.confirm(
            f"Remove what is kept of {source} from before {before:%Y-%m-%d %H:%M} UTC?",
            abort=True,
            err=True,
        )
    with open_existing_store(loaded.config) as store:
        done = run_purge(store, source, before=before, who=me())
        told = {"source": source, "before": f"{before:%Y-%m-%d %H:%M}", "who": me()}
        with store.transaction() as tx:
            tx.events.append("state.purged", {**told, "rows": dict(done.rows)}, source=source)
    output.result(asdict(done), describe(done))


def describe(done: Purged) -> str:
    rows = ", ".join(f"{count:,} {kind}" for kind, count in done.rows.items() if count)
    lines = [
        f"Removed: {rows or 'no rows'}; {done.thumbnails:,} pictures; {done.questions:,} questions "
        f"without their image; features of {len(done.pools):,} pools."
    ]
    if done.kept_pools:
        pools = ", ".join(str(pool) for pool in done.kept_pools)
        lines.append(
            f"Pools {pools} still wait for people, or to be settled by the monitor, and keep their "
            "features: purge again when they are settled."
        )
    if done.kept_versions:
        versions = ", ".join(str(number) for number in done.kept_versions)
        lines.append(
            f"Detector versions {versions} keep their features too: pools that wait need them as "
            "they are. Purge again when those are settled."
        )
    if not done.rewritten:
        lines.append(
            "The database file still has bytes of what was deleted, because others read it "
            "meanwhile: purge again to have it rewritten."
        )
    return "\n".join(lines)
