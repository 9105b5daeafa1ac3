"""The settings of the HTTP services. Confluent's services have the same names."""

import re

from headrace.settings.setting import Check, Setting, Type, Value, at_least

_LISTENER = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")


def _is_listener(value: Value) -> bool:
    found = _LISTENER.fullmatch(str(value))
    return found is not None and int(found[2]) <= 65535


_IS_LISTENER = Check("http://HOST:PORT", _is_listener)


def _common(port: int) -> tuple[Setting, ...]:
    """The rows that every service has."""
    return (
        Setting("listeners", Type.STRING, f"http://127.0.0.1:{port}",
                "The address for HTTP; port 0 selects a free port.", _IS_LISTENER, scope="service"),
        Setting("bootstrap.servers", Type.STRING, "localhost:9092",
                "Brokers of the Kafka cluster, as HOST:PORT, separated by commas.",
                scope="service"),
        Setting("shutdown.graceful.ms", Type.INT, 10_000,
                "How long a stop waits for requests in progress, rounded up to seconds. "
                "Requests that take longer get status 503.", at_least(0), scope="service"),
        Setting("idle.timeout.ms", Type.INT, 60_000,
                "How long a connection without requests stays open, rounded up to seconds.",
                at_least(1), scope="service"),
    )  # fmt: skip


REGISTRY_TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        *_common(8081),
        Setting("kafkastore.topic", Type.STRING, "_schemas",
                "The compacted topic that stores the schemas; it is created if it does not exist.",
                scope="service"),
    )
}  # fmt: skip
