"""Tracks the outcome of each transaction while compaction reads a log batch by batch.

Data of an aborted transaction is removed immediately. A marker may be removed when no data of its
transaction is left before it, after a delay that `compaction/rewrite.py` decides.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.wire.markers import Marker


class AbortedTransaction(NamedTuple):
    """An entry of the transaction index."""

    producer_id: int
    first_offset: int
    marker_offset: int
    last_stable_offset: int


class CleanedTransactions:
    """The transactions that are open at the current offset."""

    __slots__ = ("_aborted", "_committed", "_seen", "_upcoming", "kept")

    def __init__(self, aborted: Iterable[tuple[int, int, int, int]]) -> None:
        # Ordered by first offset, the next one last.
        rows = map(AbortedTransaction._make, aborted)
        self._upcoming = sorted(rows, key=_first_offset, reverse=True)
        # Open transactions that will be aborted, by producer id, and which of them have data.
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()
        # Producers with data that will be committed.
        self._committed: set[int] = set()
        self.kept: list[int] = []
        """The offsets of the markers of aborted transactions that have data."""

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional batch of data belongs to a transaction that was aborted."""
        self._advance_to(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is not None:
            if last_offset < aborted.marker_offset:
                self._seen.add(producer_id)
                return True
            # Its marker was removed. Later data belongs to another transaction.
            del self._aborted[producer_id]
        self._committed.add(producer_id)
        return False

    def may_go(
        self, producer_id: int, last_offset: int, marker: Marker | None, empty: bool
    ) -> bool:
        """Whether nothing of its transaction is left before this control batch.

        `marker` is None if it is another control record; `empty` if its record was removed before.
        """
        self._advance_to(last_offset)
        if empty:
            return True
        if marker is None:
            return False
        if marker.commit:
            if producer_id not in self._committed:
                return True
            self._committed.remove(producer_id)
            return False
        aborted = self._aborted.pop(producer_id, None)
        if aborted is None or producer_id not in self._seen:
            return True
        self._seen.remove(producer_id)
        self.kept.append(aborted.marker_offset)
        return False

    def _advance_to(self, offset: int) -> None:
        coming = self._upcoming
        while coming and coming[-1].first_offset <= offset:
            aborted = coming.pop()
            known = self._aborted.get(aborted.producer_id)
            # Otherwise the walk began after the marker of the other one.
            if known is None or known.marker_offset < aborted.first_offset:
                self._aborted[aborted.producer_id] = aborted


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
