"""What is planned and in nobody's hands: the ledger, read some way ahead."""

from __future__ import annotations

from collections import deque

from actors.flights import Flights
from monitor.store import Store
from monitor.store.rows import Batch, File

#: Batches that are read at once: enough that a quick crew does not ask the ledger every time.
AHEAD = 512


class Backlog:
    """The next batches, in the order of the ledger, with their files.

    >>> import tempfile
    >>> with Store.open(tempfile.mkdtemp()) as store:
    ...     Backlog(store, Flights()).take(3)
    []
    """

    def __init__(self, store: Store, flights: Flights) -> None:
        self._store, self._flights = store, flights
        self._ahead: deque[tuple[Batch, File]] = deque()
        self._has_more = True

    def look_again(self) -> None:
        """The ledger may hold more than when it was last read."""
        self._has_more = True

    def holds(self, count: int) -> bool:
        """Whether so many batches wait."""
        if len(self._ahead) < count and self._has_more:
            self._read(count)
        return len(self._ahead) >= count

    def take(self, count: int) -> list[tuple[Batch, File]]:
        """So many of the next batches, or as many as there are; the caller has them in hand."""
        self.holds(count)
        return [self._ahead.popleft() for _ in range(min(count, len(self._ahead)))]

    def remove_file(self, file_id: int) -> None:
        """Forget the batches of a file that was set aside."""
        self._ahead = deque(pair for pair in self._ahead if pair[0].file_id != file_id)

    def _read(self, count: int) -> None:
        limit = max(count, AHEAD) + len(self._flights)
        known = {file.id: file for _, file in self._ahead}
        with self._store.reading() as tx:
            found = tx.batches.pending(limit)
            batches = [batch for batch in found if self._flights.get(batch.id) is None]
            missing = {batch.file_id for batch in batches} - set(known)
            known |= {file.id: file for file in tx.files.get_many(missing)}
        self._ahead = deque((batch, known[batch.file_id]) for batch in batches)
        self._has_more = len(found) == limit
