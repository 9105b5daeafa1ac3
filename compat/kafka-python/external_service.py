"""Stands in for the module of kafka-python's tests that starts brokers, which its sdist lacks.

Here the broker runs already, and its fixtures want only a thing they need not start.
"""

from kafka import KafkaConsumer

# A consumer that subscribes between its first request for metadata and the answer forgets to ask
# for its topics, and asks again only after this time, which is five minutes where nobody sets it.
KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 1000


class ExternalService:
    """A broker that somebody else started and will stop."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def start(self) -> None:
        """Nothing to do: it runs."""

    def stop(self) -> None:
        """Nothing to do: whoever started it stops it."""

    def dump_logs(self) -> None:
        """Nothing to show: its output is not ours."""


class SpawnedService(ExternalService):
    """What the fixtures use when they are given no address; these runs always give one."""

    def start(self) -> None:
        raise RuntimeError("set KAFKA_URI to the address of a running broker")
