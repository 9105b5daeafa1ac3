"""OffsetCommit (8), versions 2-10.

Commits offsets of a group: from its members, or from any client for a group without members
(generation -1). An acknowledged offset is in the log and survives a restart.

v2-4 have a retention time, which is ignored in favour of `offsets.retention.minutes`; v6 leader
epochs; v7 static members; v8 flexible; v9 members of consumer groups (KIP-848); v10 topic
ids instead of names: an unknown one gets UNKNOWN_TOPIC_ID (KIP-848).
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.offset_commit.v10.response import OffsetCommitResponsePartition

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_topic
from headrace.coordination.groups.group import Committer
from headrace.coordination.groups.registry import Groups
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Token
from headrace.errors import ErrorCode
from headrace.security.acls import AclOperation
from headrace.wire.offset_messages import (
    CommittedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from headrace.wire.primitives import error, respond

FIRST_WITH_IDS = 10


def offset_commit(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse]:
    """Commit offsets; an error of one partition does not affect the others."""
    wanted, response = _judge(services, request, context)
    who = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        context.version,
    )

    def commit(groups: Groups, token: Token[OffsetCommitResponse], now_ms: int) -> Outcome:
        outcome = groups.commit(request.group_id, who, wanted, now_ms)
        outcome.replies.append(Reply(token, response))
        return outcome

    return services.groups.run(request.group_id, commit, _unchanged)


def _unchanged(response: OffsetCommitResponse) -> OffsetCommitResponse:
    return response


def _judge(
    services: Services, request: OffsetCommitRequest, context: RequestContext
) -> tuple[list[OffsetToCommit], OffsetCommitResponse]:
    """The offsets that may be committed, and the response if the group accepts them."""
    image = services.metadata.image
    by_id = context.version >= FIRST_WITH_IDS
    max_bytes = services.settings.integer("offset.metadata.max.bytes")
    wanted: list[OffsetToCommit] = []
    topics: list[CommittedTopic] = []
    for topic in request.topics:
        name = image.name_of(topic.topic_id) if by_id else topic.name
        found = None if name is None else image.topics.get(name)
        count = len(found.partitions) if found is not None else 0
        allowed = name is None or may_with_topic(context.caller, AclOperation.READ, name)
        answers = []
        for one in topic.partitions:
            metadata = one.committed_metadata or ""
            code = ErrorCode.NONE
            if name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif not allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= one.partition_index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > max_bytes:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                wanted.append(
                    OffsetToCommit(
                        name,
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        metadata,
                    )
                )
            answers.append(
                OffsetCommitResponsePartition(
                    partition_index=one.partition_index, error_code=error(code)
                )
            )
        topics.append(
            CommittedTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers))
        )
    return wanted, respond(partial(OffsetCommitResponse, topics=tuple(topics)))
