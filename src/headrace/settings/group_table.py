"""The configs of a group: Kafka 4.3's names, types, defaults, checks and bounds.

A group without a config uses the value of the broker setting. Not done:
`consumer.assignment.interval.ms` and `share.assignment.interval.ms`; assignments are computed as
soon as members or topics change.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.errors import SettingError
from headrace.settings.resolve import Settings
from headrace.settings.setting import (
    Check,
    Setting,
    Synonym,
    Type,
    Value,
    at_least,
    matching,
    one_of,
    parse_value,
)

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
STREAMS_SESSION_TIMEOUT = "streams.session.timeout.ms"
STREAMS_HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
STREAMS_STANDBYS = "streams.num.standby.replicas"
STREAMS_INITIAL_DELAY = "streams.initial.rebalance.delay.ms"
STREAMS_ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"

_RESET = matching(
    r"earliest|latest|by_duration:[pP](?=.)([0-9]+[dD])?"
    r"([tT](?=[0-9])([0-9]+[hH])?([0-9]+[mM])?([0-9]+(\.[0-9]{1,9})?[sS])?)?",
    "earliest, latest or by_duration:<PnDTnHnMn.nS>",
)


class Bounds(NamedTuple):
    """The broker settings that bound the value of a group."""

    low: str
    high: str


BOUNDS = {
    SESSION_TIMEOUT: Bounds(
        "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"
    ),
    HEARTBEAT_INTERVAL: Bounds(
        "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"
    ),
    "share.session.timeout.ms": Bounds(
        "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
    ),
    "share.heartbeat.interval.ms": Bounds(
        "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"
    ),
    "share.record.lock.duration.ms": Bounds(
        "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"
    ),
    "share.delivery.count.limit": Bounds(
        "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"
    ),
    "share.partition.max.record.locks": Bounds(
        "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"
    ),
    STREAMS_SESSION_TIMEOUT: Bounds(
        "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"
    ),
    STREAMS_HEARTBEAT_INTERVAL: Bounds(
        "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"
    ),
    STREAMS_STANDBYS: Bounds("", "group.streams.max.standby.replicas"),
    STREAMS_ASSIGNMENT_INTERVAL: Bounds(
        "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"
    ),
}


def _group(name: str, low: int, synonym: str, default: int, doc: str) -> Setting:
    return _row(name, Type.INT, default, at_least(low), doc, synonym)


def _row(
    name: str, kind: Type, default: Value, check: Check | None, doc: str, synonym: str = ""
) -> Setting:
    synonyms = (Synonym(synonym),) if synonym else ()
    return Setting(name, kind, default, doc, check, "group", True, synonyms)


# fmt: off
_ROWS = (
    _group(SESSION_TIMEOUT, 1, "group.consumer.session.timeout.ms", 45_000,
           "Session timeout of the members."),
    _group(HEARTBEAT_INTERVAL, 1, "group.consumer.heartbeat.interval.ms", 5_000,
           "Heartbeat interval of the members."),
    _group("share.session.timeout.ms", 1, "group.share.session.timeout.ms", 45_000,
           "Session timeout of the members of a share group."),
    _group("share.heartbeat.interval.ms", 1, "group.share.heartbeat.interval.ms", 5_000,
           "Heartbeat interval of the members of a share group."),
    _group("share.record.lock.duration.ms", 1000, "group.share.record.lock.duration.ms", 30_000,
           "How long a delivered record stays locked for its member."),
    _group("share.delivery.count.limit", 2, "group.share.delivery.count.limit", 5,
           "How often a record is delivered to a share group."),
    _group("share.partition.max.record.locks", 100, "group.share.partition.max.record.locks", 2000,
           "Records of one partition that may be locked or waiting for redelivery."),
    _row("share.renew.acknowledge.enable", Type.BOOLEAN, True, None,
         "Whether members of a share group may renew the locks of their records."),
    _row("errors.deadletterqueue.topic.name", Type.STRING, "", None,
         "The topic for records that a share group has rejected or that have used up their "
         "deliveries; empty: they are not kept."),
    _row("errors.deadletterqueue.copy.record.enable", Type.BOOLEAN, False, None,
         "Whether dead letters have the key, value and headers of the record."),
    _row("share.auto.offset.reset", Type.STRING, "latest", _RESET,
         "Where a share group begins to read a partition."),
    _row("share.isolation.level", Type.STRING, "read_uncommitted",
         one_of("read_committed", "read_uncommitted"),
         "Whether a share group reads records of transactions that are open or aborted."),
    _group(STREAMS_SESSION_TIMEOUT, 1, "group.streams.session.timeout.ms", 45_000,
           "Session timeout of the members of a streams group."),
    _group(STREAMS_HEARTBEAT_INTERVAL, 1, "group.streams.heartbeat.interval.ms", 5_000,
           "Heartbeat interval of the members of a streams group."),
    _group(STREAMS_STANDBYS, 0, "group.streams.num.standby.replicas", 0,
           "Standby replicas of each task of a streams group."),
    _group(STREAMS_INITIAL_DELAY, 0, "group.streams.initial.rebalance.delay.ms", 3_000,
           "How long an empty streams group waits for more members before its first assignment."),
    _group(STREAMS_ASSIGNMENT_INTERVAL, 0, "group.streams.assignment.interval.ms", 1_000,
           "The shortest time between two assignments of a streams group."),
)
# fmt: on

GROUP_TABLE: dict[str, Setting] = {row.name: row for row in _ROWS}


def group_value(broker: Settings, configs: Mapping[str, str], name: str) -> Value:
    """The value that a group with `configs` has for its config `name`."""
    row = GROUP_TABLE[name]
    if name in configs:
        return parse_value(row, configs[name])
    return broker.value(row.synonyms[0].name) if row.synonyms else row.default


def check_group_configs(broker: Settings, configs: Mapping[str, str]) -> None:
    """SettingError unless all configs are valid, within the broker's bounds, and consistent."""
    for name, text in configs.items():
        row = GROUP_TABLE.get(name)
        if row is None:
            raise SettingError(f"Unknown group config name: {name}")
        value = parse_value(row, text)
        prefix = broker.text("errors.deadletterqueue.topic.name.prefix")
        if name == "errors.deadletterqueue.topic.name" and text and not text.startswith(prefix):
            raise SettingError(
                f"{name}={text} must begin with errors.deadletterqueue.topic.name.prefix={prefix}"
            )
        bounds = BOUNDS.get(name)
        if bounds is None:
            continue
        assert isinstance(value, int), f"{name} has bounds, so it is a number"
        if bounds.low and value < broker.integer(bounds.low):
            raise SettingError(
                f"{name}={value} must be greater than or equal to "
                f"{bounds.low}={broker.integer(bounds.low)}"
            )
        if value > broker.integer(bounds.high):
            raise SettingError(
                f"{name}={value} must be less than or equal to "
                f"{bounds.high}={broker.integer(bounds.high)}"
            )
    for kind in ("consumer", "share", "streams"):
        session, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session in configs or interval in configs:
            longer, shorter = (group_value(broker, configs, one) for one in (session, interval))
            assert isinstance(longer, int), session
            assert isinstance(shorter, int), interval
            if longer <= shorter:
                raise SettingError(f"{session}={longer} must be greater than {interval}={shorter}")
