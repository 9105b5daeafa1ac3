"""Settings as the broker uses them: checked and parsed once; topic configs override settings.

Lookups happen at start and when a config changes; hot code keeps the values it needs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from headrace.errors import SettingError
from headrace.settings.ignored import why_ignored
from headrace.settings.listeners import LISTENER_PREFIX, Listeners, parse_listeners
from headrace.settings.protection import (
    check_client_certificates,
    check_honoured,
    why_refused,
)
from headrace.settings.security_table import SECURITY_ROWS
from headrace.settings.setting import LONG_MAX, Setting, Value, check_words, parse_value
from headrace.settings.table import TABLE
from headrace.settings.topic_table import (
    FIELDS,
    PRODUCER_ID_EXPIRATION,
    TOPIC_TABLE,
    LogSettings,
)

TOPIC_CONFIG = "topic config"
_SECURITY_NAMES = frozenset(row.name for row in SECURITY_ROWS)


class Settings:
    """The broker's settings, immutable; `explicit` holds what was given, as text."""

    __slots__ = ("_log_defaults", "_values", "explicit", "ignored", "listeners")

    def __init__(self, explicit: Mapping[str, str], values: dict[str, Value]) -> None:
        self.explicit: Mapping[str, str] = MappingProxyType(dict(explicit))
        self.listeners: Listeners = parse_listeners(values, explicit)
        check_client_certificates(explicit, self.listeners)
        _check_listener_names(explicit, self.listeners)
        self._values = values
        self._log_defaults: LogSettings | None = None
        self.ignored: Mapping[str, str] = {
            name: why for name in explicit if (why := why_ignored(name))
        }
        """Given settings that are ignored: the name and the reason."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Given settings that have no effect in this version."""
        return tuple(name for name in self.explicit if self._is_unused(name))

    def _is_unused(self, name: str) -> bool:
        if not name.startswith(LISTENER_PREFIX):
            return name in TABLE and TABLE[name].inert
        row = listener_row(name)
        listener = listener_of(name)
        with_tls = any(one.name.lower() == listener and one.tls for one in self.listeners.all)
        # Only settings of TLS and logins are read for single listeners.
        return row is not None and (
            row.inert
            or row.name not in _SECURITY_NAMES
            or (row.name.startswith("ssl.") and not with_tls)
        )

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Settings":
        """Settings from names and texts; SettingError for an unknown name or a bad value."""
        values: dict[str, Value] = {name: row.default for name, row in TABLE.items()}
        for name, text in given.items():
            row = check_broker_config(name, text)
            if row is not None and row.name == name:
                values[name] = parse_value(row, text)
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

    def with_dynamic(self, configs: Mapping[str, str]) -> "Settings":
        """Settings with the dynamic configs of a running broker.

        Configs of a listener that this broker no longer has are left out.
        """
        known = {one.name.lower() for one in self.listeners.all}
        return self.replace(
            {
                name: text
                for name, text in configs.items()
                if not name.startswith(LISTENER_PREFIX) or listener_of(name) in known
            }
        )

    def for_listener(self, listener: str) -> "Settings":
        """The settings of one listener: those with its prefix override the others."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        values = dict(self._values)
        for name, text in self.explicit.items():
            row = TABLE.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
            if row is not None:
                values[row.name] = parse_value(row, text)
        return Settings(self.explicit, values)

    def value(self, name: str) -> Value:
        """The value of `name`, or of its first synonym that has a value."""
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
            changes["producer_id_expiration_ms"] = self.integer(PRODUCER_ID_EXPIRATION.name)
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
                # -1 means no limit, in any unit.
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
        row = listener_row(name)
    if row is not None:
        parse_value(row, text)
    elif not why_ignored(name) and not why_refused(name):
        raise unknown(name, TABLE, "broker setting")
    check_honoured(name, row, text)
    return row


def is_secret_setting(name: str) -> bool:
    """Whether the value of a broker setting must never be shown."""
    row = TABLE.get(name)
    if row is None and name.startswith(LISTENER_PREFIX):
        row = listener_row(name)
    return row is not None and row.secret


def check_topic_config(name: str, value: str) -> None:
    """SettingError unless `name` is a topic config that can have `value`."""
    row = TOPIC_TABLE.get(name)
    if row is None:
        raise unknown(name, TOPIC_TABLE, TOPIC_CONFIG)
    parse_value(row, value)
    check_words(row, value)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """SettingError unless all configs are valid and consistent."""
    for name, value in configs.items():
        check_topic_config(name, value)
    low, high = configs.get("min.compaction.lag.ms"), configs.get("max.compaction.lag.ms")
    if low is not None and high is not None and int(low) > int(high):
        raise SettingError(
            f"min.compaction.lag.ms={low}: expected no more than max.compaction.lag.ms={high}; "
            "lower the first or raise the second"
        )


def unknown(name: str, known: Iterable[str], kind: str) -> SettingError:
    """The error for an unknown name, with the most similar existing names."""
    # Imported here, because it is slow and needed for errors only.
    from difflib import get_close_matches

    if kind == TOPIC_CONFIG and name in TABLE:
        own = [row.name for row in TOPIC_TABLE.values() if row.synonym == name]
        hint = f"; use {own[0]} for a topic" if own else ""
        return SettingError(f"{name}: this is a broker setting{hint}")
    near = get_close_matches(name, known, n=2, cutoff=0.75)
    hint = f"did you mean {' or '.join(near)}?" if near else "see docs/settings.md for all names"
    return SettingError(f"{name}: no such {kind}; {hint}")


def _check_listener_names(explicit: Iterable[str], listeners: Listeners) -> None:
    """SettingError if a setting is for a listener that does not exist: it would do nothing."""
    known = {*(one.name.lower() for one in listeners.all), *listeners.controllers}
    for name in explicit:
        if name.startswith(LISTENER_PREFIX):
            listener = listener_of(name)
            if listener not in known:
                raise SettingError(
                    f"{name}: there is no listener {listener.upper()}; listeners has "
                    + ", ".join(one.name for one in listeners.all)
                )


def listener_of(name: str) -> str:
    """The listener that a setting `listener.name.<listener>.<setting>` is for."""
    return name[len(LISTENER_PREFIX) :].partition(".")[0]


def listener_row(name: str) -> Setting | None:
    """The setting that `listener.name.<listener>.<setting>` gives for one listener only."""
    suffix = name[len(LISTENER_PREFIX) :].partition(".")[2]
    row = TABLE.get(suffix)
    while row is None and "." in suffix:
        # A SASL mechanism may stand between: listener.name.x.plain.sasl.jaas.config
        suffix = suffix.partition(".")[2]
        row = TABLE.get(suffix)
    return row
