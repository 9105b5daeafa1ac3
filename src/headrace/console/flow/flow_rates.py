"""Rates of topics and consumer groups, from end offsets and committed offsets.

Measured when a page asks, at most once a second for all pages together; nobody looking costs
nothing. The rate is the mean of the last seconds, because consumers commit seldom.
"""

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.groups import committed_by_group
from headrace.client.offsets import end_offsets
from headrace.console.cluster_threads import ClusterThreads
from headrace.types import TopicPartition

SAMPLE_S = 1.0
WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class FlowSample:
    """Offsets at one moment."""

    time_s: float
    ends: Mapping[TopicPartition, int]
    commits: Mapping[str, Mapping[TopicPartition, int]]


class FlowRates:
    """The samples of the last seconds."""

    def __init__(self, cluster: ClusterThreads) -> None:
        self._cluster = cluster
        self._lock = asyncio.Lock()
        self._samples: deque[FlowSample] = deque()
        self._topics: dict[str, float] = {}
        self._groups: dict[str, float] = {}
        """When each was last asked for: pages with different filters share the samples."""

    async def sample(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Measures now, unless another page has done so within the last second."""
        async with self._lock:
            now = time.monotonic()
            self._topics |= dict.fromkeys(topics, now)
            self._groups |= dict.fromkeys(groups, now)
            if self._samples and now - self._samples[-1].time_s < SAMPLE_S:
                return
            self._topics = _recent(self._topics, now)
            self._groups = _recent(self._groups, now)
            self._samples.append(
                await self._cluster.run(take_sample, list(self._topics), list(self._groups))
            )
            # Two samples always stay, unless they are too old to say something about now.
            while len(self._samples) > 2 and now - self._samples[1].time_s >= WINDOW_S:
                self._samples.popleft()
            while self._samples and now - self._samples[0].time_s > 3 * WINDOW_S:
                self._samples.popleft()

    def topic(self, name: str) -> float | None:
        """Records per second that are written to a topic; None if it is not known yet."""
        return rate([(each.time_s, each.ends) for each in self._samples], name)

    def group(self, group: str, topic: str) -> float | None:
        """Records per second that a group commits; None if it is not known yet."""
        commits = [(each.time_s, each.commits.get(group, {})) for each in self._samples]
        return rate(commits, topic)


def rate(samples: Sequence[tuple[float, Mapping[TopicPartition, int]]], topic: str) -> float | None:
    """Records per second of a topic, between the first and the last sample that have it."""
    known = [
        (time_s, found)
        for time_s, offsets in samples
        if (found := {at: offset for at, offset in offsets.items() if at.topic == topic})
    ]
    if len(known) < 2:
        return None
    (first_s, first), (last_s, last) = known[0], known[-1]
    moved = [last[at] - first[at] for at in last if at in first]
    # Offsets that went back were reset, or the topic was created again.
    if not moved or min(moved) < 0 or last_s <= first_s:
        return None
    return sum(moved) / (last_s - first_s)


def _recent(asked: Mapping[str, float], now: float) -> dict[str, float]:
    return {name: time_s for name, time_s in asked.items() if now - time_s <= WINDOW_S}


def take_sample(cluster: Cluster, topics: Collection[str], groups: Collection[str]) -> FlowSample:
    """The offsets of these topics and groups; what cannot be read is left out."""
    found = cluster.retry("topics", lambda: cluster.topics(list(topics))) if topics else {}
    places = [
        TopicPartition(name, index)
        for name, topic in found.items()
        for index in range(len(topic.leaders))
    ]
    ends = end_offsets(cluster, places) if places else {}
    committed, _ = committed_by_group(cluster, groups) if groups else ({}, {})
    return FlowSample(
        time.monotonic(),
        ends,
        {
            group: {at: each.offset for at, each in offsets.items()}
            for group, offsets in committed.items()
        },
    )
