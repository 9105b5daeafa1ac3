"""Settings as the broker uses them: checked, parsed once, topics resolved over the broker's.

Lookups happen at start and when a config changes; hot code keeps the values it needs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from headrace.errors import SettingError
from headrace.settings.ignored import why_ignored
from headrace.settings.protection import check_honoured, check_listeners, why_refused
from headrace.settings.setting import LONG_MAX, Setting, Value, parse_value
from headrace.settings.table import TABLE
from headrace.settings.topic_table import HOUR_MS, MIB, TOPIC_TABLE, WEEK_MS

LISTENER_PREFIX = "listener.name."
TOPIC_CONFIG = "topic config"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How one topic's logs behave: its configs over the broker's, over the defaults."""

    segment_bytes: int = 1024 * MIB
    segment_ms: int = WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    max_message_bytes: int = MIB + 12
    timestamp_type: str = "CreateTime"
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = HOUR_MS
    record_validation: str = "lengths"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = WEEK_MS
    retention_bytes: int = -1
    retention_messages: int = -1
    retention_hold_groups: frozenset[str] = frozenset()
    retention_hold_bytes: int = 10 * 1024 * MIB
    retention_warn_ratio: float = 0.1
    consumed_groups: frozenset[str] = frozenset()
    delete_retention_ms: int = 24 * HOUR_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    follower_throttled_replicas: frozenset[str] = frozenset()
    leader_throttled_replicas: frozenset[str] = frozenset()
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    key_schema_validation: bool = False
    value_schema_validation: bool = False
    producer_id_expiration_ms: int = 24 * HOUR_MS


FIELDS = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.type": "timestamp_type",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "record.validation": "record_validation",
    "compression.type": "compression_type",
    "compression.gzip.level": "compression_gzip_level",
    "compression.lz4.level": "compression_lz4_level",
    "compression.zstd.level": "compression_zstd_level",
    "cleanup.policy": "cleanup_policy",
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "retention.messages": "retention_messages",
    "retention.hold.groups": "retention_hold_groups",
    "retention.hold.bytes": "retention_hold_bytes",
    "retention.warn.ratio": "retention_warn_ratio",
    "consumed.groups": "consumed_groups",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "min.insync.replicas": "min_insync_replicas",
    "unclean.leader.election.enable": "unclean_leader_election",
    "follower.replication.throttled.replicas": "follower_throttled_replicas",
    "leader.replication.throttled.replicas": "leader_throttled_replicas",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "preallocate": "preallocate",
    "key.schema.validation": "key_schema_validation",
    "value.schema.validation": "value_schema_validation",
    # Last, because it takes the place of segment.bytes where it is given.
    "internal.segment.bytes": "segment_bytes",
}


class Settings:
    """The broker's settings, immutable; `explicit` holds what was given, as text."""

    __slots__ = ("_log_defaults", "_values", "explicit", "ignored")

    def __init__(self, explicit: Mapping[str, str], values: dict[str, Value]) -> None:
        self.explicit: Mapping[str, str] = MappingProxyType(dict(explicit))
        self._values = values
        self._log_defaults: LogSettings | None = None
        self.ignored: Mapping[str, str] = {
            name: why for name in explicit if (why := why_ignored(name))
        }
        """What was given and has no effect here: the name, and why."""

    @property
    def unused(self) -> tuple[str, ...]:
        """What was given, is a setting, and is not used in this version."""
        return tuple(name for name in self.explicit if name in TABLE and TABLE[name].inert)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Settings":
        """Settings from names and texts; SettingError for an unknown name or a bad value."""
        values: dict[str, Value] = {name: row.default for name, row in TABLE.items()}
        for name, text in given.items():
            row = check_broker_config(name, text)
            if row is not None and row.name == name:
                values[name] = parse_value(row, text)
        check_listeners(values)
        return cls(given, values)

    def replace(self, changes: Mapping[str, str | None]) -> "Settings":
        """Settings with `changes` applied; None takes a setting back to its default."""
        given = dict(self.explicit)
        for name, text in changes.items():
            if text is None:
                given.pop(name, None)
            else:
                given[name] = text
        return Settings.parse(given)

    def value(self, name: str) -> Value:
        """The value of `name`; where it has none, that of the first synonym that has one."""
        value = self._values[name]
        return self._stand_in(TABLE[name]) if value is None else value

    def integer(self, name: str) -> int:
        """The value of a whole-number setting."""
        value = self.value(name)
        assert type(value) is int, name
        return value

    def boolean(self, name: str) -> bool:
        """The value of a yes-or-no setting."""
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def real(self, name: str) -> float:
        """The value of a number setting."""
        value = self.value(name)
        assert type(value) in (int, float), name
        return float(value)  # type: ignore[arg-type]

    def text(self, name: str) -> str:
        """The value of a text setting; empty where none was given."""
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value or ""

    def words(self, name: str) -> tuple[str, ...]:
        """The value of a list setting, or of a text setting that lists words with commas."""
        value = self.value(name)
        if isinstance(value, tuple):
            return value
        assert value is None or isinstance(value, str), name
        return tuple(word.strip() for word in (value or "").split(",") if word.strip())

    def log_defaults(self) -> LogSettings:
        """The log settings of a topic that has no configs of its own."""
        if self._log_defaults is None:
            changes: dict[str, Value | frozenset[str]] = {}
            for name, field in FIELDS.items():
                value = self._stand_in(TOPIC_TABLE[name])
                if value is not None:
                    changes[field] = frozenset(value) if isinstance(value, tuple) else value
            changes["producer_id_expiration_ms"] = self.integer("producer.id.expiration.ms")
            self._log_defaults = _rolled_in_time(LogSettings(**changes))  # type: ignore[arg-type]
        return self._log_defaults

    def topic_value(self, name: str, configs: Mapping[str, str]) -> Value:
        """The value that a topic with `configs` has for its config `name`."""
        row = TOPIC_TABLE[name]
        if name in configs:
            return parse_value(row, configs[name])
        value = self._stand_in(row)
        return row.default if value is None else value

    def _stand_in(self, row: Setting) -> Value:
        for synonym in row.synonyms:
            value = self.value(synonym.name)
            if isinstance(value, int) and not isinstance(value, bool) and synonym.factor != 1:
                # -1 hours is "for ever", and not an hour before the epoch.
                return -1 if value < 0 else min(value * synonym.factor, LONG_MAX)
            if value is not None:
                return value
        return None


def log_settings(broker: Settings, topic_configs: Mapping[str, str]) -> LogSettings:
    """A topic's log settings: its own configs over the broker's settings."""
    defaults = broker.log_defaults()
    if not topic_configs:
        return defaults
    changes: dict[str, Value | frozenset[str]] = {}
    for name, field in FIELDS.items():
        text = topic_configs.get(name)
        if text is not None:
            value = parse_value(TOPIC_TABLE[name], text)
            changes[field] = frozenset(value) if isinstance(value, tuple) else value
    return _rolled_in_time(replace(defaults, **changes))  # type: ignore[arg-type]


def _rolled_in_time(settings: LogSettings) -> LogSettings:
    """The active segment is never compacted, so it must end before max.compaction.lag.ms does."""
    lag_ms = settings.max_compaction_lag_ms
    if "compact" not in settings.cleanup_policy or settings.segment_ms <= lag_ms:
        return settings
    return replace(settings, segment_ms=lag_ms)


def check_broker_config(name: str, text: str) -> Setting | None:
    """The row of a broker setting; None if it is accepted and ignored.

    SettingError if it is unknown, or asks for protection that this version does not give.
    """
    row = TABLE.get(name)
    if row is None and name.startswith(LISTENER_PREFIX):
        row = _listener_row(name)
    if row is not None:
        parse_value(row, text)
    elif not why_ignored(name) and not why_refused(name):
        raise unknown(name, TABLE, "broker setting")
    check_honoured(name, row, text)
    return row


def check_topic_config(name: str, value: str) -> None:
    """SettingError unless `name` is a topic config that can have `value`."""
    row = TOPIC_TABLE.get(name)
    if row is None:
        raise unknown(name, TOPIC_TABLE, TOPIC_CONFIG)
    parse_value(row, value)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """SettingError unless every config is right and they fit together."""
    for name, value in configs.items():
        check_topic_config(name, value)
    low, high = configs.get("min.compaction.lag.ms"), configs.get("max.compaction.lag.ms")
    if low is not None and high is not None and int(low) > int(high):
        raise SettingError(
            f"min.compaction.lag.ms={low}: expected no more than max.compaction.lag.ms={high}; "
            "lower the one or raise the other"
        )


def unknown(name: str, known: Iterable[str], kind: str) -> SettingError:
    """The error for a name that nobody knows, with the nearest names that exist."""
    # Imported here: only a mistake needs it, and every start would pay for it.
    from difflib import get_close_matches

    if kind == TOPIC_CONFIG and name in TABLE:
        own = [row.name for row in TOPIC_TABLE.values() if row.synonym == name]
        hint = f"; use {own[0]} for a topic" if own else ""
        return SettingError(f"{name}: this is a broker setting{hint}")
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    hint = f"did you mean {' or '.join(near)}?" if near else "see docs/settings.md for all names"
    return SettingError(f"{name}: no such {kind}; {hint}")


def _listener_row(name: str) -> Setting | None:
    """The setting that `listener.name.<listener>.<setting>` gives for one listener only."""
    suffix = name[len(LISTENER_PREFIX) :].partition(".")[2]
    row = TABLE.get(suffix)
    while row is None and "." in suffix:
        # A SASL mechanism may stand between: listener.name.x.plain.sasl.jaas.config
        suffix = suffix.partition(".")[2]
        row = TABLE.get(suffix)
    return row
