"""Pushed metrics are read whatever the order of their fields, and never beyond their bounds."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.otlp import MAX_ATTRIBUTES, MetricPoint, PushedMetrics, read_metrics
from headrace.wire.steps import finish
from tests.support.otlp import (
    CUMULATIVE,
    attribute,
    counter,
    field,
    fixed64,
    gauge,
    metrics_data,
    number_field,
    point,
    varint,
)


def read(data: bytes, max_points: int = 100) -> PushedMetrics:
    return finish(read_metrics(data, max_points))


def test_gauges_and_sums_are_read_with_their_attributes() -> None:
    data = metrics_data(
        gauge("a.b", point(1.5, {"topic": "t"}), point(-3, {"topic": "ü"})),
        counter("c", point(7)),
        counter("d", point(8), temporality=CUMULATIVE),
        resource={"group_id": "g"},
    )
    group = ("group_id", "g")
    assert read(data) == PushedMetrics(
        [
            MetricPoint("a.b", False, False, (group, ("topic", "t")), 1.5),
            MetricPoint("a.b", False, False, (group, ("topic", "ü")), -3),
            MetricPoint("c", True, True, (group,), 7),
            MetricPoint("d", True, False, (group,), 8),
        ]
    )


def test_the_order_of_fields_does_not_matter() -> None:
    sum_first = field(7, number_field(3, 1) + number_field(2, 1) + field(1, point(7)))
    metric = sum_first + field(1, b"late")
    data = field(1, field(2, field(2, metric)) + field(1, field(1, attribute("k", field(1, b"v")))))
    assert read(data).points == [MetricPoint("late", True, True, (("k", "v"),), 7)]


def test_attributes_of_all_simple_types_become_text() -> None:
    values = {
        "true": number_field(2, 1),
        "-1": number_field(3, (1 << 64) - 1),
        "0.5": fixed64(4, 0.5),
        "text": field(1, b"text"),
    }
    attributes = b"".join(field(7, attribute(text, value)) for text, value in values.items())
    array = field(7, attribute("array", field(5, b"")))
    (found,) = read(metrics_data(gauge("g", fixed64(6, 1) + attributes + array))).points
    assert found.attributes == tuple((text, text) for text in values)


def test_points_without_a_value_and_other_kinds_of_metrics_are_skipped() -> None:
    empty, flagged = b"", number_field(8, 1) + point(5)
    histogram = field(1, b"h") + field(9, field(1, b""))
    pushed = read(metrics_data(gauge("g", empty, flagged, point(1)), histogram))
    assert [one.value for one in pushed.points] == [1]
    assert pushed.skipped == 1


def test_no_more_points_are_read_than_asked_for() -> None:
    pushed = read(metrics_data(gauge("g", *[point(n) for n in range(10)])), max_points=4)
    assert [one.value for one in pushed.points] == [0, 1, 2, 3]
    assert pushed.skipped == 6


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x80" * 11,
        b"\x0b\x0c",
        b"\x09\x00",
        metrics_data(gauge("g", point(1)))[:-1],
        metrics_data(gauge("g", point(1, {f"k{n}": "v" for n in range(MAX_ATTRIBUTES + 1)}))),
    ],
)
def test_malformed_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refusal:
        read(data)
    assert refusal.value.code is ErrorCode.INVALID_RECORD


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(KafkaError):
        read(data)


def test_many_empty_fields_are_read_in_steps() -> None:
    data = b"\x10\x00" * 10_000
    assert sum(1 for _ in read_metrics(data, 1)) >= 40


def test_special_numbers_are_read() -> None:
    inf = metrics_data(gauge("g", varint(4 << 3 | 1) + struct.pack("<d", float("inf"))))
    assert read(inf).points[0].value == float("inf")
