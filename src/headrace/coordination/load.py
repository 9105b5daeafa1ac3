"""Reading a shard from its log: the last value of every key, replayed in the order of writing.

That is what compaction would have left, so whoever replays sees nothing that he would not see
after any other start. Everything here is a generator that yields where others may have their turn:
a large log must not hold up the event loop.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator

from crc32c import crc32c

from headrace.coordination import consumer_records, records
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Record
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.wire import batch
from headrace.wire.records import iterate

logger = logging.getLogger(__name__)

_STEP_BYTES = 64 * 1024
_STEP_RECORDS = 500


def latest_records(
    partition: Partition, max_decompressed: int, latest: dict[bytes, bytes | None]
) -> Iterator[None]:
    """Fill `latest` with the last value of each key in the log, in the order of writing."""
    offset = partition.log.start_offset
    while offset < partition.high_watermark:
        found = partition.read(offset, _STEP_BYTES, True)
        if found is None:
            return
        data = os.pread(found.file.fd, found.length, found.position)
        pos = 0
        while len(data) - pos >= batch.HEADER_BYTES:
            header = batch.read_header(data, pos)
            end = pos + batch.OVERHEAD + header[1]
            if crc32c(memoryview(data)[pos + batch.CHECKSUMMED_FROM : end]) != header[4]:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header[0]} is damaged"
                )
            offset = header[0] + header[6] + 1
            if not header[5] & batch.CONTROL:
                for record in iterate(data, pos, end, max_decompressed):
                    if record.key is not None:
                        latest.pop(record.key, None)
                        latest[record.key] = record.value
            pos = end
        yield


def replay_steps(groups: Groups, latest: dict[bytes, bytes | None]) -> Iterator[None]:
    """Replay what `latest_records` found."""
    unknown: set[str] = set()
    for count, (key, value) in enumerate(latest.items()):
        if count % _STEP_RECORDS == _STEP_RECORDS - 1:
            yield
        if value is None:
            continue
        try:
            groups.replay(*_decode(key, value))
        except (ValueError, IndexError, struct.error) as error:
            if str(error) not in unknown:
                logger.warning("passing over a record of another version: %s", error)
                unknown.add(str(error))


def _decode(key: bytes, value: bytes) -> Record:
    if int.from_bytes(key[:2], "big") in consumer_records.KEY_TYPES:
        return consumer_records.decode(key, value)
    return records.decode(key, value)
