"""The settings of a topic: Kafka 4.1's names, types, defaults and checks.

Each has a broker setting (its synonym) whose value counts where the topic gives none.
"""

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
    one_of,
    some_of,
)

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
MIB = 1 << 20
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")

COMPRESSION_TYPE = one_of("producer", *CODECS)
GZIP_LEVEL = between_or(1, 9, -1)
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131_072, 22)
CLEANUP_POLICY = some_of("compact", "delete", "consumed")
THROTTLED = each_matching(
    r"\*|[0-9]+:[0-9]+", "* or partition:broker pairs separated by commas, such as 0:1,1:2"
)


def _topic(
    name: str,
    kind: Type,
    default: Value,
    check: Check | None,
    synonyms: str | tuple[Synonym, ...],
    doc: str,
) -> Setting:
    if isinstance(synonyms, str):
        synonyms = (Synonym(synonyms),) if synonyms else ()
    return Setting(name, kind, default, doc, check, "topic", True, synonyms)


# fmt: off
_ROWS = (
    _topic("cleanup.policy", Type.LIST, ("delete",), CLEANUP_POLICY,
           "log.cleanup.policy",
           "What happens to old records: delete whole segments by age, size and number, compact to "
           "the newest record of each key, or both; consumed also deletes segments as soon as "
           "consumed.groups have read them. Nothing at all keeps everything."),
    _topic("compression.type", Type.STRING, "producer", COMPRESSION_TYPE, "compression.type",
           "The codec that batches are kept in; producer keeps what the producer sent."),
    _topic("compression.gzip.level", Type.INT, -1, GZIP_LEVEL, "compression.gzip.level",
           "How hard gzip tries where compression.type is gzip; -1 is zlib's own default."),
    _topic("compression.lz4.level", Type.INT, 9, LZ4_LEVEL, "compression.lz4.level",
           "How hard lz4 tries where compression.type is lz4."),
    _topic("compression.zstd.level", Type.INT, 3, ZSTD_LEVEL, "compression.zstd.level",
           "How hard zstd tries where compression.type is zstd."),
    _topic("consumed.groups", Type.LIST, (), None, "",
           "Consumer groups that must have read a segment before cleanup.policy=consumed deletes "
           "it; none named: every group that has committed an offset of the topic."),
    _topic("delete.retention.ms", Type.LONG, 24 * HOUR_MS, at_least(0),
           "log.cleaner.delete.retention.ms",
           "How long a compacted topic keeps a tombstone, so that slow readers still see the "
           "deletion."),
    _topic("file.delete.delay.ms", Type.LONG, 60_000, at_least(0), "log.segment.delete.delay.ms",
           "How long the files of a removed segment stay on disk before they are unlinked."),
    _topic("flush.messages", Type.LONG, LONG_MAX, at_least(1), "log.flush.interval.messages",
           "Records after which the log is synced to disk; 1 makes every acknowledgement wait "
           "for a sync that it shares with the others waiting at that time."),
    _topic("flush.ms", Type.LONG, LONG_MAX, at_least(0),
           (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
           "The longest time that a record stays unsynced; by default the operating system "
           "decides."),
    _topic("follower.replication.throttled.replicas", Type.LIST, (), THROTTLED, "",
           "Replicas that follower.replication.throttled.rate slows down while they are copied: "
           "partition:broker pairs, or * for all."),
    _topic("index.interval.bytes", Type.INT, 4096, at_least(0), "log.index.interval.bytes",
           "Bytes of log between two entries of the offset index."),
    _topic("internal.segment.bytes", Type.INT, None, between(1, INT_MAX), "",
           "For tests: a segment size below the smallest that segment.bytes takes."),
    _topic("leader.replication.throttled.replicas", Type.LIST, (), THROTTLED, "",
           "Replicas that leader.replication.throttled.rate slows down while others copy from "
           "them: partition:broker pairs, or * for all."),
    _topic("local.retention.bytes", Type.LONG, -2, at_least(-2), "log.local.retention.bytes",
           "Bytes kept locally of a tiered topic."),
    _topic("local.retention.ms", Type.LONG, -2, at_least(-2), "log.local.retention.ms",
           "Time for which records of a tiered topic are kept locally."),
    _topic("key.schema.validation", Type.BOOLEAN, False, None, "",
           "Take only records whose key is null or begins with the id of a schema that is "
           "registered in headrace.schemas.topic; others are refused with INVALID_RECORD."),
    _topic("max.compaction.lag.ms", Type.LONG, LONG_MAX, at_least(1),
           "log.cleaner.max.compaction.lag.ms",
           "The longest time that a record may stay out of compaction."),
    _topic("max.message.bytes", Type.INT, MIB + 12, at_least(0), "message.max.bytes",
           "The largest batch of records accepted, as it arrives (compressed, with its header)."),
    _topic("message.timestamp.after.max.ms", Type.LONG, HOUR_MS, at_least(0),
           "log.message.timestamp.after.max.ms",
           "How far a record's time may lie ahead of the broker's clock; only with CreateTime."),
    _topic("message.timestamp.before.max.ms", Type.LONG, LONG_MAX, at_least(0),
           "log.message.timestamp.before.max.ms",
           "How far a record's time may lie behind the broker's clock; only with CreateTime."),
    _topic("message.timestamp.type", Type.STRING, "CreateTime",
           one_of("CreateTime", "LogAppendTime"), "log.message.timestamp.type",
           "Whose clock stamps a record: the producer's, or the broker's at the append."),
    _topic("min.cleanable.dirty.ratio", Type.DOUBLE, 0.5, between(0, 1),
           "log.cleaner.min.cleanable.ratio",
           "The share of a compacted log that must be new before it is compacted again."),
    _topic("min.compaction.lag.ms", Type.LONG, 0, at_least(0), "log.cleaner.min.compaction.lag.ms",
           "The time for which a record is safe from compaction."),
    _topic("min.insync.replicas", Type.INT, 1, at_least(1), "min.insync.replicas",
           "Replicas that must have a record before acks=all is answered; with fewer in sync "
           "such produces are refused."),
    _topic("preallocate", Type.BOOLEAN, False, None, "log.preallocate",
           "Reserve a new segment's whole size on disk at once."),
    _topic("record.validation", Type.STRING, "lengths", one_of("lengths", "full"),
           "log.record.validation",
           "What is checked of a producer's records. lengths: their number and lengths in every "
           "uncompressed batch, all fields in uncompressed batches of up to 32 records. full: all "
           "fields of all records, compressed or not, at up to some microseconds a record."),
    _topic("remote.log.copy.disable", Type.BOOLEAN, False, None, "",
           "Stop copying a tiered topic to remote storage."),
    _topic("remote.log.delete.on.disable", Type.BOOLEAN, False, None, "",
           "Delete remote data once tiering is switched off."),
    _topic("remote.storage.enable", Type.BOOLEAN, False, None, "",
           "Keep old segments in remote storage. Headrace has no tiered storage: everything "
           "stays local."),
    _topic("retention.bytes", Type.LONG, -1, None, "log.retention.bytes",
           "Bytes that a partition may hold before its oldest segments go; -1 is no limit."),
    _topic("retention.hold.bytes", Type.LONG, 10 * 1024 * MIB, at_least(0),
           "log.retention.hold.bytes",
           "Bytes of a partition that retention.hold.groups may keep beyond its other limits."),
    _topic("retention.hold.groups", Type.LIST, (), None, "",
           "Consumer groups for whose sake segments that are due stay until they have read them, "
           "up to retention.hold.bytes."),
    _topic("retention.messages", Type.LONG, -1, at_least_or(1, -1), "log.retention.messages",
           "The newest records of a partition that are kept: a segment goes once that many "
           "offsets lie behind it, so never fewer stay; -1 is no limit. Offsets of transaction "
           "markers and of compacted records count."),
    _topic("retention.ms", Type.LONG, WEEK_MS, at_least(-1),
           (Synonym("log.retention.ms"), Synonym("log.retention.minutes", 60_000),
            Synonym("log.retention.hours", HOUR_MS)),
           "Age at which a segment is deleted; -1 is never."),
    _topic("retention.warn.ratio", Type.DOUBLE, 0.1, between(0, 1), "log.retention.warn.ratio",
           "The broker warns of a group that has not read a segment when no more than this share "
           "of retention.ms, retention.bytes or retention.messages is left of it; 0 is never."),
    _topic("segment.bytes", Type.INT, 1024 * MIB, at_least(MIB), "log.segment.bytes",
           "Size at which a new segment is begun."),
    _topic("segment.index.bytes", Type.INT, 10 * MIB, at_least(4), "log.index.size.max.bytes",
           "The largest size of a segment's index; a full index begins a new segment."),
    _topic("segment.jitter.ms", Type.LONG, 0, at_least(0),
           (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
           "A random time of up to this much is taken off segment.ms, so that partitions do not "
           "all roll at once."),
    _topic("segment.ms", Type.LONG, WEEK_MS, at_least(1),
           (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
           "Age at which a new segment is begun even if the old one is not full."),
    _topic("unclean.leader.election.enable", Type.BOOLEAN, False, None,
           "unclean.leader.election.enable",
           "Let a replica that was not in sync lead when no other is left: available again, at "
           "the price of lost records."),
    _topic("value.schema.validation", Type.BOOLEAN, False, None, "",
           "Take only records whose value is null or begins with the id of a schema that is "
           "registered in headrace.schemas.topic; others are refused with INVALID_RECORD."),
)
# fmt: on

TOPIC_TABLE: dict[str, Setting] = {row.name: marked(row) for row in _ROWS}
