"""What a topic's settings change in a client's batch: codec, append time, largest timestamp."""

from headrace.cluster.image import INTERNAL_TOPICS
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.examination import BatchLimits, Examination, Examined
from headrace.settings import LONG_MAX, LogSettings
from headrace.wire import batch
from headrace.wire.compression import CODECS


class BatchConversion:
    """The conversion of batches for one topic with one set of settings."""

    __slots__ = ("_checks_each_record", "_limits", "_settings", "_topic", "needed")

    def __init__(self, topic: str, settings: LogSettings, limits: BatchLimits) -> None:
        self._topic = topic
        self._settings = settings
        self._limits = limits
        self._checks_each_record = (
            settings.record_validation == "full"
            or "compact" in settings.cleanup_policy
            # A header has no minimum timestamp.
            or (
                settings.message_timestamp_type == "CreateTime"
                and settings.message_timestamp_before_max_ms != LONG_MAX
            )
        )
        self.needed = (
            self._checks_each_record
            or settings.message_timestamp_type == "LogAppendTime"
            or settings.compression_type != "producer"
            or settings.key_schema_validation
            or settings.value_schema_validation
            or topic in INTERNAL_TOPICS
        )
        """Whether every batch has to be converted, not only one with a doubtful header."""

    def convert(
        self, buf: bytearray, view: memoryview, pos: int, end: int, header: batch.HeaderFields,
        now_ms: int, doubtful: bool, examined: Examined | None,
    ) -> tuple[bytearray, memoryview, int, int, batch.HeaderFields, int]:  # fmt: skip
        """The batch to append, its place and header, and its append time or -1.

        `doubtful`: the header does not prove what the timestamps of the records are. TakesLong: the
        examination of the batch has to be completed first, and its result passed as `examined`.
        """
        _, _, _, _, _, attributes, _, _, max_timestamp, _, _, _, _ = header
        settings = self._settings
        if self._topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers write to the internal topic {self._topic}",
            )
        by_producer = settings.message_timestamp_type == "CreateTime"
        codec = CODECS.get(settings.compression_type)
        if codec == attributes & batch.CODEC_MASK:
            codec = None
        largest = None
        if (
            self._checks_each_record
            or (by_producer and doubtful)
            or codec is not None
            or settings.key_schema_validation
            or settings.value_schema_validation
        ):
            if examined is None or examined.settings is not settings:
                examined = Examination(
                    self._topic, settings, self._limits, view[pos:end],
                    batch.Header._make(header), now_ms,
                    all_records=self._checks_each_record, doubtful=by_producer and doubtful,
                    codec=codec,
                ).at_once()  # fmt: skip
            largest = examined.largest
            if examined.batch is not None:
                buf = examined.batch
                view, pos, end = memoryview(buf), 0, len(buf)
                header = batch.unpack_header(buf, 0)
        if not by_producer:
            batch.stamp_append_time(buf, view, pos, end, now_ms)
            return buf, view, pos, end, batch.unpack_header(buf, pos), now_ms
        if largest is not None and largest != max_timestamp:
            batch.put_max_timestamp(buf, view, pos, end, largest)
            header = batch.unpack_header(buf, pos)
        return buf, view, pos, end, header, -1
