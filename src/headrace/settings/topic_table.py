"""The settings of a topic: Kafka 4.3's names, types, defaults and checks.

A topic setting is declared once, as a field of `LogSettings` (or in `NOT_IN_LOGS`). The topic
config, the broker settings that give its default, the value that logs use, and the rows of
docs/settings.md derive from that declaration.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from headrace.settings.no_effect import marked
from headrace.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Check,
    Setting,
    Synonym,
    Type,
    Value,
    at_least,
    at_least_or,
    between,
    between_or,
    each_matching,
    matching,
    one_of,
    some_of,
)

BOOLEAN, STRING, INT, LONG = Type.BOOLEAN, Type.STRING, Type.INT, Type.LONG
DOUBLE, LIST = Type.DOUBLE, Type.LIST
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
MIB = 1 << 20
UNITS = {MINUTE_MS: "minutes", HOUR_MS: "hours"}

THROTTLED = each_matching(
    r"\*|[0-9]+:[0-9]+", "* or partition:broker pairs separated by commas, such as 0:1,1:2"
)._replace(empty_words=True)
OFFSETS_EXPECTED = "offsets separated by commas, such as 120,98"
FOREVER_OR_AT_LEAST_ONE = at_least_or(1, -1)


class BrokerDefault(NamedTuple):
    """A broker setting that gives the default of a topic config, in its unit.

    Check and doc are those of the topic config unless they are given.
    """

    name: str
    factor: int = 1
    check: Check | None = None
    doc: str = ""


class TopicSetting(NamedTuple):
    """A topic config and the broker settings for its default; the first with a value is used."""

    config: Setting
    defaults: tuple[BrokerDefault, ...]

    def broker_rows(self) -> Iterator[Setting]:
        """The rows of the broker settings: the last one has the default, the first is live."""
        config, previous = self.config, ""
        for broker in self.defaults:
            doc = broker.doc or f"{config.doc} For topics that do not set {config.name}."
            if broker.factor != 1:
                unit, first = UNITS[broker.factor], self.defaults[0].name
                doc = f"{first} in {unit}; used if {previous} is not set."
            last = broker is self.defaults[-1]
            default = _in_unit(config.default, broker.factor) if last else None
            kind = config.type if broker.factor == 1 else INT
            check = broker.check or config.check
            yield Setting(broker.name, kind, default, doc, check, live=not previous)
            previous = broker.name


def _in_unit(value: Value, factor: int) -> Value:
    return value // factor if isinstance(value, int) and factor != 1 else value


def _declare(
    name: str,
    kind: Type,
    default: Value,
    check: Check | None,
    brokers: str | tuple[BrokerDefault, ...],
    doc: str,
) -> TopicSetting:
    if isinstance(brokers, str):
        brokers = (BrokerDefault(brokers),) if brokers else ()
    synonyms = tuple(Synonym(broker.name, broker.factor) for broker in brokers)
    return TopicSetting(Setting(name, kind, default, doc, check, "topic", True, synonyms), brokers)


def _topic(
    name: str,
    kind: Type,
    default: Value,
    check: Check | None,
    brokers: str | tuple[BrokerDefault, ...],
    doc: str,
) -> Any:
    """A field of `LogSettings` that is a topic setting."""
    row = _declare(name, kind, default, check, brokers, doc)
    value = frozenset(default) if isinstance(default, tuple) else default
    return field(default=value, metadata={"setting": row})


def _broker(row: Setting) -> Any:
    """A field of `LogSettings` that is a broker setting; topics have no config for it."""
    return row.default


# fmt: off
PRODUCER_ID_EXPIRATION = Setting(
    "producer.id.expiration.ms", INT, DAY_MS,
    "Time after its last produce at which the sequence numbers of a producer are deleted.",
    at_least(1), live=True,
)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one topic's logs behave: its configs over the broker's, over the defaults."""

    cleanup_policy: frozenset[str] = _topic(
        "cleanup.policy", LIST, ("delete",), some_of("compact", "delete", "consumed"),
        "log.cleanup.policy",
        "What happens to old records: delete removes whole segments by age, size and number; "
        "compact keeps the last record of each key; consumed removes segments as soon as "
        "consumed.groups have read them. Policies can be combined; with none, all records stay.")
    compression_type: str = _topic(
        "compression.type", STRING, "producer",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"), "compression.type",
        "The codec of stored batches; producer stores batches as the producer sent them.")
    compression_gzip_level: int = _topic(
        "compression.gzip.level", INT, -1, between_or(1, 9, -1), "compression.gzip.level",
        "The compression level if compression.type is gzip; -1 is the default of zlib.")
    compression_lz4_level: int = _topic(
        "compression.lz4.level", INT, 9, between(1, 17), "compression.lz4.level",
        "The compression level if compression.type is lz4.")
    compression_zstd_level: int = _topic(
        "compression.zstd.level", INT, 3, between(-131_072, 22), "compression.zstd.level",
        "The compression level if compression.type is zstd.")
    consumed_groups: frozenset[str] = _topic(
        "consumed.groups", LIST, (), None, "",
        "Consumer groups that must have read a segment before cleanup.policy=consumed deletes "
        "it; if empty, every group that has committed an offset of the topic.")
    delete_retention_ms: int = _topic(
        "delete.retention.ms", LONG, DAY_MS, at_least(0), "log.cleaner.delete.retention.ms",
        "How long compaction keeps a tombstone, so that slow consumers still see the deletion.")
    file_delete_delay_ms: int = _topic(
        "file.delete.delay.ms", LONG, MINUTE_MS, at_least(0), "log.segment.delete.delay.ms",
        "How long the files of a deleted segment stay on disk.")
    flush_messages: int = _topic(
        "flush.messages", LONG, LONG_MAX, at_least(1), "log.flush.interval.messages",
        "Number of records after which the log is synced to disk. With 1 every acknowledgement "
        "waits for a sync, which it shares with the others that wait at that time.")
    flush_ms: int = _topic(
        "flush.ms", LONG, LONG_MAX, at_least(0),
        (BrokerDefault("log.flush.interval.ms"),
         BrokerDefault("log.flush.scheduler.interval.ms", check=at_least(1), doc=
                       "Time between two checks for logs to sync; also log.flush.interval.ms if "
                       "that is not set.")),
        "The longest time that a record stays unsynced; by default the operating system decides.")
    follower_replication_throttled_replicas: frozenset[str] = _topic(
        "follower.replication.throttled.replicas", LIST, (), THROTTLED, "",
        "Replicas that follower.replication.throttled.rate slows down while they are copied: "
        "partition:broker pairs, or * for all.")
    errors_deadletterqueue_group_enable: bool = _topic(
        "errors.deadletterqueue.group.enable", BOOLEAN, False, None, "",
        "Whether share groups may write dead letters to this topic.")
    fork_of: str = _topic(
        "fork.of", STRING, "", None, "",
        "The topic whose records below fork.offsets this one begins with. Set it when the topic "
        "is created; it cannot be altered.")
    fork_of_id: str = _topic(
        "fork.of.id", STRING, "", None, "",
        "The id of the topic in fork.of. The broker sets it.")
    fork_offsets: str = _topic(
        "fork.offsets", STRING, "", matching(r"([0-9]+(,[0-9]+)*)?", OFFSETS_EXPECTED), "",
        "The offsets at which the partitions of a fork begin to have records of their own, in the "
        "order of the partitions and separated by commas. It cannot be altered.")
    index_interval_bytes: int = _topic(
        "index.interval.bytes", INT, 4096, at_least(0), "log.index.interval.bytes",
        "Bytes of log between two entries of the offset index.")
    key_schema_validation: bool = _topic(
        "key.schema.validation", BOOLEAN, False, None, "",
        "Accept only records whose key is null or begins with the id of a schema that is "
        "registered in headrace.schemas.topic; others are refused with INVALID_RECORD.")
    leader_replication_throttled_replicas: frozenset[str] = _topic(
        "leader.replication.throttled.replicas", LIST, (), THROTTLED, "",
        "Replicas that leader.replication.throttled.rate slows down while others copy from "
        "them: partition:broker pairs, or * for all.")
    max_compaction_lag_ms: int = _topic(
        "max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), "log.cleaner.max.compaction.lag.ms",
        "The longest time that a record may stay out of compaction.")
    max_message_bytes: int = _topic(
        "max.message.bytes", INT, MIB + 12, at_least(0), "message.max.bytes",
        "The largest record batch that is accepted, as it is sent: compressed, with its header.")
    message_timestamp_after_max_ms: int = _topic(
        "message.timestamp.after.max.ms", LONG, HOUR_MS, at_least(0),
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie ahead of the broker's clock; only with CreateTime.")
    message_timestamp_before_max_ms: int = _topic(
        "message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0),
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie behind the broker's clock; only with CreateTime.")
    message_timestamp_type: str = _topic(
        "message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
        "The timestamp of a record: the one that the producer gave, or the broker's at the append.")
    min_cleanable_dirty_ratio: float = _topic(
        "min.cleanable.dirty.ratio", DOUBLE, 0.5, between(0, 1), "log.cleaner.min.cleanable.ratio",
        "The share of a compacted log that must be new before it is compacted again.")
    min_compaction_lag_ms: int = _topic(
        "min.compaction.lag.ms", LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
        "The age below which a record is not compacted.")
    min_insync_replicas: int = _topic(
        "min.insync.replicas", INT, 1, at_least(1), "min.insync.replicas",
        "Replicas that must have a record before acks=all is answered; with fewer in sync "
        "such produces are refused.")
    preallocate: bool = _topic(
        "preallocate", BOOLEAN, False, None, "log.preallocate",
        "Reserve the whole size of a new segment on disk at once.")
    record_validation: str = _topic(
        "record.validation", STRING, "lengths", one_of("lengths", "full"), "log.record.validation",
        "What is checked of a producer's records. lengths: their number and lengths in every "
        "uncompressed batch, all fields in uncompressed batches of up to 32 records. full: all "
        "fields of all records, compressed or not, at up to some microseconds a record.")
    retention_bytes: int = _topic(
        "retention.bytes", LONG, -1, None, "log.retention.bytes",
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.")
    retention_hold_bytes: int = _topic(
        "retention.hold.bytes", LONG, 10 * 1024 * MIB, at_least(0), "log.retention.hold.bytes",
        "Bytes of a partition that retention.hold.groups may keep beyond its other limits.")
    retention_hold_groups: frozenset[str] = _topic(
        "retention.hold.groups", LIST, (), None, "",
        "Consumer groups that delay the deletion of segments until they have read them, up to "
        "retention.hold.bytes.")
    retention_messages: int = _topic(
        "retention.messages", LONG, -1, FOREVER_OR_AT_LEAST_ONE, "log.retention.messages",
        "The number of newest records of a partition that are always kept; older segments are "
        "deleted. -1 is no limit. Offsets of transaction markers and of compacted records count.")
    retention_ms: int = _topic(
        "retention.ms", LONG, WEEK_MS, at_least(-1),
        (BrokerDefault("log.retention.ms", check=FOREVER_OR_AT_LEAST_ONE),
         BrokerDefault("log.retention.minutes", MINUTE_MS, FOREVER_OR_AT_LEAST_ONE),
         BrokerDefault("log.retention.hours", HOUR_MS, FOREVER_OR_AT_LEAST_ONE)),
        "Age at which a segment is deleted; -1 is never.")
    retention_warn_ratio: float = _topic(
        "retention.warn.ratio", DOUBLE, 0.1, between(0, 1), "log.retention.warn.ratio",
        "The broker warns of a group that has not read a segment when no more than this share "
        "of retention.ms, retention.bytes or retention.messages is left of it; 0 is never.")
    segment_bytes: int = _topic(
        "segment.bytes", INT, 1024 * MIB, at_least(MIB), "log.segment.bytes",
        "Size at which a new segment is begun.")
    segment_index_bytes: int = _topic(
        "segment.index.bytes", INT, 10 * MIB, at_least(4), "log.index.size.max.bytes",
        "The largest size of a segment's index; a full index begins a new segment.")
    segment_jitter_ms: int = _topic(
        "segment.jitter.ms", LONG, 0, at_least(0),
        (BrokerDefault("log.roll.jitter.ms"), BrokerDefault("log.roll.jitter.hours", HOUR_MS)),
        "The longest random time that is subtracted from segment.ms, so that partitions do not "
        "all roll at once.")
    segment_ms: int = _topic(
        "segment.ms", LONG, WEEK_MS, at_least(1),
        (BrokerDefault("log.roll.ms"), BrokerDefault("log.roll.hours", HOUR_MS)),
        "Age at which a new segment is begun even if the old one is not full.")
    unclean_leader_election_enable: bool = _topic(
        "unclean.leader.election.enable", BOOLEAN, False, None, "unclean.leader.election.enable",
        "Let a replica that is not in sync become leader if no other is left. The partition is "
        "available again, and records may be lost.")
    value_schema_validation: bool = _topic(
        "value.schema.validation", BOOLEAN, False, None, "",
        "Accept only records whose value is null or begins with the id of a schema that is "
        "registered in headrace.schemas.topic; others are refused with INVALID_RECORD.")
    producer_id_expiration_ms: int = _broker(PRODUCER_ID_EXPIRATION)

    def fork_offset(self, partition: int) -> int:
        """The offset below which a partition has its parent's records; 0 if it is no fork."""
        if not self.fork_of:
            return 0
        offsets = self.fork_offsets.split(",")
        return int(offsets[partition]) if partition < len(offsets) else 0


NOT_IN_LOGS = (
    _declare("internal.segment.bytes", INT, None, between(1, INT_MAX), "",
             "For tests: a segment size below the smallest value of segment.bytes."),
    _declare("local.retention.bytes", LONG, -2, at_least(-2), "log.local.retention.bytes",
             "Bytes kept locally of a tiered topic."),
    _declare("local.retention.ms", LONG, -2, at_least(-2), "log.local.retention.ms",
             "Time for which records of a tiered topic are kept locally."),
    _declare("remote.log.copy.disable", BOOLEAN, False, None, "",
             "Stop copying a tiered topic to remote storage."),
    _declare("remote.log.delete.on.disable", BOOLEAN, False, None, "",
             "Delete remote data when tiering is disabled."),
    _declare("remote.storage.enable", BOOLEAN, False, None, "",
             "Keep old segments in remote storage. Headrace has no tiered storage: all segments "
             "stay local."),
)
"""Topic settings that are not fields of LogSettings."""
# fmt: on

_FIELDS: dict[str, TopicSetting] = {
    one.name: one.metadata["setting"] for one in fields(LogSettings) if one.metadata
}
_ALL = sorted((*_FIELDS.values(), *NOT_IN_LOGS), key=lambda one: one.config.name)

TOPIC_TABLE: dict[str, Setting] = {one.config.name: marked(one.config) for one in _ALL}

TOPIC_DEFAULTS: tuple[Setting, ...] = tuple(row for one in _ALL for row in one.broker_rows())
"""The broker settings that give defaults of topic configs."""

FIELDS = {
    **{one.config.name: name for name, one in _FIELDS.items()},
    # Last, because it takes the place of segment.bytes if it is given.
    "internal.segment.bytes": "segment_bytes",
}
"""The field of LogSettings that holds a topic config."""
