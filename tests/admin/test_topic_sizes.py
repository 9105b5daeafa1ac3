"""What retention can delete next, without a broker."""

from headrace.admin.topic_sizes import (
    NextDeletion,
    PartitionSize,
    TopicSize,
    earliest_deletion,
)
from headrace.settings import LogSettings

NOW = 1_700_000_000_000


def test_without_segments_the_limits_give_the_earliest_moment() -> None:
    by_number = LogSettings(retention_ms=-1, retention_messages=30)
    assert earliest_deletion(by_number, 100, 0, 20, NOW, NOW) == NextDeletion(
        "retention.messages", None, 10
    )
    assert earliest_deletion(by_number, 100, 0, 40, NOW, NOW) == NextDeletion(
        "retention.messages", None, 0
    )
    assert earliest_deletion(by_number, 100, 40, 40, None, NOW) is None


def test_of_a_topics_partitions_the_first_to_lose_something_counts() -> None:
    soon, later = NextDeletion("retention.ms", NOW + 5), NextDeletion("retention.ms", NOW + 9)
    now = NextDeletion("retention.bytes", NOW, 0, 3, 100)
    waits = NextDeletion("consumed.groups")

    def topic(*following: NextDeletion) -> TopicSize:
        return TopicSize("t", [PartitionSize(0, 1, 1, 0, 1, NOW, each) for each in following])

    assert topic(later, soon, waits).next is soon
    assert topic(soon, now).next is now
    assert topic(waits).next is waits
    assert TopicSize("t", []).next is None
