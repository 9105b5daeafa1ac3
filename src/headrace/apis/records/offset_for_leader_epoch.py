"""OffsetForLeaderEpoch (23), versions 2-4.

Returns for each partition the end offset of a leader epoch, with the largest known epoch up to it.
A client or follower uses it to find where its log diverges from the leader's. The result is -1 for
an epoch that the log has no entry for, or a future epoch.

v3 a replica id; v4 flexible.
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
    """Look up the partitions; an error of one does not affect the others."""
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
    log = partition.replica.log
    if epoch == partition.leader_epoch:
        # The log has no entry for the current epoch before its first batch.
        return epoch, log.end_offset
    latest = log.epochs.latest
    if 0 <= latest < epoch < partition.leader_epoch:
        # The log has no batches of this epoch, nor of the current one yet.
        return latest, log.end_offset
    return log.epochs.end_offset(epoch, log.end_offset)
