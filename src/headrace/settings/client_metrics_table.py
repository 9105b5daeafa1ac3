"""The configs of a subscription to client metrics (KIP-714), with the checks of Kafka 4.3.

A subscription asks clients that match it to push metrics to their broker.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.settings.setting import Setting, Type, check_words, parse_value

if TYPE_CHECKING:
    from headrace.expressions.expression import Expression

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
DEFAULT_INTERVAL_MS = 300_000
MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
ALL_METRICS = "*"
MATCH_NAMES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that a pattern can match."""


def _row(name: str, kind: Type, default: int | tuple[str, ...], doc: str) -> Setting:
    return Setting(name, kind, default, doc, scope="client-metrics", live=True)


_ROWS = (
    _row(INTERVAL, Type.INT, DEFAULT_INTERVAL_MS,
         f"Time between two pushes of a client: {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}."),
    _row(MATCH, Type.LIST, (),
         "The clients that push: name=expression, of which all have to match. Names: "
         f"{', '.join(MATCH_NAMES)}. Without patterns all clients push."),
    _row(METRICS, Type.LIST, (),
         "Prefixes of the names of metrics that clients push; * is all metrics."),
)  # fmt: skip

CLIENT_METRICS_TABLE: dict[str, Setting] = {row.name: row for row in _ROWS}


def check_client_metrics_configs(configs: Mapping[str, str]) -> None:
    """KafkaError, with Kafka's error codes, unless every config of a subscription is valid."""
    for name in configs:
        if name not in CLIENT_METRICS_TABLE:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}"
            )
    try:
        for name, text in configs.items():
            check_words(CLIENT_METRICS_TABLE[name], text)
        interval_ms = parse_interval_ms(configs)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {interval_ms} for {INTERVAL}, interval must be between "
            f"{MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)",
        )
    parse_match(configs)


def parse_interval_ms(configs: Mapping[str, str]) -> int:
    """The push interval of a subscription; SettingError if it is not a number."""
    if INTERVAL not in configs:
        return DEFAULT_INTERVAL_MS
    value = parse_value(CLIENT_METRICS_TABLE[INTERVAL], configs[INTERVAL])
    assert isinstance(value, int), INTERVAL
    return value


def parse_metrics(configs: Mapping[str, str]) -> list[str]:
    """The prefixes of metrics in a subscription."""
    return _words(configs.get(METRICS, ""))


def parse_match(configs: Mapping[str, str]) -> dict[str, "Expression"]:
    """The patterns of a subscription by attribute; the last one for each wins.

    INVALID_CONFIG if one is malformed.
    """
    # Imported here: a broker without subscriptions starts faster without.
    from headrace.expressions.expression import Expression

    patterns = {}
    for pattern in _words(configs.get(MATCH, "")):
        name, _, text = pattern.partition("=")
        if name.strip() not in MATCH_NAMES or not text or "=" in text:
            raise _illegal(pattern, f"expected name=expression with one of {MATCH_NAMES}")
        try:
            patterns[name.strip()] = Expression(text.strip())
        except KafkaError as error:
            raise _illegal(pattern, error.message) from error
    return patterns


def _words(text: str) -> list[str]:
    """A list as Kafka splits it: words may be empty, and a list of one empty word is empty."""
    stripped = text.strip()
    return re.split(r"\s*,\s*", stripped) if stripped else []


def _illegal(pattern: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}: {why}"
    )
