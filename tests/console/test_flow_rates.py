"""Rates of flows, from offsets at several moments."""

from headrace.console.flow.flow_rates import rate
from headrace.types import TopicPartition

ONE, TWO, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)


def test_the_rate_is_the_mean_of_all_partitions_between_the_first_and_the_last_sample() -> None:
    samples = [(10.0, {ONE: 5, TWO: 0}), (11.0, {ONE: 9, TWO: 0}), (14.0, {ONE: 25, TWO: 20})]
    assert rate(samples, "t") == 10.0


def test_samples_without_the_topic_do_not_count() -> None:
    samples = [(10.0, {OTHER: 1}), (12.0, {ONE: 5}), (13.0, {OTHER: 2}), (14.0, {ONE: 9})]
    assert rate(samples, "t") == 2.0


def test_a_rate_that_is_not_known_is_none_and_not_zero() -> None:
    assert rate([], "t") is None
    assert rate([(1.0, {ONE: 5})], "t") is None
    assert rate([(1.0, {ONE: 5}), (2.0, {ONE: 3})], "t") is None, "offsets were reset"
    assert rate([(1.0, {ONE: 5}), (2.0, {TWO: 3})], "t") is None
    assert rate([(1.0, {ONE: 5}), (2.0, {ONE: 5})], "t") == 0.0
