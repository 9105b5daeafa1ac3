"""Spans of epochs with OpenTelemetry, for sources and sinks with the option `tracing`.

Names and attributes follow the semantic conventions of messaging (status: Development). An epoch of
the source is a span `poll TOPIC`, from its planning until Spark has finished it; an epoch of the
sink is a span `send TOPIC`, from its first task until its commit. They are made in the driver. The
traces of single records are theirs: their `traceparent` headers pass through as a column.

OpenTelemetry is imported only if the option is set. Spark's driver runs sources and sinks in Python
processes of its own, so the provider is set up here, from OpenTelemetry's environment variables,
unless the process has one.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import entry_points
from typing import Any, Literal

from headrace.client.errors import ClientError

Operation = Literal["poll", "send"]

_EXPORTER_VARIABLE = "OTEL_TRACES_EXPORTER"
_PROTOCOL_VARIABLE = "OTEL_EXPORTER_OTLP_PROTOCOL"
_DELAY_VARIABLE = "OTEL_BSP_SCHEDULE_DELAY"
_EXPORT_DELAY_MS = 1000
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_INSTALL = (
    "install opentelemetry-sdk and opentelemetry-exporter-otlp where Spark's driver runs, or leave "
    "the option out"
)


class EpochSpan:
    """A span that ends once."""

    def __init__(
        self, operation: Operation, topic: str | None, start_ns: int | None = None
    ) -> None:
        """Begin now, or at a time in nanoseconds since 1970."""
        trace = _trace()
        kind = trace.SpanKind.CONSUMER if operation == "poll" else trace.SpanKind.PRODUCER
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": "receive" if operation == "poll" else "send",
        }
        if topic is not None:
            attributes["messaging.destination.name"] = topic
        name = operation if topic is None else f"{operation} {topic}"
        self._span: Any = trace.get_tracer("headrace.pipelines").start_span(
            name, kind=kind, attributes=attributes, start_time=start_ns
        )

    def set(self, name: str, value: str | int) -> None:
        """Add an attribute."""
        self._span.set_attribute(name, value)

    def fail(self, error: BaseException) -> None:
        """Mark the epoch as failed."""
        self._span.set_attribute("error.type", type(error).__qualname__)
        self._span.set_status(_trace().Status(_trace().StatusCode.ERROR, str(error)))

    def end(self) -> None:
        """End the span; a second call has no effect."""
        if self._span is not None:
            self._span.end()
            self._span = None


def epoch_span(
    enabled: bool, operation: Operation, topic: str | None, start_ns: int | None = None
) -> AbstractContextManager[EpochSpan | None]:
    """A span around a block; None, and nothing is imported, if tracing is not enabled."""
    return _span(operation, topic, start_ns) if enabled else nullcontext()


@contextmanager
def _span(operation: Operation, topic: str | None, start_ns: int | None) -> Iterator[EpochSpan]:
    span = EpochSpan(operation, topic, start_ns)
    try:
        yield span
    except BaseException as error:
        span.fail(error)
        raise
    finally:
        span.end()


def _trace() -> Any:
    """OpenTelemetry's module, with a provider."""
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise ClientError(f"tracing=true needs OpenTelemetry: {_INSTALL}") from error
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_provider())
    return trace


def _provider() -> Any:
    """A provider with the exporter that the environment names; OTLP if it names none."""
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ClientError(f"tracing=true needs OpenTelemetry's SDK: {_INSTALL}") from error
    provider = TracerProvider()
    for name in os.environ.get(_EXPORTER_VARIABLE, "otlp").split(","):
        if name.strip() == "none":
            continue
        # Spark ends the process of a source at once: what was not exported by then is lost.
        delay_ms = None if _DELAY_VARIABLE in os.environ else _EXPORT_DELAY_MS
        provider.add_span_processor(
            BatchSpanProcessor(_exporter(name.strip()), schedule_delay_millis=delay_ms)
        )
    return provider


def _exporter(name: str) -> Any:
    if name == "otlp":
        name = _OTLP.get(os.environ.get(_PROTOCOL_VARIABLE, "grpc"), name)
    found = entry_points(group="opentelemetry_traces_exporter", name=name)
    if not found:
        raise ClientError(
            f"tracing=true: no exporter {name!r} is installed ({_EXPORTER_VARIABLE}); {_INSTALL}"
        )
    return next(iter(found)).load()()
