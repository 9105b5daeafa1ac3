"""ListConfigResources (74), versions 0-1.

Lists the names of all topics, brokers and subscriptions to client metrics, and of the groups that
have configs. Without types in the request all types are listed.

v0 (ListClientMetricsResources) lists subscriptions to client metrics only; v1 any type.
"""

from collections.abc import Iterable
from functools import partial

from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import (
    ConfigResource,
    ListConfigResourcesResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode
from headrace.types import ConfigResourceType
from headrace.wire.primitives import NO_ERROR, error, i8, respond
from headrace.wire.steps import Steps


def list_config_resources(
    services: Services, request: ListConfigResourcesRequest, context: RequestContext
) -> Steps[ListConfigResourcesResponse]:
    """Every resource of the requested types."""
    known: set[int] = set(ConfigResourceType)
    types: set[int] = set(request.resource_types) or known
    if context.version == 0:
        types = {ConfigResourceType.CLIENT_METRICS}
    if not types <= known:
        return respond(
            partial(
                ListConfigResourcesResponse,
                error_code=error(ErrorCode.UNSUPPORTED_VERSION),
                config_resources=(),
            )
        )
    resources = []
    for kind in sorted(types):
        for name in _names(services, kind):
            resources.append(ConfigResource(resource_name=name, resource_type=i8(kind)))
            yield
    return respond(
        partial(ListConfigResourcesResponse, error_code=NO_ERROR, config_resources=tuple(resources))
    )


def _names(services: Services, kind: int) -> Iterable[str]:
    image = services.metadata.image
    match kind:
        case ConfigResourceType.TOPIC:
            return image.topics
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            return map(str, image.brokers)
        case ConfigResourceType.GROUP:
            return image.group_configs
        case ConfigResourceType.CLIENT_METRICS:
            return image.client_metrics
    return ()
