"""The session of a request: properties and variables, and which properties there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.sql.errors import BAD_REQUEST, StatementRefused

STREAMS_PREFIX = "ksql.streams."
RESET = "auto.offset.reset"
MAX_OFFSETS_PROPERTY = "headrace.sql.max.offsets.per.trigger"


@dataclass(frozen=True, slots=True)
class SessionProperty:
    """A property that SET can change."""

    default: str
    doc: str
    choices: tuple[str, ...] = ()
    has_effect: bool = True


PROPERTIES = {
    RESET: SessionProperty(
        "latest",
        "Where new queries begin to read streams. Tables are always read from the beginning.",
        ("earliest", "latest"),
    ),
    MAX_OFFSETS_PROPERTY: SessionProperty(
        "", "The most records that an epoch of a new query reads from all its inputs."
    ),
    "processing.guarantee": SessionProperty(
        "exactly_once_v2", "Queries are always exactly once.", has_effect=False
    ),
    "ksql.query.pull.table.scan.enabled": SessionProperty(
        "true", "Pull queries may always scan tables.", ("true", "false"), has_effect=False
    ),
    "ksql.query.pull.consistency.token.enabled": SessionProperty(
        "false", "Pull queries always see the rows that this server has inserted.",
        ("true", "false"), has_effect=False,
    ),
    "ksql.query.push.v2.enabled": SessionProperty(
        "false", "There is one kind of push query.", ("true", "false"), has_effect=False
    ),
    **{
        name: SessionProperty("", "Of Kafka Streams; Spark runs the queries.", has_effect=False)
        for name in (
            "application.server",
            "cache.max.bytes.buffering",
            "commit.interval.ms",
            "max.task.idle.ms",
            "num.standby.replicas",
            "num.stream.threads",
            "statestore.cache.max.bytes",
            "topology.optimization",
        )
    },
}  # fmt: skip
"""By name, without the prefix that ksqlDB accepts."""


def short_name(name: str) -> str:
    """The name of a property without the prefix `ksql.streams.`."""
    return name.removeprefix(STREAMS_PREFIX)


def check_property(name: str, value: str | None = None) -> str:
    """The short name; StatementRefused if there is no such property, or if it has no such value."""
    short = short_name(name)
    found = PROPERTIES.get(short)
    if found is None:
        raise StatementRefused(
            f"Unknown property {name}. LIST PROPERTIES shows what SET can change", BAD_REQUEST
        )
    if value is not None and found.choices and value.lower() not in found.choices:
        raise StatementRefused(
            f"The property {name} must be one of {', '.join(found.choices)}, not {value}",
            BAD_REQUEST,
        )
    return short


@dataclass(slots=True)
class Session:
    """What SET and DEFINE have set, for the statements of one request."""

    properties: dict[str, str] = field(default_factory=dict)
    """By short name."""
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, object], variables: Mapping[str, object]) -> "Session":
        """The session that a request describes; StatementRefused for unknown properties."""
        given = {name: _text(value) for name, value in properties.items()}
        checked = {check_property(name, value): value for name, value in given.items()}
        return cls(checked, {name: _text(value) for name, value in variables.items()})

    def set(self, name: str, value: str) -> None:
        self.properties[check_property(name, value)] = value

    def unset(self, name: str) -> None:
        self.properties.pop(check_property(name), None)

    def property(self, name: str) -> str:
        return self.properties.get(name, PROPERTIES[name].default)

    def effective(self) -> dict[str, str]:
        """The properties that statements depend on, for the command topic."""
        return {
            name: value
            for name, value in sorted(self.properties.items())
            if PROPERTIES[name].has_effect and value != PROPERTIES[name].default
        }


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
