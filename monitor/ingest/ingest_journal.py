"""What has been brought into a feed, so that a run that is killed anywhere can go on.

The journal is one SQLite file beside the feed's files (`FEED/_ingest/NAME/journal.sqlite`), which
readers of the feed pass over. It answers two questions without holding anything in memory:

- was this file read before, and has it not changed since? (`items`)
- which image bears this name already? (`images`)

An image is the same if its name and its content are. So a folder that was moved, touched or copied
adds nothing, and a file that is overwritten (`latest.jpg`) adds a new image with a name of its own.
"""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path

from monitor.ingest.errors import FeedRefused
from monitor.ingest.reader_items import Item, Picture, name_key, short_hash

LAYOUT = 1
CACHE_KILOBYTES = 16 * 1024
"""Names and files are looked up in no order; 16 MB hold the upper levels of many millions."""

_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, file TEXT NOT NULL, images INTEGER NOT NULL, done INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS items (
    key BLOB PRIMARY KEY, stamp BLOB NOT NULL, batch INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS images (
    name BLOB PRIMARY KEY, digest BLOB NOT NULL, batch INTEGER NOT NULL
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch that a run planned and was not seen to finish."""

    number: int
    file: str


class Journal:
    """The journal of one feed; safe to ask from several threads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "j.sqlite") as journal:
    ...     cat = Picture(Item.of("/a.jpg", "1"), "cam", "a.jpg", None, b"cat")
    ...     dog = Picture(Item.of("/a.jpg", "2"), "cam", "a.jpg", None, b"dog")
    ...     journal.admit(cat), journal.admit(cat), journal.admit(dog)
    ('a.jpg', None, 'a.jpg~...')
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        # What readers have handed over and no transaction holds yet; as small as a batch.
        self._items: dict[bytes, bytes] = {}
        self._images: dict[bytes, bytes] = {}
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # One process has the journal to itself (the job holds a lock), so SQLite need not lock
            # and look for changes with every question, which would cost more than the answer.
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            # With the lock held for good this needs no shared memory, so network disks will do.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA cache_size = {-CACHE_KILOBYTES}")
            self._db.execute("PRAGMA synchronous = FULL")
            [(layout,)] = self._db.execute("PRAGMA user_version").fetchall()
            if layout > LAYOUT:
                raise FeedRefused(
                    f"{path}: was written by a newer conclad (layout {layout}, this one knows "
                    f"{LAYOUT}); upgrade, or name another journal with --name"
                )
            self._db.executescript(f"{_TABLES} PRAGMA user_version = {LAYOUT};")
        except sqlite3.Error as error:
            raise FeedRefused(
                f"{path}: the journal cannot be opened ({error}); if it is damaged, move it away: "
                "images already in the feed would then be added again"
            ) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def is_known(self, item: Item) -> bool:
        """Whether this was read before in the same state."""
        with self._lock:
            stamp = self._items.get(item.key)
            if stamp is None:
                row = self._db.execute(
                    "SELECT stamp FROM items WHERE key = ?", (item.key,)
                ).fetchone()
                stamp = row and row[0]
        return stamp == item.stamp

    def admit(self, picture: Picture) -> str | None:
        """The image_id under which a picture enters the feed; None if it is there already."""
        digest, image_id = picture.digest(), picture.image_id
        with self._lock:
            self._items[picture.item.key] = picture.item.stamp
            while True:
                name = name_key(f"{picture.source_id}\0{image_id}")
                known = self._digest(name)
                if known is None:
                    self._images[name] = digest
                    return image_id
                if known == digest:
                    return None
                # Another image of that name: an overwritten file, or two folders alike.
                image_id = f"{image_id}~{short_hash(digest).hex()[:12]}"

    def note(self, item: Item) -> None:
        """This has been dealt with, whether or not it gave an image."""
        with self._lock:
            self._items[item.key] = item.stamp

    @property
    def pending(self) -> int:
        """Notes that no transaction holds yet."""
        return len(self._items)

    def next_number(self) -> int:
        [(newest,)] = self._db.execute("SELECT MAX(number) FROM batches").fetchall()
        return (newest or 0) + 1

    def plan(self, number: int, file: str) -> None:
        """One transaction: this batch will be this file, and holds all that is pending."""
        with self._lock:
            self._write(number, file)

    def keep_notes(self) -> None:
        """Write down what is pending when it has brought no image."""
        with self._lock:
            if self._images:
                raise AssertionError("images are pending, so this needs a batch")
            self._write(None, "")

    def finish(self, number: int) -> None:
        """The file bears its name. The next plan says the same, so this is for the last batch."""
        with self._lock:
            self._db.execute("UPDATE batches SET done = 1 WHERE number = ?", (number,))

    def unfinished(self) -> list[Planned]:
        rows = self._db.execute("SELECT number, file FROM batches WHERE NOT done ORDER BY number")
        return [Planned(*row) for row in rows]

    def forget(self, number: int) -> None:
        """A planned batch never became a file: its images are as new as any."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            for table, column in (("items", "batch"), ("images", "batch"), ("batches", "number")):
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
            self._db.execute("COMMIT")

    def total(self) -> tuple[int, int]:
        """Batches and images of all runs together."""
        [row] = self._db.execute("SELECT COUNT(*), COALESCE(SUM(images), 0) FROM batches")
        return int(row[0]), int(row[1])

    def _digest(self, name: bytes) -> bytes | None:
        digest = self._images.get(name)
        if digest is None:
            row = self._db.execute("SELECT digest FROM images WHERE name = ?", (name,)).fetchone()
            digest = row and row[0]
        return digest

    def _write(self, number: int | None, file: str) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        if number is not None:
            # Batches are published one after the other: whoever plans one has finished the last.
            self._db.execute("UPDATE batches SET done = 1 WHERE NOT done")
            self._db.execute(
                "INSERT INTO batches VALUES (?, ?, ?, 0)", (number, file, len(self._images))
            )
            self._db.executemany(
                "INSERT INTO images VALUES (?, ?, ?)",
                ((name, digest, number) for name, digest in self._images.items()),
            )
        self._db.executemany(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?)",
            ((key, stamp, number or 0) for key, stamp in self._items.items()),
        )
        self._db.execute("COMMIT")
        self._items, self._images = {}, {}
