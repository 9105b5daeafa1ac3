"""Validation of a client's batch that does not depend on the state of the partition."""

from collections.abc import Iterable

from headrace.errors import ErrorCode, KafkaError
from headrace.log.segment_indexes import NO_TIMESTAMP
from headrace.settings import LONG_MAX, LogSettings
from headrace.wire import batch
from headrace.wire.compression import ZSTD
from headrace.wire.records import MIN_RECORD_BYTES, Record
from headrace.wire.steps import Steps

_REFUSED_ATTRIBUTES = batch.CONTROL | batch.LOG_APPEND_TIME

DECODED_RECORDS = 1000
DECODED_BYTES = 4 << 20
"""Batches of no more records, and no more bytes when decompressed, are decoded if their header has
no usable timestamps. Larger ones are not: decoding would keep all clients waiting."""

_STRIDE_MASK = 255
_MAX_RECORD_ERRORS = 1000
"""After this number of refused records, the rest of the batch is not checked."""


def check_attributes(attributes: int) -> None:
    """Refuse batches that only brokers may write, and unknown codecs."""
    if attributes & _REFUSED_ATTRIBUTES:
        if attributes & batch.CONTROL:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the log append time")
    if attributes & batch.CODEC_MASK > ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no codec {attributes & batch.CODEC_MASK}",
        )


def check_packed_count(record_count: int, max_decompressed_bytes: int) -> None:
    """Refuse a compressed batch with an impossible record count, without decompressing it."""
    if record_count * MIN_RECORD_BYTES > max_decompressed_bytes:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {record_count} records; no more than "
            f"headrace.max.decompressed.bytes={max_decompressed_bytes} of them can be read",
        )


def record_steps(
    topic: str, records: Iterable[Record | None], settings: LogSettings, now_ms: int
) -> Steps[int]:
    """Refuse records without a key on a compacted topic, and timestamps that are out of range.

    Works in steps; None among the records ends one. Returns the largest timestamp of the records,
    or -1 if none of them has one. Any other negative timestamp counts as absent too, but is checked
    against the limits, as in Apache Kafka. The error names the refused records, up to a limit that
    keeps the response small.
    """
    needs_key = "compact" in settings.cleanup_policy
    by_producer = settings.message_timestamp_type == "CreateTime"
    earliest = now_ms - settings.message_timestamp_before_max_ms
    latest = min(now_ms + settings.message_timestamp_after_max_ms, LONG_MAX)
    largest = NO_TIMESTAMP
    code = ErrorCode.INVALID_RECORD
    refused: list[tuple[int, str]] = []
    index = -1
    for record in records:
        if record is None:
            yield
            continue
        index += 1
        if index & _STRIDE_MASK == _STRIDE_MASK:
            yield
        timestamp = record.timestamp
        if needs_key and record.key is None:
            refused.append((index, f"topic {topic} is compacted: every record needs a key"))
        elif by_producer and not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
            code = ErrorCode.INVALID_TIMESTAMP
            why = (
                f"timestamp {timestamp} is out of range for topic {topic}: "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms "
                f"allow {earliest} to {latest}"
            )
            refused.append((index, why))
        if len(refused) == _MAX_RECORD_ERRORS:
            break
        largest = max(largest, timestamp)
    if refused:
        index, why = refused[0]
        raise KafkaError(
            code, f"{len(refused)} records are refused, the first at index {index}: {why}", refused
        )
    return largest


def largest_by_header(topic: str, max_timestamp: int, settings: LogSettings, now_ms: int) -> int:
    """The largest timestamp of a batch that is not decoded and whose header is doubtful.

    Returns -1 for an inconsistent header. A timestamp too far in the future is refused.
    """
    if max_timestamp - now_ms > settings.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the maximum timestamp {max_timestamp} is out of range for topic {topic}: "
            "message.timestamp.after.max.ms "
            f"allows up to {now_ms + settings.message_timestamp_after_max_ms}",
        )
    return NO_TIMESTAMP


def compression_level(settings: LogSettings) -> int | None:
    """The compression level of the topic's codec; None if the codec has no levels."""
    return {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }.get(settings.compression_type)
