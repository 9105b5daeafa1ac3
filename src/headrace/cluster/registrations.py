"""Whether brokers have started anew: each start of one writes its node `/brokers/<id>`."""

import json
from collections.abc import Iterable

from headrace.cluster.store import CheckVersion, Store
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId


def same_starts(store: Store, starts: Iterable[tuple[BrokerId, int]]) -> list[CheckVersion]:
    """What to check in a commit that counts on these (broker, epoch); KafkaError if one is over.

    A broker that has started since may have lost what it had.
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
