"""ListGroups (16), versions 0-5.

Lists the groups that this broker coordinates, of every type. While some of them are being loaded
from the log the response is COORDINATOR_LOAD_IN_PROGRESS, because the list would be incomplete.

v3 flexible; v4 states, in the response and as a filter; v5 types likewise.
"""

from functools import partial

from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_cluster
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, GroupId, respond
from headrace.wire.steps import Steps


def list_groups(
    services: Services, request: ListGroupsRequest, context: RequestContext
) -> Steps[ListGroupsResponse]:
    """All groups in the given states and of the given types."""
    states = frozenset(map(str.lower, request.states_filter))
    kinds = frozenset(map(str.lower, request.types_filter))
    found = []
    caller = context.caller
    may_all = may_with_cluster(caller, AclOperation.DESCRIBE, silent=True)
    for groups in services.groups.shards.states():
        for one in groups.listed(states, kinds):
            if may_all or caller.may(
                AclOperation.DESCRIBE, ResourceType.GROUP, one.group_id, silent=True
            ):
                found.append(
                    ListedGroup(
                        group_id=GroupId(one.group_id),
                        protocol_type=one.protocol_type,
                        group_state=one.state,
                        group_type=one.kind,
                    )
                )
            yield
    return respond(partial(ListGroupsResponse, error_code=NO_ERROR, groups=tuple(found)))
