"""Reads the metrics that clients push: OpenTelemetry's MetricsData, encoded with Protocol Buffers.

It reads what Kafka's clients write: gauges and sums, with the attributes of their data points
and of their resource. Other kinds of metrics are counted and skipped. The reader works in steps
(`steps.py`), so that a large push does not delay other clients, and it reads a bounded number of
data points.

    MetricsData      1 resource metrics
    ResourceMetrics  1 resource (1 attributes), 2 scope metrics
    ScopeMetrics     2 metrics
    Metric           1 name, 5 gauge, 7 sum; 9, 10 and 11 are histograms and summaries
    Gauge            1 data points
    Sum              1 data points, 2 temporality (1 delta, 2 cumulative), 3 is monotonic
    NumberDataPoint  4 double, 6 sfixed64, 7 attributes, 8 flags (1: there is no value)
    KeyValue         1 key, 2 value
    AnyValue         1 string, 2 bool, 3 int64, 4 double
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.steps import Steps

MAX_ATTRIBUTES = 32
"""Attributes of one data point or resource; more are refused."""

_FIELDS_PER_STEP = 200
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DELTA = 1
_NO_VALUE = 1

_double = struct.Struct("<d")
_int64 = struct.Struct("<q")

Attributes = tuple[tuple[str, str], ...]


class MetricPoint(NamedTuple):
    """One value of a metric."""

    name: str
    counter: bool
    """Whether it only grows; otherwise it is a gauge."""
    delta: bool
    """Whether the value is the growth since the last push."""
    attributes: Attributes
    value: float


@dataclass(slots=True)
class PushedMetrics:
    """The data points of a push."""

    points: list[MetricPoint] = field(default_factory=list)
    skipped: int = 0
    """Metrics of other kinds, and data points beyond the limit."""


class _Message(Enum):
    """The messages that are read; all others are skipped."""

    DATA = "MetricsData"
    RESOURCE_METRICS = "ResourceMetrics"
    RESOURCE = "Resource"
    SCOPE_METRICS = "ScopeMetrics"
    METRIC = "Metric"
    GAUGE = "Gauge"
    SUM = "Sum"
    POINT = "NumberDataPoint"
    ATTRIBUTE = "KeyValue"
    VALUE = "AnyValue"


_M = _Message
_INNER = {
    (_M.DATA, 1): _M.RESOURCE_METRICS,
    (_M.RESOURCE_METRICS, 1): _M.RESOURCE,
    (_M.RESOURCE_METRICS, 2): _M.SCOPE_METRICS,
    (_M.RESOURCE, 1): _M.ATTRIBUTE,
    (_M.SCOPE_METRICS, 2): _M.METRIC,
    (_M.METRIC, 5): _M.GAUGE,
    (_M.METRIC, 7): _M.SUM,
    (_M.GAUGE, 1): _M.POINT,
    (_M.SUM, 1): _M.POINT,
    (_M.POINT, 7): _M.ATTRIBUTE,
    (_M.ATTRIBUTE, 2): _M.VALUE,
}
"""The fields that are messages."""


def read_metrics(data: bytes | bytearray, max_points: int) -> Steps[PushedMetrics]:
    """The data points in `data`, up to `max_points`; INVALID_RECORD if it is malformed."""
    reader = _Reader(max_points)
    open_messages = [(_M.DATA, len(data))]
    pos = fields = 0
    while open_messages:
        message, end = open_messages[-1]
        if pos == end:
            open_messages.pop()
            reader.close(message)
            continue
        fields += 1
        if fields % _FIELDS_PER_STEP == 0:
            yield
        tag, pos = _read_varint(data, pos, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, pos = _read_varint(data, pos, end)
            reader.number(message, number, value)
            continue
        if kind == _BYTES:
            size, pos = _read_varint(data, pos, end)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _malformed(f"wire type {kind}")
        start, pos = pos, pos + size
        if pos > end:
            raise _malformed("a field reaches past the end of its message")
        inner = _INNER.get((message, number)) if kind == _BYTES else None
        if inner is not None:
            open_messages.append((inner, pos))
            reader.open(inner)
            pos = start
        elif kind == _BYTES:
            reader.text(message, number, data, start, pos)
        elif kind == _FIXED64:
            reader.fixed64(message, number, data, start)
    return reader.read


class _Reader:
    """Collects the fields of messages as they are read, in any order."""

    def __init__(self, max_points: int) -> None:
        self.read = PushedMetrics()
        self._max_points = max_points
        self._resource: dict[str, str] = {}
        self._resource_begins = 0
        self._name = ""
        self._sum = self._monotonic = self._delta = False
        self._metric_begins = 0
        self._point: dict[str, str] = {}
        self._attributes = self._point
        self._value: float | None = None
        self._has_value = True
        self._key = ""
        self._text: str | None = None
        self._open: dict[_Message, Callable[[], None]] = {
            _M.RESOURCE_METRICS: self._open_resource_metrics,
            _M.RESOURCE: self._open_resource,
            _M.METRIC: self._open_metric,
            _M.SUM: self._open_sum,
            _M.POINT: self._open_point,
            _M.ATTRIBUTE: self._open_attribute,
        }
        self._close: dict[_Message, Callable[[], None]] = {
            _M.RESOURCE_METRICS: self._close_resource_metrics,
            _M.METRIC: self._close_metric,
            _M.POINT: self._close_point,
            _M.ATTRIBUTE: self._close_attribute,
        }

    def open(self, message: _Message) -> None:
        """A message begins."""
        if message in self._open:
            self._open[message]()

    def close(self, message: _Message) -> None:
        """All fields of a message have been read."""
        if message in self._close:
            self._close[message]()

    def _open_resource_metrics(self) -> None:
        self._resource = {}
        self._resource_begins = len(self.read.points)

    def _open_resource(self) -> None:
        self._attributes = self._resource

    def _open_metric(self) -> None:
        self._name = ""
        self._sum = self._monotonic = self._delta = False
        self._metric_begins = len(self.read.points)

    def _open_sum(self) -> None:
        self._sum = True

    def _open_point(self) -> None:
        self._point = self._attributes = {}
        self._value, self._has_value = None, True

    def _open_attribute(self) -> None:
        self._key, self._text = "", None

    def _close_attribute(self) -> None:
        if self._text is None:
            return
        if len(self._attributes) >= MAX_ATTRIBUTES:
            raise _malformed(f"more than {MAX_ATTRIBUTES} attributes")
        self._attributes[self._key] = self._text

    def _close_point(self) -> None:
        if self._value is None or not self._has_value:
            return
        if len(self.read.points) >= self._max_points:
            self.read.skipped += 1
            return
        attributes = tuple(self._point.items())
        self.read.points.append(MetricPoint("", False, False, attributes, self._value))

    def _close_metric(self) -> None:
        """Name and kind are known only now: protobuf allows any order of fields."""
        points, counter = self.read.points, self._sum and self._monotonic
        delta = self._sum and self._delta
        for place in range(self._metric_begins, len(points)):
            _, _, _, attributes, value = points[place]
            points[place] = MetricPoint(self._name, counter, delta, attributes, value)

    def _close_resource_metrics(self) -> None:
        if not self._resource:
            return
        points, shared = self.read.points, tuple(self._resource.items())
        for place in range(self._resource_begins, len(points)):
            name, counter, delta, attributes, value = points[place]
            points[place] = MetricPoint(name, counter, delta, shared + attributes, value)

    def number(self, message: _Message, field_number: int, value: int) -> None:
        """A field that is a variable-length integer."""
        match message, field_number:
            case _M.SUM, 2:
                self._delta = value == _DELTA
            case _M.SUM, 3:
                self._monotonic = bool(value)
            case _M.POINT, 8:
                self._has_value = not value & _NO_VALUE
            case _M.VALUE, 2:
                self._text = "true" if value else "false"
            case _M.VALUE, 3:
                self._text = str(value - (1 << 64) if value >> 63 else value)

    def fixed64(
        self, message: _Message, field_number: int, data: bytes | bytearray, at: int
    ) -> None:
        """A field of eight bytes."""
        match message, field_number:
            case _M.POINT, 4:
                (self._value,) = _double.unpack_from(data, at)
            case _M.POINT, 6:
                (self._value,) = _int64.unpack_from(data, at)
            case _M.VALUE, 4:
                self._text = repr(_double.unpack_from(data, at)[0])

    def text(
        self, message: _Message, field_number: int, data: bytes | bytearray, start: int, end: int
    ) -> None:
        """A field with a length that is not one of these messages."""
        match message, field_number:
            case _M.METRIC, 1:
                self._name = data[start:end].decode("utf-8", "replace")
            case _M.METRIC, 9 | 10 | 11:
                self.read.skipped += 1
            case _M.ATTRIBUTE, 1:
                self._key = data[start:end].decode("utf-8", "replace")
            case _M.VALUE, 1:
                self._text = data[start:end].decode("utf-8", "replace")


def _read_varint(data: bytes | bytearray, pos: int, end: int) -> tuple[int, int]:
    """The number at `pos`, of at most ten bytes, and the position after it."""
    value = shift = 0
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, pos
        shift += 7
    raise _malformed("a number is not complete")


def _malformed(why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_RECORD, f"the pushed metrics are not OpenTelemetry's MetricsData: {why}"
    )
