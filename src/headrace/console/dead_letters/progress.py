"""How far the letters of a dead-letter topic have been sent back: offsets of a consumer group.

The group is `headrace-console-dlq-TOPIC`, so that a restarted console continues, and every tool
shows the progress. Letters after the committed offset that were sent one by one are in the
metadata of the commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.groups import Committed, commit_offsets, committed_offsets
from headrace.types import TopicPartition

GROUP_PREFIX = "headrace-console-dlq-"
MOST_METADATA = 3_000
"""Brokers accept 4,096 bytes (offset.metadata.max.bytes)."""
_SENT = "sent:"


@dataclass(frozen=True, slots=True)
class LetterProgress:
    """Of one partition: letters before `position` are done, and so are those in `sent`."""

    position: int
    sent: frozenset[int] = frozenset()

    def done(self, offset: int) -> bool:
        return offset < self.position or offset in self.sent

    def moved_to(self, position: int) -> "LetterProgress":
        """Everything before `position` is done; letters that follow and were sent are, too."""
        while position in self.sent:
            position += 1
        return LetterProgress(position, frozenset(each for each in self.sent if each >= position))

    def with_sent(self, offset: int) -> "LetterProgress":
        """One letter is done, whatever its place."""
        if self.done(offset):
            return self
        return LetterProgress(self.position, self.sent | {offset}).moved_to(self.position)

    def commit(self) -> Committed:
        metadata = _SENT + ",".join(map(str, sorted(self.sent))) if self.sent else ""
        return Committed(self.position, metadata)

    @property
    def full(self) -> bool:
        """Whether the metadata has no room for another letter."""
        return len(self.commit().metadata) > MOST_METADATA


def group_name(topic: str) -> str:
    return GROUP_PREFIX + topic


def read_progress(
    cluster: Cluster, topic: str, partitions: Sequence[int]
) -> dict[int, LetterProgress]:
    """The progress of the partitions that have one."""
    places = [TopicPartition(topic, index) for index in partitions]
    found = committed_offsets(cluster, group_name(topic), places)
    return {at.partition: parse(each) for at, each in found.items()}


def parse(committed: Committed) -> LetterProgress:
    """The progress in a commit; metadata of another program is passed over."""
    numbers = committed.metadata.removeprefix(_SENT).split(",")
    if not committed.metadata.startswith(_SENT) or not all(map(str.isdecimal, numbers)):
        return LetterProgress(committed.offset)
    return LetterProgress(committed.offset, frozenset(map(int, numbers)))


def write_progress(cluster: Cluster, topic: str, partition: int, progress: LetterProgress) -> None:
    commit_offsets(
        cluster, group_name(topic), {TopicPartition(topic, partition): progress.commit()}
    )
