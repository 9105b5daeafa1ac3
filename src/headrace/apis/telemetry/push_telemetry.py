"""PushTelemetry (72), version 0.

Stores the metrics that a client pushes, for /metrics. They are OpenTelemetry's MetricsData, which
may be compressed with any of Kafka's codecs. The decompressed size is bounded; a large one is
decompressed in a worker thread and read in slices, few at a time. No right is needed.
"""

import asyncio
import uuid
from collections.abc import Coroutine
from functools import partial

from kio.schema.push_telemetry.v0.request import PushTelemetryRequest
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse

from headrace.apis.context import RequestContext, Services
from headrace.apis.telemetry.client_metrics import ClientInstance, ClientMetrics, Push
from headrace.apis.telemetry.get_telemetry_subscriptions import pushing_client
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.compression import decompress
from headrace.wire.otlp import read_metrics
from headrace.wire.primitives import NO_ERROR, respond
from headrace.wire.steps import AT_ONCE_BYTES, Steps

MAX_EXPANSION = 8
"""The largest decompressed size of a push, as a multiple of `telemetry.max.bytes`."""
MAX_POINTS = 5000
"""Data points that are read from one push."""
_NO_ID = uuid.UUID(int=0)


def push_telemetry(
    services: Services, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse | Coroutine[None, None, PushTelemetryResponse]:
    """Store the metrics; KafkaError if the push is refused."""
    metrics = services.client_metrics
    size = len(request.metrics)
    push = Push(request.subscription_id, request.terminating, request.compression_type, size)
    client = pushing_client(request.client_instance_id or _NO_ID, context)
    instance = metrics.accept(client, push)
    try:
        data = _decompress(request, AT_ONCE_BYTES)
    except KafkaError as error:
        raise metrics.fail(instance, error.code, error.message) from error
    if data is None:
        return _store_large(services, instance, request)
    return services.slices.begin(_store(metrics, instance, data))


async def _store_large(
    services: Services, instance: ClientInstance, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    metrics = services.client_metrics
    most = MAX_EXPANSION * metrics.max_bytes
    async with metrics.large_pushes:
        try:
            data = await asyncio.to_thread(_decompress, request, most)
        except KafkaError as error:
            raise metrics.fail(instance, error.code, error.message) from error
        if data is None:
            why = f"the push decompresses to more than {most} bytes"
            raise metrics.fail(instance, ErrorCode.TELEMETRY_TOO_LARGE, why)
        return await services.slices.finish(_store(metrics, instance, data))


def _store(
    metrics: ClientMetrics, instance: ClientInstance, data: bytes | bytearray
) -> Steps[PushTelemetryResponse]:
    try:
        pushed = yield from read_metrics(data, MAX_POINTS)
    except KafkaError as error:
        raise metrics.fail(instance, error.code, error.message) from error
    metrics.series.dropped["not_supported"] += pushed.skipped
    yield from metrics.series.store(instance.series, instance.asked, pushed.points)
    return respond(partial(PushTelemetryResponse, error_code=NO_ERROR))


def _decompress(request: PushTelemetryRequest, max_bytes: int) -> bytes | bytearray | None:
    """The metrics of a push; None if they have more than `max_bytes`."""
    try:
        return decompress(request.compression_type, request.metrics, max_bytes)
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            return None
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error
