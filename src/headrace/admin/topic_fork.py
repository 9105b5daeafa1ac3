"""Forks of topics: a new topic that begins with the records of another one.

Headrace brokers share the files of the records (config `fork.of`). On other clusters, and if the
caller wants it, the records are copied by this client: keys, values, headers and timestamps are
those of the parent, offsets are not.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace.admin.copied_batches import (
    MAX_SEQUENCE,
    CopiedBatch,
    copied_batches,
    put_producer,
)
from headrace.admin.errors import AdminError, InvalidRequest
from headrace.admin.positions import (
    End,
    PartitionBounds,
    bounds,
    parse_start,
    starts,
)
from headrace.admin.topics import existing_topics, settle_topics
from headrace.client.cluster import Cluster
from headrace.client.configs import describe_configs
from headrace.client.fetching import FetchPlan, fetch_range
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.producing import init_producer, produce
from headrace.client.topics import TopicDescription, create_topics, delete_topics
from headrace.errors import KafkaError
from headrace.types import ConfigResourceType, TopicPartition

FORK_OF, FORK_OFFSETS = "fork.of", "fork.offsets"
COMPLETE_TIMEOUT_S = 600.0
_PAUSE_S = 0.05

Progress = Callable[[int, int], None]
"""Called with the number of records that are done and the number of all."""


@dataclass(frozen=True, slots=True)
class TopicFork:
    """A fork that was made."""

    name: str
    parent: str
    copied: bool
    """Whether the records were copied, so that they have new offsets."""
    offsets: dict[int, int]
    """The first offset of the parent that the fork does not have, by partition."""
    records: int
    """The number of offsets of the parent that the fork covers."""

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "name": self.name,
            "parent": self.parent,
            "copied": self.copied,
            "offsets": {str(index): offset for index, offset in self.offsets.items()},
            "records": self.records,
        }


def fork_topic(
    cluster: Cluster,
    parent: str,
    name: str,
    at: str = "now",
    *,
    configs: Mapping[str, str] | None = None,
    copy_with: Cluster | None = None,
    copy: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> TopicFork:
    """Fork a topic, and wait until the fork has all records.

    `at` is `now`, an offset for each partition separated by commas, or a position as in
    `parse_start`: the fork has the records before it. `configs` replace configs of the parent. A
    copy reads with `cluster` and writes with `copy_with`.
    """
    (topic,) = existing_topics(cluster, [parent])
    known = describe_configs(cluster, ConfigResourceType.TOPIC, parent)
    limits = bounds(
        cluster, [TopicPartition(parent, index) for index in topic.partitions], committed=True
    )
    cuts = _cuts(cluster, at, limits)
    own = {each.name: each.value for each in known if each.changed_here and each.value is not None}
    inherited = {key: value for key, value in own.items() if not key.startswith("fork.")}
    wanted = {**inherited, **(configs or {})}
    shares_files = any(each.name == FORK_OF for each in known)
    records = sum(max(cuts[each] - limits[each].begin, 0) for each in cuts)
    if shares_files and not copy:
        wanted[FORK_OF] = parent
        wanted[FORK_OFFSETS] = ",".join(str(cuts[each]) for each in sorted(cuts))
        _create(cluster, name, wanted)
        _wait_until_complete(cluster, name, cuts)
    else:
        replicas = len(next(iter(topic.partitions.values())).replicas)
        _create(cluster, name, wanted, len(topic.partitions), replicas)
        _copy(cluster, copy_with or cluster, topic, name, limits, cuts, progress)
    offsets = {each.partition: offset for each, offset in sorted(cuts.items())}
    return TopicFork(name, parent, copy or not shares_files, offsets, records)


def _cuts(
    cluster: Cluster, at: str, limits: Mapping[TopicPartition, PartitionBounds]
) -> dict[TopicPartition, int]:
    if "," not in at:
        found = starts(cluster, End() if at == "now" else parse_start(at), limits)
        return {each: limits[each].nearest(offset) for each, offset in found.items()}
    words = at.split(",")
    if len(words) != len(limits) or not all(word.strip().isdecimal() for word in words):
        raise InvalidRequest(
            f"{at!r} is not an offset for each partition",
            f"Give {len(limits)} offsets separated by commas, a time, or now.",
        )
    cuts = {each: int(word) for each, word in zip(sorted(limits), words, strict=True)}
    for each, offset in cuts.items():
        if offset > limits[each].end:
            raise InvalidRequest(
                f"{each} has no records up to the offset {offset}",
                f"Its last stable offset is {limits[each].end}.",
            )
    return cuts


def _create(
    cluster: Cluster,
    name: str,
    configs: Mapping[str, str],
    partitions: int = -1,
    replication_factor: int = -1,
) -> None:
    refused = create_topics(
        cluster, [name], partitions=partitions, replication_factor=replication_factor,
        configs=configs,
    )  # fmt: skip
    for error in refused.values():
        raise error
    settle_topics(cluster, [name], present=True)


def _wait_until_complete(cluster: Cluster, name: str, cuts: Mapping[TopicPartition, int]) -> None:
    """Wait until all in-sync replicas have the records: the parent may be deleted then."""
    waiting = {TopicPartition(name, each.partition): cut for each, cut in cuts.items()}
    deadline = time.monotonic() + COMPLETE_TIMEOUT_S
    while waiting:
        with suppress(KafkaError):  # such as NOT_LEADER_OR_FOLLOWER while the fork is built
            ends = list_offsets(cluster, dict.fromkeys(waiting, LATEST))
            waiting = {each: cut for each, cut in waiting.items() if ends[each] < cut}
        if waiting and time.monotonic() > deadline:
            raise AdminError(
                f"{len(waiting)} partitions of {name} are not complete after "
                f"{COMPLETE_TIMEOUT_S:g} s",
                hint="The brokers continue. `headrace topics describe` shows the offsets.",
            )
        if waiting:
            time.sleep(_PAUSE_S)


# --- Copies ---------------------------------------------------------------------------------------


def _copy(
    source: Cluster,
    target: Cluster,
    topic: TopicDescription,
    name: str,
    limits: Mapping[TopicPartition, PartitionBounds],
    cuts: Mapping[TopicPartition, int],
    progress: Progress,
) -> None:
    """Copy the records of all partitions; the new topic is deleted if that fails."""
    total = sum(cuts[each] - limits[each].begin for each in cuts)
    done = 0
    try:
        producer = init_producer(target)
        for each in sorted(cuts):
            begin, sequence = limits[each].begin, 0
            plan = FetchPlan(each, COMMITTED, topic_id=topic.topic_id)
            for batch in _batches(source, plan, begin, cuts[each]):
                put_producer(batch.data, producer, sequence)
                produce(target, {TopicPartition(name, each.partition): batch.data}, producer)
                sequence = (sequence + len(batch.offsets)) & MAX_SEQUENCE
                progress(done + batch.next_offset - begin, total)
            done += cuts[each] - begin
    except BaseException:
        with suppress(Exception):
            delete_topics(target, [name])
        raise


def _batches(source: Cluster, plan: FetchPlan, begin: int, end: int) -> Iterator[CopiedBatch]:
    for fetched in fetch_range(source, plan, begin, end):
        yield from copied_batches(fetched, begin, end)
