"""OffsetForLeaderEpoch (23), versions 2-4.

For each partition the offset at which a leader epoch ended, with the largest epoch known up to it:
a client or follower finds with it where its log diverges from the leader's. -1 for an epoch that
the log knows nothing of, or that is yet to come.

v3 a replica id; v4 flexible. Not done: nothing.
"""

from functools import partial

from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_cluster, need_topic
from headrace.errors import KafkaError
from headrace.replication.partition import Partition
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, error, i32, i64, respond


def offset_for_leader_epoch(
    services: Services, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer each partition on its own."""
    topics = []
    is_broker = may_with_cluster(context.caller, AclOperation.CLUSTER_ACTION, silent=True)
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                if not is_broker:
                    need_topic(context.caller, AclOperation.DESCRIBE, topic.topic)
                partition = services.replicas.partition(topic.topic, wanted.partition)
                partition.check_epoch(wanted.current_leader_epoch)
                epoch, end = _end_of(partition, wanted.leader_epoch)
                answer = EpochEndOffset(
                    error_code=NO_ERROR,
                    partition=wanted.partition,
                    leader_epoch=i32(epoch),
                    end_offset=i64(end),
                )
            except KafkaError as refusal:
                answer = EpochEndOffset(error_code=error(refusal.code), partition=wanted.partition)
            answers.append(answer)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(answers)))
    return respond(partial(OffsetForLeaderEpochResponse, topics=tuple(topics)))


def _end_of(partition: Partition, epoch: int) -> tuple[int, int]:
    log = partition.log
    if epoch == partition.leader_epoch:
        # Also where this epoch has written nothing yet, so that the log has no entry for it.
        return epoch, log.end_offset
    latest = log.epochs.latest
    if 0 <= latest < epoch < partition.leader_epoch:
        # An epoch between of which this log has nothing, and its own has written nothing yet.
        return latest, log.end_offset
    return log.epochs.end_offset(epoch, log.end_offset)
