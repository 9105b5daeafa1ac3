"""GetTelemetrySubscriptions (71), version 0.

Returns which metrics a client should push, and the interval. A client without an instance id gets
one. No right is needed. Only offered if the broker serves /metrics (`headrace.metrics.address`).
"""

import uuid
from functools import partial

from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.get_telemetry_subscriptions.v0.response import GetTelemetrySubscriptionsResponse

from headrace.apis.context import RequestContext, Services
from headrace.apis.telemetry.client_metrics import ACCEPTED_CODECS
from headrace.apis.telemetry.subscriptions import PushingClient
from headrace.wire.primitives import NO_ERROR, i8, i32, milliseconds, respond

_MAX_CLIENT_ID_CHARACTERS = 256


def get_telemetry_subscriptions(
    services: Services, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """The subscription of the client; KafkaError if its interval has not passed."""
    client = pushing_client(request.client_instance_id or uuid.uuid4(), context)
    asked = services.client_metrics.subscribe(client)
    return respond(
        partial(
            GetTelemetrySubscriptionsResponse,
            error_code=NO_ERROR,
            client_instance_id=client.instance_id,
            subscription_id=i32(asked.subscription_id),
            accepted_compression_types=tuple(map(i8, ACCEPTED_CODECS)),
            push_interval=milliseconds(asked.interval_ms),
            telemetry_max_bytes=i32(services.client_metrics.max_bytes),
            delta_temporality=True,
            requested_metrics=asked.metrics,
        )
    )


def pushing_client(instance_id: uuid.UUID, context: RequestContext) -> PushingClient:
    """The client that has sent a request."""
    caller = context.caller
    address, _, port = caller.address.rpartition(":")
    return PushingClient(
        instance_id,
        context.client_id[:_MAX_CLIENT_ID_CHARACTERS],
        caller.software_name,
        caller.software_version,
        address,
        port,
    )
