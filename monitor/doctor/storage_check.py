"""Where things are kept: the feed, the state folder, the store in it, and the clocks around it."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyarrow import fs as pafs
from sqlalchemy import func, inspect, select

from monitor.config import Config
from monitor.doctor.findings import Check, good, problem, warning
from monitor.errors import ConcladError
from monitor.feed.batch_plan import plan_batches
from monitor.feed.batch_reader import BatchReader
from monitor.feed.feed_storage import (
    SUFFIXES,
    FeedStorage,
    check_for_images,
    is_hidden,
    storage_errors,
)
from monitor.feed.input_contract import Row
from monitor.images.decode import decode
from monitor.images.reject_reasons import Rejected
from monitor.jobs.from_config import columns_of, decoding_of, feed_storage_of, open_store
from monitor.store import Severity, Store, check
from monitor.store.atomic_files import Folder
from monitor.store.database import DATABASE_FILE, Database, database_url
from monitor.store.file_modes import close_paths, wide_paths
from monitor.store.migrations import MIGRATIONS
from monitor.store.note_and_counter_names import COORDINATOR_LEASE
from monitor.store.tables import SCHEMA_VERSION, events, schema_version

#: SQLite's locks are not kept by these, and two writers would destroy the file.
NETWORK_DISKS = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "glusterfs"}
#: Leases last some tens of seconds; clocks that differ by more than a few confuse whoever reads.
CLOCKS_APART = timedelta(seconds=5)
#: Folders listed to find one file: enough for a folder per source and day, and soon done.
FOLDERS_LOOKED_AT = 50
#: The coordinator of a running monitor.


def feed(config: Config) -> Check:
    """Whether the feed can be listed, and one of its files opened and its first image decoded.

    Looks for that file folder by folder, however large the feed is.
    """
    try:
        source = feed_storage_of(config)
        with storage_errors(source.location):
            info = source.filesystem.get_file_info(source.root)
            if info.type == pafs.FileType.NotFound:
                return problem(
                    "feed", f"{source.location}: no such folder; create it, or correct feed.path"
                )
            first = _first_file(source)
        if first is None:
            check_for_images(config.feed.path)
            return warning(
                "feed",
                f"{source.location} holds no Parquet yet; 'conclad ingest' brings images there",
            )
        return _first_image(config, source, first)
    except ConcladError as error:
        return problem("feed", str(error))


def _first_file(source: FeedStorage) -> str | None:
    """Any file of the feed; None if there is none in the first folders."""
    folders = [source.root]
    for _ in range(FOLDERS_LOOKED_AT):
        if not folders:
            return None
        found = source.filesystem.get_file_info(pafs.FileSelector(folders.pop(0)))
        for info in sorted(found, key=lambda info: info.path):
            path: str = info.path[len(source.root) + 1 if source.root else 0 :]
            if is_hidden(path):
                continue
            if info.type == pafs.FileType.Directory:
                folders.append(info.path)
            elif path.lower().endswith(SUFFIXES):
                return path
    return None


def _first_image(config: Config, source: FeedStorage, path: str) -> Check:
    """Read the footer, check the columns, decode one image."""
    where = source.where(path)
    specs = plan_batches(source, source.stat(path), columns_of(config))
    if not specs:
        return warning("feed", f"{where} can be read and holds no rows")
    with BatchReader(source, columns_of(config)) as reader:
        row = next(reader.iter_rows(specs[0]))
    if not isinstance(row, Row):
        return warning("feed", f"{where}: its first row is rejected ({row.reason}: {row.detail})")
    image = decode(row.image, decoding_of(config))
    if isinstance(image, Rejected):
        return warning(
            "feed", f"{where}: its first image is rejected ({image.reason}: {image.detail})"
        )
    height, width = image.pixels.shape[:2]
    return good("feed", f"{where} can be read; its first image has {width} x {height} pixels")


def state_folder(config: Config, *, repair: bool = False) -> Iterator[Check]:
    """Whether files can be written, and who else may read them; ``repair`` ends that."""
    place = config.state.dir
    if "://" in place:
        yield _writable(Folder.at(place), place)
        return
    folder = Path(place).expanduser()
    if not folder.exists():
        parent = folder.absolute().parent
        if os.access(parent if parent.exists() else Path.cwd(), os.W_OK):
            yield warning("state", f"{folder} is not there yet; 'conclad fit' makes it")
        else:
            yield problem("state", f"{folder} is not there and cannot be made; correct state.dir")
        return
    yield _writable(Folder.local(folder), place)
    yield _private(folder, repair)
    kind = filesystem_of(folder)
    if config.state.url is None and kind in NETWORK_DISKS:
        yield problem(
            "state",
            f"{folder} is on a network disk ({kind}), where SQLite's locks do not work; put it on "
            "a disk of this machine, or set state.url to a PostgreSQL",
        )


def _private(folder: Path, repair: bool) -> Check:
    wide = list(wide_paths(folder))
    if not wide:
        return good("permissions", f"nobody but this user may read {folder}")
    first = f"the first: {wide[0]}, mode {stat.S_IMODE(wide[0].lstat().st_mode):o}"
    if not repair:
        return warning(
            "permissions",
            f"other users may read or write {len(wide)} files and folders of the state ({first}); "
            "'conclad doctor --repair' closes them",
        )
    kept = close_paths(wide)
    if kept:
        return warning(
            "permissions",
            f"{len(kept)} files and folders belong to another user and stay open to others (the "
            f"first: {kept[0]}); run this as their owner",
        )
    return good("permissions", f"closed {len(wide)} files and folders to other users ({first})")


def _writable(folder: Folder, shown: str) -> Check:
    name = f".doctor-{uuid.uuid4().hex[:8]}"
    try:
        folder.write(name, b"written by conclad doctor")
        folder.delete(name)
    except (ConcladError, OSError) as error:
        return problem(
            "state",
            f"{shown} cannot be written ({error}); give this user the right to, or fix state.dir",
        )
    return good("state", f"{shown} can be written")


def filesystem_of(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The kind of filesystem that holds a folder, as the kernel names it."""
    if not mounts.exists():
        return "unknown"
    wanted = str(folder.resolve())
    best, kind = "", "unknown"
    for line in mounts.read_text().splitlines():
        _, point, this = line.split()[:3]
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) > len(best):
            best, kind = point, this
    return kind


def layout(config: Config) -> int | None:
    """The layout of the state, without changing it; None when there is none yet."""
    if config.state.url is None:
        folder = Path(config.state.dir).expanduser()
        if not (folder / DATABASE_FILE).exists():
            return None
        where: str | Path = folder
    else:
        where = config.state.url
    database = Database(database_url(where))
    try:
        with database.read() as connection:
            if not inspect(connection).has_table(schema_version.name):
                return None
            newest = connection.execute(select(func.max(schema_version.c.number))).scalar()
            return None if newest is None else int(newest)
    finally:
        database.close()


@contextlib.contextmanager
def opened(config: Config) -> Iterator[tuple[Store | None, Check]]:
    """The store if it can be looked at, and what opening it was like."""
    with contextlib.ExitStack() as stack:
        yield _open(config, stack)


def _open(config: Config, stack: contextlib.ExitStack) -> tuple[Store | None, Check]:
    """State of an older layout is left alone: opening brings it forward, and a doctor changes
    nothing.
    """
    try:
        found = layout(config)
        if found is None:
            return None, warning("store", "holds nothing yet; 'conclad fit' makes a first detector")
        if any(step.number == found + 1 for step in MIGRATIONS):
            return None, warning(
                "store",
                f"has layout {found} and will be brought to {SCHEMA_VERSION} at the next start; "
                "make a backup first",
            )
        store = stack.enter_context(open_store(config))
        return store, _whole(store)
    except ConcladError as error:
        return None, problem("store", str(error))


def _whole(store: Store) -> Check:
    findings = check(store, hashes=False)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        return problem(
            "store",
            f"{len(errors)} things that were committed are missing or differ, the first: "
            f"{errors[0]}; restore them from a backup ('conclad store check' lists them)",
        )
    with store.reading() as tx:
        files = sum(tx.counts.files_by_state().values())
        version = tx.versions.current()
    fitted = f"detector version {version.number}" if version else "no detector yet"
    return good("store", f"{store.database.where} is whole: {files} files of the feed, {fitted}")


def monitor_runs(store: Store | None) -> bool:
    """Whether a coordinator holds its lease."""
    if store is None:
        return False
    with store.reading() as tx:
        lease = tx.leases.get(COORDINATOR_LEASE)
        return lease is not None and lease.is_held(tx.now)


def clock(store: Store | None, now: datetime | None = None) -> Check:
    """Whether this machine's time agrees with what the store has seen."""
    now = now or datetime.now(UTC)
    if store is None:
        return good("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    with store.reading() as tx:
        apart = abs(tx.now - now)
        newest = tx.connection.execute(select(func.max(events.c.at))).scalar()
    if apart > CLOCKS_APART:
        return warning(
            "clock",
            f"differs from the database's by {apart.total_seconds():.0f} s; let both follow the "
            "same time server",
        )
    if newest is not None and newest > now + CLOCKS_APART:
        ahead = (newest - now).total_seconds()
        return problem(
            "clock",
            f"the store holds events from {ahead:.0f} s in the future, so this machine's time went "
            "back; set it right before leases and ages are judged by it",
        )
    return good("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
