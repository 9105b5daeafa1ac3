"""A push source as a source of ranges: a thread receives into a spool, and epochs read the spool.

Only the instance that is asked for `latest` receives, which is the one of Spark's reader on the
driver. Tasks have instances of their own and only read.
"""

import contextlib
import hashlib
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.connect.connectors.ddl import arrow_schema
from headrace.connect.plugin import (
    PushSource,
    Received,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)
from headrace.connect.push.spool import MAX_BYTES, Spool, SpoolClosed, read_range

SEQUENCE: Final = "sequence"
"""The offset: the number of the first row that was not read."""
MAX_BYTES_OPTION = "headrace.spool.max.bytes"
ENDS_WITHIN_S = 5.0


class SpooledSource(Source):
    """The messages of a push source, exactly once from the spool on."""

    def __init__(self, source: PushSource, folder: Path) -> None:
        self.config = source.config
        self._source = source
        self._folder = folder
        (stream,) = source.streams()
        self._schema = arrow_schema(stream.schema)
        self._receiver: _Receiver | None = None

    def streams(self) -> Sequence[SourceStream]:
        return self._source.streams()

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        position = _sequence(start)
        if self._receiver is None:
            limit_bytes = int(self.config.get(MAX_BYTES_OPTION) or MAX_BYTES)
            spool = Spool(self._folder, self._schema, position, limit_bytes)
            self._receiver = _Receiver(self._source, spool)
        spool = self._receiver.spool
        self._receiver.acknowledge()
        end = spool.sync()
        begin = spool.start if position is None else position
        if end > begin:
            return {SEQUENCE: min(end, begin + limit)}
        # Rows that were received before the failure are read first.
        if self._receiver.failure is not None:
            raise self._receiver.failure
        return start

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> Iterator[pa.RecordBatch]:
        upto = _sequence(end)
        assert upto is not None, "a range has an end"
        return read_range(self._folder, self._schema, _sequence(start), upto)

    def commit(self, partition: SourcePartition, end: SourceOffset) -> None:
        upto = _sequence(end)
        if self._receiver is not None and upto is not None:
            self._receiver.spool.cut(upto)
            self._receiver.acknowledge()

    def close(self) -> None:
        """Disconnect. Messages that are not acknowledged come again."""
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None


def _sequence(offset: SourceOffset | None) -> int | None:
    return None if offset is None else int(str(offset[SEQUENCE]))


class _Receiver:
    """The thread that receives, and what is not acknowledged yet."""

    def __init__(self, source: PushSource, spool: Spool) -> None:
        self.spool = spool
        self.failure: BaseException | None = None
        self._source = source
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._receipts: deque[tuple[object, int]] = deque()
        """Receipts in the order of their arrival, each with the number of its row."""
        self._expected = self._unacknowledged()
        self._thread = threading.Thread(target=self._run, name="receive", daemon=True)
        self._thread.start()

    def acknowledge(self) -> None:
        """Acknowledge the messages whose rows are in the topic."""
        last = None
        with self._lock:
            while self._receipts and self._receipts[0][1] < self.spool.start:
                last = self._receipts.popleft()
        if last is not None and self.failure is None:
            self._source.acknowledge(last[0])

    def close(self) -> None:
        self._stopping.set()
        self.spool.close()
        self._thread.join(ENDS_WITHIN_S)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._source.receive()) as messages:
                for message in messages:
                    if self._stopping.is_set():
                        return
                    if message is not None:
                        self._take(message)
            raise ConnectionError(f"{type(self._source).__name__}.receive has ended")
        except SpoolClosed:
            pass
        except BaseException as error:
            self.failure = error

    def _take(self, message: Received) -> None:
        number = self._number_in_spool(message) if message.redelivered else None
        if number is None:
            number = self.spool.append(message.row)
        with self._lock:
            self._receipts.append((message.receipt, number))

    def _unacknowledged(self) -> dict[bytes, deque[int]]:
        """The rows that the external system delivers again, with their numbers.

        The topic does not have them yet, so that none of them was acknowledged. A message that is
        delivered again and equals one of them must therefore be one of them, or take its place.
        """
        found: dict[bytes, deque[int]] = defaultdict(deque)
        number, end = self.spool.start, self.spool.sync()
        if number < end:
            for batch in read_range(self.spool.folder, self.spool.schema, number, end):
                for row in batch.to_pylist():
                    found[_digest(row)].append(number)
                    number += 1
        return found

    def _number_in_spool(self, message: Received) -> int | None:
        batch = pa.RecordBatch.from_pylist([message.row], schema=self.spool.schema)
        numbers = self._expected.get(_digest(batch.to_pylist()[0]))
        return numbers.popleft() if numbers else None


def _digest(row: Mapping[str, object]) -> bytes:
    return hashlib.sha256(repr(row).encode()).digest()


def spooled(source: Source, folder: Path) -> Source:
    """The source itself if it reads ranges; a push source with its spool in the folder."""
    return SpooledSource(source, folder) if isinstance(source, PushSource) else source
