"""Brokers: the cluster's health, settings, log folders, reassignments and preferred leaders."""

from collections.abc import Mapping
from dataclasses import asdict

from headrace.admin.cluster_view import view_cluster
from headrace.admin.reassignment import elect_preferred_leaders
from headrace.client.cluster import Cluster
from headrace.client.configs import alter_configs, describe_configs
from headrace.client.layout import move, moves_under_way
from headrace.client.log_folders import describe_log_folders
from headrace.console.console_request import ConsoleRequest, text_map, whole_number
from headrace.console.topics_api import shown_configs
from headrace.service.errors import HttpError
from headrace.types import ConfigResourceType, TopicPartition

MOST_NAMED = 200
"""Partitions that are named in a list of problems."""


async def get_brokers(request: ConsoleRequest) -> object:
    """Brokers with what they lead and hold, and everything that is wrong."""
    view = await request.console.cluster.run(view_cluster)
    found = asdict(view)
    for name in ("under_replicated", "under_min_isr", "offline", "moving"):
        found[name] = {"count": len(found[name]), "partitions": found[name][:MOST_NAMED]}
    found["apis"] = len(found["apis"])
    return found


async def get_reassignments(request: ConsoleRequest) -> object:
    """Partitions whose replicas move at the moment."""
    moving = await request.console.cluster.run(_moving)
    return {"moves": moving}


async def get_log_folders(request: ConsoleRequest) -> object:
    """The log folders of every broker: how full they are, and what is wrong with them."""
    rows = await request.console.cluster.run(describe_log_folders)
    return {
        "folders": [
            {
                "broker": each.broker,
                "path": each.path,
                "error": each.error,
                "partitions": each.partitions,
                "bytes": str(each.size_bytes),
                "total_bytes": None if each.total_bytes is None else str(each.total_bytes),
                "usable_bytes": None if each.usable_bytes is None else str(each.usable_bytes),
            }
            for each in rows
        ]
    }


async def get_broker_configs(request: ConsoleRequest) -> object:
    """All settings of a broker; secrets are left out."""
    rows = await request.console.cluster.run(
        describe_configs, ConfigResourceType.BROKER, str(_broker(request))
    )
    return {"configs": shown_configs(rows)}


async def change_broker_configs(request: ConsoleRequest) -> object:
    """Sets settings of a broker, or puts them back."""
    body = request.fields()
    to_delete = body.get("delete", [])
    await request.console.cluster.run(
        alter_configs,
        ConfigResourceType.BROKER,
        str(_broker(request)),
        text_map("set", body.get("set", {})),
        [str(each) for each in to_delete] if isinstance(to_delete, list) else [],
    )
    return {"broker": _broker(request)}


async def elect_preferred(request: ConsoleRequest) -> object:
    """Elects the preferred leaders where others lead."""
    refused = await request.console.cluster.run(elect_preferred_leaders)
    return {"refused": {str(at): str(error) for at, error in refused.items()}}


async def start_reassignment(request: ConsoleRequest) -> object:
    """Moves a partition to other brokers; the first one is the preferred leader."""
    given = request.fields().get("replicas")
    if not isinstance(given, list) or not given:
        raise HttpError(400, "The field replicas must be a list of brokers")
    replicas = tuple(whole_number("replicas", each, 0, 2**31 - 1) for each in given)
    await request.console.cluster.run(_move, _partition(request), replicas)
    return {"replicas": list(replicas)}


async def cancel_reassignment(request: ConsoleRequest) -> object:
    """Cancels a reassignment that is not complete; the partition keeps its former replicas."""
    place = _partition(request)
    await request.console.cluster.run(_move, place, None)
    return {"topic": place.topic, "partition": place.partition}


def _move(cluster: Cluster, place: TopicPartition, replicas: tuple[int, ...] | None) -> None:
    refused = cluster.retry("moving replicas", lambda: move(cluster, {place: replicas}))
    for error in refused.values():
        raise error


def _partition(request: ConsoleRequest) -> TopicPartition:
    partition = whole_number("partition", request.path["partition"], 0, 2**31 - 1)
    return TopicPartition(request.path["topic"], partition)


def _broker(request: ConsoleRequest) -> int:
    return whole_number("broker", request.path["broker"], 0, 2**31 - 1)


def _moving(cluster: Cluster) -> list[Mapping[str, object]]:
    found = cluster.retry("listing reassignments", lambda: moves_under_way(cluster))
    return [
        {
            "topic": at.topic,
            "partition": at.partition,
            "replicas": list(each.replicas),
            "adding": list(each.adding),
            "removing": list(each.removing),
        }
        for at, each in sorted(found.items())
    ]
