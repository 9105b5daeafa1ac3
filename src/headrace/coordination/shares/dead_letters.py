"""Dead letters of share groups (KIP-1191): records that are not delivered again.

A record that was rejected, or that has used up its deliveries, is written to the topic in the
group's config `errors.deadletterqueue.topic.name`, before the state of the group says that it is
done. After a crash in between it is written again: dead letters may have duplicates, but none is
lost. The names of configs and headers are those of Kafka 4.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.cluster.image import Image
from headrace.cluster.metadata import Metadata
from headrace.coordination.shares.share_group_settings import ShareGroupSettings
from headrace.coordination.shares.share_partition import UndeliverableRecords
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.settings import Settings, log_settings
from headrace.types import BrokerId, TopicPartition
from headrace.wire import batch
from headrace.wire.primitives import TopicName, i16, i32, milliseconds, records
from headrace.wire.records import Record, encode_batch, iterate

if TYPE_CHECKING:
    from headrace.wire.records import RecordHeader

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
_SMALL_BYTES = 64 * 1024
"""Batches of this size are decoded in the event loop, larger ones in a worker thread."""
_BATCH_BYTES = 512 * 1024
_TIMEOUT_MS = 10_000


class DeadLetters:
    """Writes dead letters to their topics."""

    def __init__(
        self, settings: Settings, metadata: Metadata, replicas: Replicas, peers: Peers
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._replicas = replicas
        self._peers = peers

    async def write(
        self,
        group_id: str,
        source: Partition,
        settings: ShareGroupSettings,
        undeliverable: Sequence[UndeliverableRecords],
    ) -> None:
        """Write the records to the group's topic; KafkaError if that has to be tried again.

        Without a topic that may be used nothing is written, and that is logged.
        """
        topic = settings.dead_letter_topic
        if not topic:
            return
        why = self._refusal(topic, source.name)
        if why:
            logger.error(
                "records of %s that group %s does not accept are not kept: %s",
                source.name, group_id, why,
            )  # fmt: skip
            return
        for run in undeliverable:
            letters = await self._letters(group_id, source, run, settings.copies_dead_letters)
            for part in _parts(letters):
                await self._append(topic, source.name.partition, part)

    def _refusal(self, name: str, source: TopicPartition) -> str:
        """Why the topic may not be used; empty if it may."""
        image: Image = self._metadata.image
        topic = image.topics.get(name)
        prefix = self._settings.text("errors.deadletterqueue.topic.name.prefix")
        if name == source.topic:
            return f"{name} is the topic that they come from"
        if not name.startswith(prefix):
            return f"the name of {name} does not begin with {prefix}"
        if topic is None:
            return f"there is no topic {name}"
        configs = log_settings(self._replicas.settings_now, topic.configs)
        if not configs.errors_deadletterqueue_group_enable:
            return f"{name} does not have errors.deadletterqueue.group.enable=true"
        return ""

    # ----------------------------------------------------------------------------------- reading

    async def _letters(
        self, group_id: str, source: Partition, run: UndeliverableRecords, copies: bool
    ) -> list[Record]:
        now_ms = self._replicas.now_ms()
        if not copies:
            return [
                Record(0, now_ms, None, None, _headers(group_id, source.name, offset, run))
                for offset in range(run.first, run.last + 1)
            ]
        found = await self._read(source, run.first, run.last)
        return [
            Record(
                0, now_ms, one.key, one.value,
                one.headers + _headers(group_id, source.name, one.offset, run),
            )
            for one in found
        ]  # fmt: skip

    async def _read(self, source: Partition, first: int, last: int) -> list[Record]:
        """The records in a range of offsets; those that were deleted meanwhile are left out."""
        found: list[Record] = []
        offset = max(first, source.replica.log.start_offset)
        while offset <= last:
            piece = source.replica.read(offset, _READ_BYTES, True)
            if piece is None:
                break
            data = source.replica.read_bytes(piece)
            decode = partial(_decode, data, first, last, self._replicas.max_decompressed_bytes)
            if len(data) <= _SMALL_BYTES:
                more, following = decode()
            else:
                loop = asyncio.get_running_loop()
                more, following = await loop.run_in_executor(None, decode)
            if following <= offset:
                break
            found += more
            offset = following
        return found

    # ----------------------------------------------------------------------------------- writing

    async def _append(self, topic: str, index: int, letters: Sequence[Record]) -> None:
        partitions = self._replicas.topic(topic)
        if not partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        target = partitions[index % len(partitions)]
        data = encode_batch(letters)
        if not target.leads:
            await self._send(target.leader, target.name, bytes(data))
            return
        end = target.append_own(data, self._replicas.now_ms()) + len(letters)
        if not target.replica.is_committed(end):
            await target.wait_committed(end)

    async def _send(self, leader: BrokerId, target: TopicPartition, data: bytes) -> None:
        """Have another broker append the records."""
        from kio.schema.produce.v9 import request as asked
        from kio.schema.produce.v9.response import ProduceResponse

        row = asked.PartitionProduceData(index=i32(target.partition), records=records(data))
        topic = asked.TopicProduceData(name=TopicName(target.topic), partition_data=(row,))
        request = asked.ProduceRequest(
            transactional_id=None, acks=i16(-1), timeout=milliseconds(_TIMEOUT_MS),
            topic_data=(topic,),
        )  # fmt: skip
        answer = await self._peers.ask(leader, request, ProduceResponse)
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code:
            raise KafkaError(ErrorCode(code), f"cannot write dead letters to {target}")


def _headers(
    group_id: str, source: TopicPartition, offset: int, run: UndeliverableRecords
) -> tuple[RecordHeader, ...]:
    return (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", str(source.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", group_id.encode()),
        ("__dlq.errors.delivery.count", str(run.deliveries).encode()),
        ("__dlq.errors.message", run.reason.encode()),
    )


def _decode(data: bytes, first: int, last: int, most: int) -> tuple[list[Record], int]:
    """The records of a range in whole batches, and the offset after these batches."""
    found: list[Record] = []
    pos, following = 0, -1
    while len(data) - pos >= batch.HEADER_BYTES:
        header = batch.read_header(data, pos)
        end = pos + header.size_bytes
        if end > len(data):
            break
        following = header.next_offset
        if header.last_offset >= first and header.base_offset <= last:
            found += [one for one in iterate(data, pos, end, most) if first <= one.offset <= last]
        pos = end
    return found, following


def _parts(letters: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in batches of a moderate size."""
    part: list[Record] = []
    size = 0
    for one in letters:
        part.append(one)
        size += len(one.key or b"") + len(one.value or b"") + 500
        if size >= _BATCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
