"""DeleteRecords (21), versions 0-2.

Deletes the records below an offset, or with -1 all that are committed, and answers with each
partition's new log start offset when it is on disk. Deleted records cannot be read again; files
are removed when whole segments are below the log start offset.

v2 flexible.
"""

from functools import partial

from kio.schema.delete_records.v2.request import DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import need_topic
from headrace.cluster.image import INTERNAL_TOPICS
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, error, i64, respond

NO_WATERMARK = -1


async def delete_records(
    services: Services, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Delete the records; an error of one partition does not affect the others."""
    topics = []
    deleted = False
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            code, low = NO_ERROR, NO_WATERMARK
            try:
                need_topic(context.caller, AclOperation.DELETE, topic.name)
                low = _delete(services, topic.name, wanted.partition_index, wanted.offset)
                deleted = True
            except KafkaError as refusal:
                code = error(refusal.code)
            answers.append(
                DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=i64(low), error_code=code
                )
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(answers)))
    if deleted:
        await services.replicas.save_start_offsets()
    return respond(partial(DeleteRecordsResponse, topics=tuple(topics)))


def _delete(services: Services, topic: str, index: int, offset: int) -> int:
    partition = services.replicas.partition(topic, index)
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not partition.settings.cleanup_policy & {"delete", "consumed"}:
        # A compacted log must keep the newest record of each key.
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition.replica.delete_records(offset)
