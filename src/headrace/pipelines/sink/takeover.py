"""Take over exactly-once writes from a driver that may be dead, or may only be thought so.

The new driver cannot see the checkpoint of the former one, so it does not replay its last epoch.
It ends the open transactions instead: those of a decided epoch are committed, all others are
aborted. Afterwards the topics say what was written. This needs rows whose task also writes, in the
same transaction, how far it has read; Connect's sources do.
"""

import re
import time
from collections.abc import Mapping

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.transactions import list_transactions
from headrace.pipelines.sink.ledger import ONGOING, Ledger, LedgerError
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.topics import ready_topic

NOT_ENDED = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
LOOK_S = 0.05
_QUERY_AND_TASK = r"\.([0-9a-f-]{32,36})\.([0-9]+)"


def take_over_writes(options: Mapping[str, str]) -> None:
    """Take over with the options of the sink; its topic of the ledger must exist."""
    parsed = parse_options(options)
    ledger = Ledger(parsed.prefix, parsed.ledger_topic or "", parsed.transaction_ms, parsed.owner)
    with Cluster(parsed.client) as cluster:
        ready_topic(cluster, ledger.topic)
        take_over(cluster, ledger)


def take_over(cluster: Cluster, ledger: Ledger) -> None:
    """Returns when no other driver can decide an epoch, and no transaction of others is open."""
    ledger.become_owner(cluster)
    pattern = re.compile(re.escape(ledger.prefix) + _QUERY_AND_TASK)
    deadline = time.monotonic() + cluster.config.total_timeout_s
    while True:
        left = [
            (each, match)
            for each in list_transactions(cluster, NOT_ENDED)
            if (match := pattern.fullmatch(each.transactional_id))
        ]
        if not left:
            return
        if time.monotonic() > deadline:
            names = ", ".join(each.transactional_id for each, _ in left)
            raise LedgerError(f"the transactions {names} of a former driver do not end")
        for each, match in left:
            if each.state == ONGOING:
                _end(cluster, ledger, each.transactional_id, match[1], int(match[2]))
        # Others are being committed or aborted by the brokers.
        time.sleep(LOOK_S)


def _end(cluster: Cluster, ledger: Ledger, name: str, query: str, task: int) -> None:
    page = ledger.read(cluster, query)
    decided = page is not None and task < len(page.entries)
    if page is not None and decided and ledger.end(cluster, name, page.entries[task]):
        return
    producing.init_producer(cluster, name, ledger.timeout_ms)
