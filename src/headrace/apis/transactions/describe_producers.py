"""DescribeProducers (61), version 0.

Returns the producers in the state of a partition, with the last sequence and timestamp of each, and
the start offset of its open transaction.
"""

from functools import partial

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import need_topic
from headrace.cluster.controller import check_topic_name
from headrace.errors import KafkaError
from headrace.log.producer_state import Producer
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, ProducerId, error, i32, i64, respond


def describe_producers(
    services: Services, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Describe the partitions; an error of one does not affect the others."""
    topics = []
    for topic in request.topics:
        answers = []
        for index in topic.partition_indexes:
            try:
                need_topic(context.caller, AclOperation.READ, topic.name)
                check_topic_name(topic.name)
                log = services.replicas.partition(topic.name, index).replica.log
                answer = PartitionResponse(
                    partition_index=index,
                    error_code=NO_ERROR,
                    active_producers=tuple(
                        _describe(producer_id, producer)
                        for producer_id, producer in log.producers.producers.items()
                    ),
                )
            except KafkaError as refusal:
                answer = PartitionResponse(
                    partition_index=index,
                    error_code=error(refusal.code),
                    error_message=refusal.message,
                    active_producers=(),
                )
            answers.append(answer)
        topics.append(TopicResponse(name=topic.name, partitions=tuple(answers)))
    return respond(partial(DescribeProducersResponse, topics=tuple(topics)))


def _describe(producer_id: int, producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=ProducerId(producer_id),
        producer_epoch=i32(producer.epoch),
        last_sequence=i32(producer.last_sequence),
        last_timestamp=i64(producer.timestamp),
        coordinator_epoch=i32(producer.coordinator_epoch),
        current_txn_start_offset=i64(producer.transaction_start),
    )
