"""FindCoordinator (10), versions 0-6.

Finds the coordinator of a group, a transactional id or a share partition: the leader of the
partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state` to which the id
belongs. The first request creates the topic.

v1 key types; v3 flexible; v4 several keys at once; v5, v6 new error codes and the share key type.
"""

from functools import partial

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import need_cluster, need_group, need_transactional_id
from headrace.coordination.coordinator_topic import CoordinatorTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, BrokerId, error, i32, respond

GROUP, TRANSACTION, SHARE = 0, 1, 2


def find_coordinator(
    services: Services, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """The coordinator of each key, by its address on the client's listener."""
    return respond(
        partial(
            FindCoordinatorResponse,
            coordinators=tuple(
                _find(services, request.key_type, key, context.caller)
                for key in request.coordinator_keys
            ),
        )
    )


def _topic(services: Services, key_type: int, key: str) -> CoordinatorTopic:
    """The topic of the coordinator."""
    if key_type == GROUP:
        return services.groups.topic
    if key_type == TRANSACTION:
        return services.transactions.topic
    if key.count(":") < 2:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{key} is not of the form group:topicId:partition"
        )
    return services.shares.coordinator.topic


def _find(services: Services, key_type: int, key: str, caller: Caller) -> Coordinator:
    try:
        if key_type not in (GROUP, TRANSACTION, SHARE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown key type {key_type}")
        if key_type == GROUP:
            need_group(caller, AclOperation.DESCRIBE, key)
        elif key_type == TRANSACTION:
            need_transactional_id(caller, AclOperation.DESCRIBE, key)
        else:
            need_cluster(caller, AclOperation.CLUSTER_ACTION)
        leader = _topic(services, key_type, key).leader_of(key)
        broker = services.metadata.image.brokers.get(leader)
        endpoint = broker.endpoint(caller.listener) if broker is not None else None
        if broker is None or endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as refusal:
        return Coordinator(
            key=key,
            node_id=BrokerId(-1),
            host="",
            port=i32(-1),
            error_code=error(refusal.code),
            error_message=refusal.message,
        )
    return Coordinator(
        key=key,
        node_id=BrokerId(broker.id),
        host=endpoint.host,
        port=i32(endpoint.port),
        error_code=NO_ERROR,
        error_message="",
    )
