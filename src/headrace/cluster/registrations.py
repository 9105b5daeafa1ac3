"""Detects broker restarts: each start of a broker writes its node `/brokers/<id>`."""

import json
from collections.abc import Iterable

from headrace.cluster.store import CheckVersion, Store
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId


def same_starts(store: Store, starts: Iterable[tuple[BrokerId, int]]) -> list[CheckVersion]:
    """The checks for a commit that depends on these broker epochs; KafkaError if one is stale.

    A broker that has restarted since may have lost records.
    """
    checks = []
    for broker, epoch in starts:
        path = f"/brokers/{broker}"
        node = store.get(path)
        if node is None or json.loads(node.value)["epoch"] != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has restarted since it fetched"
            )
        checks.append(CheckVersion(path, node.version))
    return checks
