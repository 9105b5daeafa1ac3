"""What a client's batch may say of itself, whatever the partition it goes to."""

from headrace.errors import ErrorCode, KafkaError
from headrace.settings import LogSettings
from headrace.wire import batch
from headrace.wire.compression import ZSTD

_REFUSED_ATTRIBUTES = batch.CONTROL | batch.LOG_APPEND_TIME


def check_attributes(attributes: int) -> None:
    """Refuse what only brokers may write, and codecs that nobody knows."""
    if attributes & _REFUSED_ATTRIBUTES:
        if attributes & batch.CONTROL:
            raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the log append time")
    if attributes & batch.CODEC_MASK > ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no codec {attributes & batch.CODEC_MASK}",
        )


def check_timestamps(topic: str, header: batch.Header, now_ms: int) -> None:
    """Timestamps too far from now; a record without one (-1) is nobody's mistake."""
    if header[8] == -1 or header[7] == -1:
        return
    raise KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header[7]} to {header[8]} are too far from the broker's time {now_ms} "
        f"for topic {topic} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
    )


def compression_level(settings: LogSettings) -> int | None:
    """How hard the topic's own codec shall try; None where the codec has no levels."""
    return {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }.get(settings.compression_type)
