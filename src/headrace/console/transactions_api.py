"""Transactions: those that are open, the partitions they hold back, and how to abort them."""

import time

from headrace.admin.transactions_view import (
    abort_hanging,
    abort_transaction,
    existing_transaction,
    held_partitions,
    open_transactions,
)
from headrace.client.cluster import Cluster
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.types import TopicPartition


async def list_open(request: ConsoleRequest) -> object:
    """Transactions that are not completed, the oldest first."""
    now_ms = time.time_ns() // 1_000_000
    rows = await request.console.cluster.run(open_transactions, now_ms)
    return {
        "transactions": [
            {
                "id": each.transactional_id,
                "state": each.state,
                "producer_id": str(each.producer_id),
                "epoch": each.epoch,
                "timeout_ms": each.timeout_ms,
                "age_ms": each.age_ms,
                "partitions": [str(at) for at in each.partitions],
            }
            for each in rows
        ]
    }


async def list_held(request: ConsoleRequest) -> object:
    """Partitions whose last stable offset is behind their end, and what holds it."""
    rows = await request.console.cluster.run(held_partitions)
    return {
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "last_stable": str(each.last_stable),
                "end": str(each.end),
                "hidden": str(each.hidden),
                "holds": [
                    {
                        "producer_id": str(hold.producer_id),
                        "epoch": hold.epoch,
                        "start": str(hold.start_offset),
                        "id": hold.transactional_id,
                        "state": hold.state,
                        "hanging": hold.hanging,
                    }
                    for hold in each.holds
                ],
            }
            for each in rows
        ]
    }


async def abort(request: ConsoleRequest) -> object:
    """Aborts what a transactional id has open, and fences its producer."""
    return await request.console.cluster.run(_abort, request.path["id"])


async def abort_in_partition(request: ConsoleRequest) -> object:
    """Aborts a hanging transaction in one partition."""
    body = request.fields()
    place = TopicPartition(
        request.field("topic"), whole_number("partition", body.get("partition"), 0, 2**31 - 1)
    )
    start = whole_number("start", body.get("start"))
    done = await request.console.cluster.run(abort_hanging, place, start)
    return {"aborted": done.aborted, "producer_id": str(done.producer_id)}


def _abort(cluster: Cluster, transactional_id: str) -> object:
    done = abort_transaction(cluster, existing_transaction(cluster, transactional_id))
    return {"aborted": done.aborted, "producer_id": str(done.producer_id)}
