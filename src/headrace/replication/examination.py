"""Checks and recompression of a client's batch that the topic's settings require.

Most batches are examined at once, while they are appended. One with very many records, or with very
many bytes when it is decompressed, would keep the event loop busy: `Examination.at_once` raises
`TakesLong` for it. The caller completes the examination in steps and in a worker thread
(`apis/records/long_batches.py`), and then appends the batch with the result.
"""

from typing import NamedTuple, Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.batch_rules import (
    DECODED_BYTES,
    DECODED_RECORDS,
    compression_level,
    largest_by_header,
    record_steps,
)
from headrace.replication.schema_ids import SchemaIds
from headrace.settings import LogSettings
from headrace.wire import batch
from headrace.wire.record_checks import check_lengths, length_steps
from headrace.wire.records import repack, unpack, walk_starts
from headrace.wire.steps import AT_ONCE_BYTES, AT_ONCE_RECORDS, Steps, finish

_STRIDE = 256
"""Records checked between two yields."""


class BatchLimits(Protocol):
    """The limits for all batches of a broker."""

    max_decompressed_bytes: int
    schema_ids: SchemaIds


class Examined(NamedTuple):
    """The result of an examination."""

    settings: LogSettings
    """The topic's settings that it was made for."""
    largest: int | None
    """The largest timestamp, -1 if there is none, None if it was not determined."""
    batch: bytearray | None
    """The whole batch in the topic's codec, if that is another one."""


class Examination:
    """Examines the records of one batch: `unpack`, then `steps`, then `pack`."""

    __slots__ = (
        "_cap", "_codec", "_each", "_header", "_limits", "_needed", "_now_ms", "_payload",
        "_schemas", "_settings", "_topic", "_walks", "batch",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        settings: LogSettings,
        limits: BatchLimits,
        whole: memoryview,
        header: batch.Header,
        now_ms: int,
        *,
        all_records: bool,
        doubtful: bool,
        codec: int | None,
    ) -> None:
        """`codec`: the topic's, if the batch has another one.

        `all_records`: the topic asks for a look at every record. `doubtful`: the header does not
        prove the timestamps; a large batch is not decoded for that alone.
        """
        self.batch = whole
        """The whole batch. A caller that completes the examination later replaces it by a copy."""
        self._topic = topic
        self._settings = settings
        self._limits = limits
        self._header = header
        self._now_ms = now_ms
        self._codec = codec
        self._payload: bytes | bytearray | None = None
        self._schemas = settings.key_schema_validation or settings.value_schema_validation
        self._each = all_records or doubtful
        self._walks = (
            all_records or self._schemas or (header.record_count <= DECODED_RECORDS and doubtful)
        )
        """Whether each record is checked."""
        self._needed = all_records or self._schemas or codec is not None
        """Whether a batch that is too large is refused. Otherwise its header has to do."""
        self._cap = 0
        """The limit for the decompressed size; 0 if the batch is not decompressed."""
        if self._needed:
            self._cap = limits.max_decompressed_bytes
        elif self._walks:
            self._cap = min(limits.max_decompressed_bytes, DECODED_BYTES)

    def at_once(self) -> Examined:
        """The result; TakesLong if that would keep other clients waiting."""
        cap = self._cap
        if cap:
            if self._walks and self._header.record_count > AT_ONCE_RECORDS:
                raise TakesLong(self)
            if self._codec is not None and len(self.batch) > AT_ONCE_BYTES:
                raise TakesLong(self)
            try:
                self._unpack(min(cap, AT_ONCE_BYTES))
            except KafkaError as error:
                if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                if cap > AT_ONCE_BYTES:
                    raise TakesLong(self) from error
                if self._needed:
                    raise
        largest = finish(self.steps())
        return self.pack(largest)

    def unpack(self) -> None:
        """Decompress the records. May run in a worker thread."""
        try:
            self._unpack(self._cap)
        except KafkaError as error:
            if self._needed or error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                raise

    def _unpack(self, cap: int) -> None:
        self._payload = unpack(self.batch, 0, len(self.batch), self._header, cap)

    def steps(self) -> Steps[int | None]:
        """Check the records; returns their largest timestamp if that is needed."""
        header, payload = self._header, self._payload
        largest = None
        if self._each:
            topic, settings, now_ms = self._topic, self._settings, self._now_ms
            if payload is None or not self._walks:
                largest = largest_by_header(topic, header.max_timestamp, settings, now_ms)
            else:
                records = walk_starts(payload, header)
                largest = yield from record_steps(topic, records, settings, now_ms)
        if payload is None:
            return largest
        if self._schemas:
            yield from self._schema_id_steps(payload)
        elif not self._walks:
            if len(payload) <= AT_ONCE_BYTES:
                check_lengths(payload, 0, header.record_count, len(payload))
            else:
                yield from length_steps(payload, 0, header.record_count, len(payload))
        return largest

    def _schema_id_steps(self, payload: bytes | bytearray) -> Steps[None]:
        """Check that keys or values carry a registered schema id, if the topic validates
        schemas.
        """
        known, settings, topic = self._limits.schema_ids, self._settings, self._topic
        for number, record in enumerate(walk_starts(payload, self._header)):
            if record is None:
                yield
                continue
            if settings.key_schema_validation:
                known.check(topic, "key", record.key)
            if settings.value_schema_validation:
                known.check(topic, "value", record.value)
            if number % _STRIDE == _STRIDE - 1:
                yield

    def pack(self, largest: int | None) -> Examined:
        """The result, with the batch in the topic's codec. May run in a worker thread."""
        payload, codec, settings = self._payload, self._codec, self._settings
        self._payload = None
        if codec is None or payload is None:
            return Examined(settings, largest, None)
        if not codec:
            self._check_size(batch.HEADER_BYTES + len(payload))
        level = compression_level(settings)
        packed = repack(self.batch[: batch.HEADER_BYTES], self._header, payload, codec, level)
        self._check_size(len(packed))
        return Examined(settings, largest, packed)

    def _check_size(self, size: int) -> None:
        """Check the size again: recompression may have enlarged the batch."""
        settings = self._settings
        if size > settings.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size} bytes with compression.type={settings.compression_type} of "
                f"topic {self._topic}; its max.message.bytes is {settings.max_message_bytes}",
            )


class TakesLong(Exception):
    """A batch cannot be appended before its examination, which takes long, is completed."""

    def __init__(self, examination: Examination) -> None:
        super().__init__()
        self.examination = examination
