"""StreamsGroupDescribe (89), version 0.

Describes streams groups with their epochs, their topology and their members: the tasks and the
target of each. A group that is of another type, or does not exist, gets GROUP_ID_NOT_FOUND.
"""

from collections.abc import Coroutine, Iterable
from functools import partial

from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeResponse,
    TaskIds,
    TopicInfo,
    Topology,
)
from kio.schema.streams_group_describe.v0.response import Subtopology as DescribedSubtopology
from kio.schema.types import GroupId

from headrace.apis import operations
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.coordination.groups.registry import Groups
from headrace.coordination.groups.streams.streams_group import StreamsGroup
from headrace.coordination.groups.streams.streams_member import StreamsMember
from headrace.coordination.groups.streams.tasks import TaskId, TaskSets, by_subtopology
from headrace.coordination.groups.streams.topology import (
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, i16, i32, respond, u16


def streams_group_describe(
    services: Services, request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse | Coroutine[None, None, StreamsGroupDescribeResponse]:
    """Describe each group, or return its error."""
    caller = context.caller
    asked = request.include_authorized_operations

    def finish(results: list[Result[StreamsGroup]]) -> StreamsGroupDescribeResponse:
        return respond(
            partial(
                StreamsGroupDescribeResponse,
                groups=tuple(
                    _describe(one, caller, asked)
                    if isinstance(one, StreamsGroup)
                    else _refused(group_id, one)
                    for group_id, one in zip(request.group_ids, results, strict=True)
                ),
            )
        )

    return services.groups.run_each(
        [(group_id, partial(_find, caller, group_id)) for group_id in request.group_ids], finish
    )


def _find(
    caller: Caller, group_id: str, groups: Groups, token: Token[StreamsGroup], _now_ms: int
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return answer(token, denied(ResourceType.GROUP))
    if not group_id:
        return answer(token, KafkaError(ErrorCode.INVALID_GROUP_ID))
    found = groups.groups.get(group_id)
    if isinstance(found, StreamsGroup):
        return answer(token, found)
    why = "not found" if found is None else "is not a streams group"
    return answer(token, KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}."))


def _refused(group_id: str, why: KafkaError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error(why.code),
        error_message=why.message,
        group_id=GroupId(group_id),
        group_state="",
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        topology=None,
        members=(),
    )


def _describe(group: StreamsGroup, caller: Caller, asked: bool) -> DescribedGroup:
    topology = group.described_topology()
    topics = () if topology is None else topology.all_topics()
    if not all(may_with_topic(caller, AclOperation.DESCRIBE, name) for name in topics):
        why = "The described group uses topics that the client is not authorized to describe."
        return _refused(group.group_id, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, why))
    state = group.persistent
    allowed = operations.on_group(caller, group.group_id) if asked else operations.NOT_ASKED
    return DescribedGroup(
        error_code=NO_ERROR,
        error_message=None,
        group_id=GroupId(group.group_id),
        group_state=group.state,
        group_epoch=i32(state.metadata.epoch),
        assignment_epoch=i32(state.target.epoch),
        topology=None if topology is None else _topology(topology),
        members=tuple(_member(one, state.target_of(one.id)) for one in state.members.values()),
        authorized_operations=i32(allowed),
    )


def _topology(topology: StreamsTopology) -> Topology:
    ordered = sorted(topology.subtopologies, key=lambda one: one.id)
    return Topology(epoch=i32(topology.epoch), subtopologies=tuple(map(_subtopology, ordered)))


def _subtopology(one: Subtopology) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology_id=one.id,
        source_topics=tuple(map(TopicName, sorted(one.source_topics))),
        repartition_sink_topics=tuple(map(TopicName, sorted(one.repartition_sink_topics))),
        state_changelog_topics=_internal_topics(one.changelog_topics),
        repartition_source_topics=_internal_topics(one.repartition_source_topics),
    )


def _internal_topics(topics: Iterable[InternalTopicSpec]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            name=TopicName(one.name),
            partitions=i32(one.partitions),
            replication_factor=i16(one.replication_factor),
            topic_configs=_pairs(one.configs),
        )
        for one in sorted(topics, key=lambda one: one.name)
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(key=key, value=value) for key, value in pairs)


def _member(member: StreamsMember, target: TaskSets) -> Member:
    metadata = member.metadata
    endpoint = metadata.endpoint
    return Member(
        member_id=member.id,
        member_epoch=i32(member.epoch),
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=i32(metadata.topology_epoch),
        process_id=metadata.process_id,
        user_endpoint=None
        if endpoint is None
        else Endpoint(host=endpoint.host, port=u16(endpoint.port)),
        client_tags=_pairs(metadata.tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=_assignment(member.current.assigned),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: TaskSets) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Iterable[TaskId]) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology_id=name, partitions=tuple(map(i32, partitions)))
        for name, partitions in by_subtopology(tasks).items()
    )
