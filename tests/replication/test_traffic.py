"""Counters of topics: bounded in number, and never smaller than before."""

from headrace.replication.traffic import Traffic


def test_topics_beyond_the_limit_share_their_counters() -> None:
    traffic = Traffic(most_topics=2)
    for topic in ("a", "b", "c", "d"):
        traffic.of(topic).bytes_in += 10
    assert traffic.of("a").bytes_in == 10
    assert traffic.others.bytes_in == 20
    assert sorted(traffic.topics) == ["a", "b"]


def test_a_topic_that_was_counted_with_others_stays_there_when_another_is_deleted() -> None:
    traffic = Traffic(most_topics=1)
    traffic.of("a").bytes_in += 1
    shared = traffic.of("b")
    traffic.forget("a")
    shared.bytes_in += 1
    assert traffic.others.bytes_in == 1
    assert traffic.of("c") is not shared


def test_the_total_does_not_shrink_when_a_topic_is_deleted() -> None:
    traffic = Traffic(most_topics=10)
    traffic.of("a").records_in += 5
    traffic.of("b").records_in += 7
    traffic.forget("a")
    traffic.forget("never there")
    assert traffic.total().records_in == 12
    assert traffic.of("a").records_in == 0
