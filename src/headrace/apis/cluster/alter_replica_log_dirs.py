"""AlterReplicaLogDirs (34), versions 1-2.

Places replicas of this broker in a data folder. A replica in another folder begins to move, and can
be read and written meanwhile; DescribeLogDirs shows the progress. A request that names the current
folder of a moving replica cancels the move. For a partition without a log, the log is created in
the named folder. A folder that is not in this broker's `log.dirs` is refused.

v2 flexible.
"""

import os
from functools import partial

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directory import LogDirectory
from headrace.wire.primitives import TopicName, error, i32, respond


def alter_replica_log_dirs(
    services: Services, request: AlterReplicaLogDirsRequest, _context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Begin the moves that are needed; the response has an error code for each replica."""
    folders = services.replicas.directories.all
    ours = {os.path.abspath(folder.path): folder for folder in folders}
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for index in topic.partitions:
                try:
                    _move(services, topic.name, index, ours.get(wanted.path))
                    code = ErrorCode.NONE
                except KafkaError as refused:
                    code = refused.code
                topics.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=i32(index), error_code=error(code)
                    )
                )
    return respond(
        partial(
            AlterReplicaLogDirsResponse,
            results=tuple(
                AlterReplicaLogDirTopicResult(topic_name=TopicName(name), partitions=tuple(found))
                for name, found in topics.items()
            ),
        )
    )


def _move(services: Services, topic: str, index: int, folder: LogDirectory | None) -> None:
    if folder is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    if folder.offline is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    known = services.replicas.topic(topic)
    if not 0 <= index < len(known):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not known[index].hosted:
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
    services.replicas.moves.begin(known[index], folder)
