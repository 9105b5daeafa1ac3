"""AlterReplicaLogDirs (34), versions 1-2.

Asks that replicas of this broker lie in a data folder. A replica that lies there already is done;
a folder that is not one of ours is refused.

v2 flexible. Not done: moving a replica that lies in another folder; that is an invalid request.
"""

import os

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from headrace.apis.context import Caller, Services
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_THROTTLE, TopicName, error, i32


def alter_replica_log_dirs(
    services: Services, request: AlterReplicaLogDirsRequest, _caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Say for each replica whether it lies where it should."""
    directories = services.replicas.directories
    ours = {os.path.abspath(folder.path): folder for folder in directories.all}
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        folder = ours.get(wanted.path)
        for topic in wanted.topics:
            count = len(services.replicas.topic(topic.name))
            for index in topic.partitions:
                if folder is None:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif folder.offline is not None:
                    code = ErrorCode.KAFKA_STORAGE_ERROR
                elif not 0 <= index < count:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif directories.home_of(TopicPartition(topic.name, index)) not in (None, folder):
                    code = ErrorCode.INVALID_REQUEST
                else:
                    code = ErrorCode.NONE
                topics.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=i32(index), error_code=error(code)
                    )
                )
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=TopicName(name), partitions=tuple(found))
            for name, found in topics.items()
        ),
    )
