"""DescribeCluster (60), versions 0-2.

Returns the cluster's id, its controller, and those brokers that have the client's listener.

v1 the client selects brokers or controllers; v2 fenced brokers. Not done: there are no separate
controllers to describe, and no fenced brokers.
"""

from functools import partial

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse

from headrace.apis import operations
from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode
from headrace.wire.primitives import NO_ERROR, BrokerId, error, i8, i32, respond

BROKERS = 1
CONTROLLERS = 2


def describe_cluster(
    services: Services, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """The cluster as the image has it."""
    image = services.metadata.image
    code, message = _check_endpoint(request.endpoint_type)
    if code is not ErrorCode.NONE:
        return respond(
            partial(
                DescribeClusterResponse,
                error_code=error(code),
                error_message=message,
                cluster_id="",
                brokers=(),
            )
        )
    asked = request.include_cluster_authorized_operations
    return respond(
        partial(
            DescribeClusterResponse,
            error_code=NO_ERROR,
            endpoint_type=i8(BROKERS),
            cluster_id=image.cluster_id,
            controller_id=BrokerId(image.controller_id),
            brokers=tuple(
                DescribeClusterBroker(
                    broker_id=BrokerId(broker.id),
                    host=endpoint.host,
                    port=i32(endpoint.port),
                    rack=broker.rack,
                    is_fenced=False,
                )
                for broker in image.brokers.values()
                if (endpoint := broker.endpoint(context.caller.listener)) is not None
            ),
            cluster_authorized_operations=i32(
                operations.on_cluster(context.caller) if asked else operations.NOT_ASKED
            ),
        )
    )


def _check_endpoint(endpoint: int) -> tuple[ErrorCode, str]:
    if endpoint == BROKERS:
        return ErrorCode.NONE, ""
    if endpoint == CONTROLLERS:
        return (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "this endpoint is a broker's; it cannot describe controllers",
        )
    return ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {endpoint}"
