"""Topics: list, numbers of the rows that are visible, one topic, create, change, delete.

The list has names, partitions and the groups that were observed, which are one request to the
cluster. Sizes and record counts are asked for by the rows that a browser shows.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from headrace.admin.group_view import GroupView, PartitionLag, total_lag
from headrace.admin.topic_view import PartitionView, view_partitions
from headrace.admin.volume import topic_volume
from headrace.client.cluster import Cluster
from headrace.client.configs import ConfigValue, alter_configs, describe_configs
from headrace.client.topics import (
    BROKER_DEFAULT,
    TopicDescription,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
)
from headrace.console.console_request import ConsoleRequest, text_map, whole_number
from headrace.console.groups_api import lag_fields
from headrace.service.errors import HttpError
from headrace.types import ConfigResourceType

MOST_NUMBERS = 200
"""Topics in one request for numbers."""
DAY_MS = 86_400_000


async def list_topics(request: ConsoleRequest) -> object:
    """All topics by name."""
    topics = await request.console.cluster.run(describe_topics)
    observer = request.console.observer
    groups = TopicGroups(observer.views.values(), observer.gap)
    return {
        "topics": [
            {
                "name": each.name,
                "internal": each.internal or each.name.startswith("__"),
                "partitions": len(each.partitions),
                "replication_factor": _replication_factor(each),
                "under_replicated": sum(
                    len(part.isr) < len(part.replicas) for part in each.partitions.values()
                ),
                "offline": len(each.partitions) - len(each.led),
                **groups.of(each.name),
            }
            for each in sorted(topics.values(), key=lambda each: each.name)
        ]
    }


async def get_numbers(request: ConsoleRequest) -> object:
    """Records and bytes of some topics."""
    names = request.fields().get("topics")
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise HttpError(400, "The field topics must be a list of texts")
    if len(names) > MOST_NUMBERS:
        raise HttpError(400, f"Ask for at most {MOST_NUMBERS} topics at once")
    return await request.console.cluster.run(_numbers, names)


async def get_topic(request: ConsoleRequest) -> object:
    """Partitions of one topic: leaders, replicas, offsets, bytes."""
    return await request.console.cluster.run(_topic, request.path["topic"])


async def get_topic_configs(request: ConsoleRequest) -> object:
    """All settings of a topic, with where each value comes from."""
    rows = await request.console.cluster.run(
        describe_configs, ConfigResourceType.TOPIC, request.path["topic"]
    )
    return {"configs": shown_configs(rows)}


def shown_configs(rows: Iterable[ConfigValue]) -> list[dict[str, object]]:
    """Settings for a browser; secrets are left out."""
    return [
        {
            "name": each.name,
            "value": None if each.sensitive else each.value,
            "source": each.source,
            "read_only": each.read_only,
            "sensitive": each.sensitive,
        }
        for each in rows
    ]


async def create_topic(request: ConsoleRequest) -> object:
    """Creates a topic; partitions and replication factor default to the broker's."""
    name, body = request.field("name"), request.fields()
    partitions = _optional_number(body, "partitions")
    replication_factor = _optional_number(body, "replication_factor")
    refused = await request.console.cluster.run(
        create_topics,
        [name],
        partitions=partitions,
        replication_factor=replication_factor,
        configs=text_map("configs", body.get("configs", {})),
    )
    _raise_refused(refused)
    return {"name": name}


async def change_topic_configs(request: ConsoleRequest) -> object:
    """Sets some settings and puts others back to their defaults, all or none."""
    body = request.fields()
    to_set = text_map("set", body.get("set", {}))
    to_delete = body.get("delete", [])
    if not isinstance(to_delete, list) or not all(isinstance(each, str) for each in to_delete):
        raise HttpError(400, "The field delete must be a list of texts")
    name = request.path["topic"]
    await request.console.cluster.run(
        alter_configs, ConfigResourceType.TOPIC, name, to_set, to_delete
    )
    return {"name": name}


async def change_partitions(request: ConsoleRequest) -> object:
    """Adds partitions; a topic cannot have fewer."""
    total = whole_number("partitions", request.fields().get("partitions"), 1, 2**31 - 1)
    await request.console.cluster.run(add_partitions, request.path["topic"], total)
    return {"name": request.path["topic"]}


async def delete_topic(request: ConsoleRequest) -> object:
    """Deletes a topic with its records."""
    name = request.path["topic"]
    _raise_refused(await request.console.cluster.run(delete_topics, [name]))
    return {"name": name}


async def get_topic_groups(request: ConsoleRequest) -> object:
    """The groups that read a topic, with their lag in it."""
    topic = request.path["topic"]
    observer = request.console.observer
    found: list[dict[str, object]] = []
    for view in await observer.groups():
        rows = [row for row in view.partitions if row.topic == topic]
        if rows:
            delays = [row.delay_s for row in rows if row.delay_s is not None]
            found.append(
                {
                    "name": view.description.name,
                    "state": view.description.state,
                    "members": len(view.description.members),
                    **lag_fields(total_lag(rows, view.problem)),
                    "lag_seconds": max(delays, default=None),
                    "status": observer.status(view).status,
                    "status_complete": observer.status(view).complete,
                }
            )
    return {"groups": found, "problem": observer.problem}


async def get_volume(request: ConsoleRequest) -> object:
    """Records over time between two moments, by ListOffsets."""
    now_ms = time.time_ns() // 1_000_000
    stop = whole_number("to", request.text("to") or str(now_ms))
    start = whole_number("from", request.text("from") or str(stop - DAY_MS))
    points = whole_number("points", request.text("points", "61"), 2, 200)
    found = await request.console.cluster.run(
        topic_volume, request.path["topic"], start, stop, points
    )
    return {
        "times": [str(each) for each in found.times_ms],
        "records": [str(each) for each in found.records],
        "missing": found.missing,
    }


class TopicGroups:
    """How many groups read each topic, and the sums of their lags, as last observed."""

    def __init__(self, views: Collection[GroupView], gap: str) -> None:
        """With a `gap` there may be more groups; without any view their number is unknown."""
        refused = sum(bool(view.problem) for view in views)
        if refused and not gap:
            gap = f"the offsets of {refused} groups cannot be read"
        self._gap = gap
        self._counts: Counter[str] = Counter()
        self._rows: dict[str, list[PartitionLag]] = {}
        for view in views:
            self._counts.update({row.topic for row in view.partitions})
            for row in view.partitions:
                self._rows.setdefault(row.topic, []).append(row)

    def of(self, topic: str) -> dict[str, object]:
        """The fields of one topic."""
        gap, count = self._gap, self._counts[topic]
        if gap and not count:
            return {"groups": None, "groups_gap": gap, "lag": None, "lag_gap": gap}
        lag = total_lag(self._rows.get(topic, ()), gap)
        return {"groups": count, "groups_gap": gap, **lag_fields(lag)}


def _numbers(cluster: Cluster, names: Iterable[str]) -> dict[str, dict[str, object]]:
    topics = list(describe_topics(cluster, names).values())
    found = view_partitions(cluster, topics)
    return {name: topic_numbers(partitions) for name, partitions in found.items()}


def topic_numbers(partitions: Sequence[PartitionView]) -> dict[str, object]:
    """Records and bytes, as far as they are known; the gaps tell what is missing."""
    records = [
        None if each.begin is None or each.end is None else each.end - each.begin
        for each in partitions
    ]
    sizes = [each.size_bytes for each in partitions]
    return {
        "records": _known_sum(records),
        "records_gap": _gap(records, "have no leader"),
        "bytes": _known_sum(sizes),
        "bytes_gap": _gap(sizes, "have no size that a broker tells"),
    }


def _known_sum(values: Sequence[int | None]) -> str | None:
    known = [each for each in values if each is not None]
    return str(sum(known)) if known else None


def _gap(values: Sequence[int | None], why: str) -> str:
    missing = values.count(None)
    return f"{missing} of {len(values)} partitions {why}" if missing else ""


def _topic(cluster: Cluster, name: str) -> Mapping[str, object]:
    found = describe_topics(cluster, [name]).get(name)
    if found is None:
        raise HttpError(404, f"Topic {name} does not exist")
    return {
        "name": name,
        "id": None if found.topic_id is None else str(found.topic_id),
        "internal": found.internal,
        "replication_factor": _replication_factor(found),
        "partitions": [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": each.replicas,
                "in_sync": each.isr,
                "begin": _text(each.begin),
                "end": _text(each.end),
                "bytes": _text(each.size_bytes),
            }
            for each in view_partitions(cluster, [found])[name]
        ],
    }


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _replication_factor(topic: TopicDescription) -> int:
    return max((len(part.replicas) for part in topic.partitions.values()), default=0)


def _optional_number(body: Mapping[str, object], name: str) -> int:
    value = body.get(name)
    return BROKER_DEFAULT if value in (None, "") else whole_number(name, value, 1, 2**31 - 1)


def _raise_refused(refused: Mapping[str, Exception]) -> None:
    for error in refused.values():
        raise HttpError(422, str(error))
