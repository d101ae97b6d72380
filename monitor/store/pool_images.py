"""Single images of pools: where their features lie, and the open questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import select

from monitor.store.atomic_files import Folder
from monitor.store.record_states import QuestionState
from monitor.store.store import Store, Transaction
from monitor.store.tables import chunks, pool_members, questions
from monitor.store.verdict_columns import read_table

Key = tuple[str, str]
"""A source and an image id."""

REMEMBERED = 512
"""Spooled files whose image ids are kept in memory: some dozens of pools."""


def find_in_pools(store: Store, images: Sequence[Key]) -> dict[int, list[int]]:
    """The samples of these images by pool, as rows of all its spooled files in their order.

    An image without features (its pool was dropped) is left out; one that lies in several pools
    is taken from the latest.
    """
    wanted = set(images)
    found: dict[int, list[int]] = {}
    with store.reading() as tx:
        pools = [
            int(row[0])
            for row in tx.connection.execute(
                select(pool_members.c.pool_id).distinct().order_by(pool_members.c.pool_id.desc())
            )
        ]
        members = {pool: tx.pools.members(pool) for pool in pools}
    for pool in pools:
        first = 0
        for member in members[pool]:
            for row, key in enumerate(_keys(_Spooled(store.folder, member.name, member.sha256))):
                if key in wanted:
                    found.setdefault(pool, []).append(first + row)
                    wanted.discard(key)
            first += member.rows
        if not wanted:
            break
    return found


def open_questions(tx: Transaction, images: Sequence[Key]) -> list[int]:
    """The open questions about these images."""
    wanted = set(images)
    found: list[int] = []
    for piece in chunks([image for _, image in images]):
        rows = tx.connection.execute(
            select(questions.c.id, questions.c.source_id, questions.c.image_id).where(
                questions.c.state == QuestionState.OPEN, questions.c.image_id.in_(piece)
            )
        )
        found += [int(id) for id, source, image in rows if (source, image) in wanted]
    return sorted(set(found))


class _Spooled:
    """A spooled file, equal to whatever has the same hash."""

    def __init__(self, folder: Folder, name: str, sha256: str) -> None:
        self.folder, self.name, self.sha256 = folder, name, sha256

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Spooled) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


@lru_cache(maxsize=REMEMBERED)
def _keys(file: _Spooled) -> tuple[Key, ...]:
    try:
        table = read_table(file.folder, file.name, ["source_id", "image_id"])
    except FileNotFoundError:  # the pool was dropped meanwhile
        return ()
    return tuple(
        zip(
            table.column("source_id").to_pylist(), table.column("image_id").to_pylist(), strict=True
        )
    )
