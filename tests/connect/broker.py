"""The broker of the tests of Connect: ours, or Apache Kafka with CONNECT_TESTS_ON=kafka."""

import os
from pathlib import Path
from typing import TypeAlias

from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

ConnectBroker: TypeAlias = HeadraceBroker | ApacheKafka


def connect_broker(folder: Path) -> ConnectBroker:
    """A broker that is not started yet; a context manager."""
    settings = {"group.initial.rebalance.delay.ms": "0"}
    if os.environ.get("CONNECT_TESTS_ON") == "kafka":
        return ApacheKafka(folder, settings=settings, quick=True)
    return HeadraceBroker(folder, settings=settings)
