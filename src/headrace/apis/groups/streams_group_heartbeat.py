"""StreamsGroupHeartbeat (88), version 0.

The only request of a member of a streams group (KIP-1071): it joins with its topology (epoch 0),
stays, or leaves (epoch -1). The response has the member's epoch, its tasks if they changed, and the
status of the group. Internal topics that are missing are created with the rights of the client.

As in Kafka 4.3, static members, regular expressions, warm-up tasks and task offsets are refused.
"""

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial

from kio.schema.streams_group_heartbeat.v0 import request as requests
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest
from kio.schema.streams_group_heartbeat.v0.response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import may_with_cluster, may_with_topic, need_topic
from headrace.cluster.controller import Defaults, NewTopic, check_topic_name
from headrace.cluster.image import INTERNAL_TOPICS
from headrace.coordination.groups.streams import streams_group
from headrace.coordination.groups.streams.endpoints import EndpointPartitions
from headrace.coordination.groups.streams.streams_group import (
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from headrace.coordination.groups.streams.streams_member import JOINING
from headrace.coordination.groups.streams.tasks import (
    TaskId,
    TaskSets,
    by_subtopology,
    tasks_of,
)
from headrace.coordination.groups.streams.topic_setup import (
    MISSING_INTERNAL_TOPICS,
    HeartbeatStatus,
)
from headrace.coordination.groups.streams.topology import (
    CopartitionGroup,
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.coordination.streams_records import UserEndpoint
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.wire.primitives import (
    NO_ERROR,
    TopicName,
    i8,
    i32,
    milliseconds,
    respond,
    to_milliseconds,
    u16,
)

_ERRORS_SHOWN = 3
_LEAVING_FOR_NOW = -2
"""The epoch of a static member that leaves temporarily; there are no static members."""


def streams_group_heartbeat(
    services: Services, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> StreamsGroupHeartbeatResponse | Coroutine[None, None, StreamsGroupHeartbeatResponse]:
    """Process the heartbeat of a member; respond with its epoch and tasks."""
    topology = None if request.topology is None else _topology(request.topology)
    if topology is not None:
        _check_topics(topology, context.caller)
    _check(request)
    beat = StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_milliseconds(request.rebalance_timeout),
        topology=topology,
        owned=_owned(request),
        process_id=request.process_id,
        endpoint=None
        if request.user_endpoint is None
        else UserEndpoint(request.user_endpoint.host, request.user_endpoint.port),
        tags=None if request.client_tags is None else _pairs(request.client_tags),
        shutdown=request.shutdown_application,
        client_id=context.client_id,
        client_host=context.caller.host,
    )
    return services.groups.run(
        beat.group_id,
        lambda groups, token, now_ms: streams_group.heartbeat(groups, beat, token, now_ms),
        partial(_respond, services, context.caller),
    )


# ---------------------------------------------------------------------------------- request


def _check_topics(topology: StreamsTopology, caller: Caller) -> None:
    """KafkaError unless the client may describe all topics of the topology."""
    names = sorted(topology.all_topics())
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited.",
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    for name in names:
        need_topic(caller, AclOperation.DESCRIBE, name)


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST unless all fields are set that are required at this epoch, and no others."""
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    for name, value in (
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("RackId", request.rack_id),
    ):
        if value == "":
            raise _invalid(f"{name} can't be empty.")
    owned = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if request.member_epoch == JOINING:
        if to_milliseconds(request.rebalance_timeout) == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for kind, tasks in (("ActiveTasks", owned[0]), ("StandbyTasks", owned[1])):
            if tasks is None or tasks:
                raise _invalid(f"{kind} must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        _check_topology(request.topology)
    elif request.member_epoch == _LEAVING_FOR_NOW:
        raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < _LEAVING_FOR_NOW:
        raise _invalid(
            f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
        )
    if any(tasks is None for tasks in owned) and any(tasks is not None for tasks in owned):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINING and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")


def _check_topology(topology: requests.Topology) -> None:
    for one in topology.subtopologies:
        if one.source_topic_regex:
            raise _invalid("Regular expressions for source topics are not supported yet.")
        for topic in one.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it "
                    f"is set to {topic.partitions}.",
                )
    if topology.epoch < 0 or len({one.subtopology_id for one in topology.subtopologies}) < len(
        topology.subtopologies
    ):
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "The topology has a negative epoch, or the same subtopology twice.",
        )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _pairs(pairs: Iterable[requests.KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple((pair.key, pair.value) for pair in pairs)


def _topology(topology: requests.Topology) -> StreamsTopology:
    return StreamsTopology(topology.epoch, tuple(map(_subtopology, topology.subtopologies)))


def _subtopology(one: requests.Subtopology) -> Subtopology:
    return Subtopology(
        one.subtopology_id,
        one.source_topics,
        one.source_topic_regex,
        tuple(map(_internal_topic, one.state_changelog_topics)),
        one.repartition_sink_topics,
        tuple(map(_internal_topic, one.repartition_source_topics)),
        tuple(
            CopartitionGroup(
                group.source_topics, group.source_topic_regex, group.repartition_source_topics
            )
            for group in one.copartition_groups
        ),
    )


def _internal_topic(topic: requests.TopicInfo) -> InternalTopicSpec:
    return InternalTopicSpec(
        topic.name, topic.partitions, topic.replication_factor, _pairs(topic.topic_configs)
    )


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSets | None:
    if request.active_tasks is None:
        return None
    return TaskSets(_tasks(request.active_tasks), _tasks(request.standby_tasks or ()))


def _tasks(listed: Iterable[requests.TaskIds]) -> frozenset[TaskId]:
    return frozenset(
        task for one in listed for task in tasks_of(one.subtopology_id, one.partitions)
    )


# --------------------------------------------------------------------------------- response


def _respond(
    services: Services, caller: Caller, result: StreamsHeartbeatReply
) -> StreamsGroupHeartbeatResponse:
    status = result.status
    if result.missing:
        failure = _create(services, caller, result.missing)
        status = tuple(_with_failure(one, failure) for one in status)
    tasks = result.tasks
    return respond(
        partial(
            StreamsGroupHeartbeatResponse,
            error_code=NO_ERROR,
            error_message=None,
            member_id=result.member_id,
            member_epoch=i32(result.epoch),
            heartbeat_interval=milliseconds(result.heartbeat_interval_ms),
            acceptable_recovery_lag=i32(0),
            task_offset_interval=milliseconds(0),
            status=tuple(
                Status(status_code=i8(one.code), status_detail=one.detail) for one in status
            ),
            active_tasks=None if tasks is None else _task_ids(tasks.active),
            standby_tasks=None if tasks is None else _task_ids(tasks.standby),
            warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
            endpoint_information_epoch=i32(result.endpoint_epoch),
            partitions_by_user_endpoint=None
            if result.endpoints is None
            else tuple(map(_endpoint, result.endpoints)),
        )
    )


def _create(services: Services, caller: Caller, missing: tuple[InternalTopicSpec, ...]) -> str:
    """Create internal topics; what went wrong, or ""."""
    if not may_with_cluster(caller, AclOperation.CREATE, silent=True):
        denied = [
            one.name for one in missing if not may_with_topic(caller, AclOperation.CREATE, one.name)
        ]
        if denied:
            return f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    defaults = Defaults(
        partitions=services.settings.integer("num.partitions"),
        replication_factor=services.settings.integer("default.replication.factor"),
    )
    wanted = [
        NewTopic(one.name, one.partitions, one.replication_factor or -1, configs=one.configs)
        for one in missing
    ]
    try:
        results = services.metadata.create_topics(wanted, defaults)
    except KafkaError as error:
        return f"; Creation failed: {error.message or error.code.name}."
    failed = [
        f"{topic.name} ({result.message or result.code.name})"
        for topic, result in zip(wanted, results, strict=True)
        if isinstance(result, KafkaError) and result.code != ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    if not failed:
        return ""
    more = len(failed) - _ERRORS_SHOWN
    shown = ", ".join(failed[:_ERRORS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"; Creation failed: {shown}."


def _with_failure(status: HeartbeatStatus, failure: str) -> HeartbeatStatus:
    if status.code != MISSING_INTERNAL_TOPICS:
        return status
    return status._replace(detail=status.detail + failure)


def _task_ids(tasks: Iterable[TaskId]) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(map(i32, partitions)))
        for name, partitions in by_subtopology(tasks).items()
    )


def _endpoint(one: EndpointPartitions) -> EndpointToPartitions:
    return EndpointToPartitions(
        user_endpoint=Endpoint(host=one.endpoint.host, port=u16(one.endpoint.port)),
        active_partitions=_topic_partitions(one.active),
        standby_partitions=_topic_partitions(one.standby),
    )


def _topic_partitions(topics: Mapping[str, tuple[int, ...]]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic=TopicName(name), partitions=tuple(map(i32, partitions)))
        for name, partitions in topics.items()
    )
