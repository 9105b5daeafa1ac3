"""Fetched batches made ready for another topic, on this cluster or another one.

A batch is taken over as it is, compressed, if a producer may send it like that. Batches with gaps
or with timestamps of the broker are encoded again, with the same keys, values, headers, timestamps
and codec.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.committed_records import MAX_DECOMPRESSED_BYTES, visible_batches
from headrace.client.fetching import Fetched
from headrace.client.producing import ProducerIdentity
from headrace.wire.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    put_checksum,
    read_header,
)
from headrace.wire.records import encode_batch, iterate

MAX_SEQUENCE = 2**31 - 1
_BROKER_TIMES = LOG_APPEND_TIME | DELETE_HORIZON
"""Attributes that give timestamps of the broker; a producer cannot send them."""


class CopiedBatch(NamedTuple):
    """A batch for the copy."""

    data: bytearray
    offsets: Sequence[int]
    """The offsets of its records in the source."""
    next_offset: int
    """The first offset of the source after the batch."""


def copied_batches(fetched: Fetched, begin: int, end: int) -> Iterator[CopiedBatch]:
    """The batches with committed records in [begin, end)."""
    edges = [*fetched.positions, fetched.end]
    for start, stop, header in visible_batches(fetched.data, edges, fetched.aborted):
        whole = begin <= header.base_offset and header.last_offset < end
        dense = header.record_count == header.last_offset_delta + 1
        if whole and dense and not header.attributes & _BROKER_TIMES:
            offsets = range(header.base_offset, header.next_offset)
            yield CopiedBatch(bytearray(fetched.data[start:stop]), offsets, header.next_offset)
            continue
        records = [
            record
            for record in iterate(fetched.data, start, stop, MAX_DECOMPRESSED_BYTES)
            if begin <= record.offset < end
        ]
        if records:
            data = encode_batch(records, codec=header.attributes & CODEC_MASK)
            kept = [record.offset for record in records]
            yield CopiedBatch(data, kept, min(header.next_offset, end))


def put_producer(batch: bytearray, producer: ProducerIdentity, sequence: int) -> None:
    """Make a batch one of this producer, outside of transactions: it can be sent again safely."""
    header = read_header(batch, 0)
    header = header._replace(
        base_offset=0, partition_leader_epoch=-1, attributes=header.attributes & ~TRANSACTIONAL,
        producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=sequence,
    )  # fmt: skip
    HEADER.pack_into(batch, 0, *header)
    put_checksum(batch)
