"""DescribeLogDirs (35), versions 1-4.

For each data folder of this broker the partitions in it with their sizes, and the room on its disk.
No topics named means all. Sizes are read from the files, outside the event loop, so that asking for
10,000 partitions opens no logs and holds up nobody.

v2 flexible; v3 an error for the whole answer; v4 the room on the disk. Not done: replicas on the
move between folders, so none is a future one.
"""

import asyncio
import os
from collections.abc import Sequence

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headrace.apis.context import Caller, Services
from headrace.errors import ErrorCode
from headrace.log.directory import LogDirectory
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE, TopicName, error, i32, i64

LOG_SUFFIX = ".log"


async def describe_log_dirs(
    services: Services, request: DescribeLogDirsRequest, _caller: Caller
) -> DescribeLogDirsResponse:
    """Every folder, with the partitions asked for."""
    asked = None
    if request.topics is not None:
        asked = {
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        }
    results = []
    for directory in services.replicas.directories.all:
        # Those that have a folder and are still ours: a deleted one waits for its removal.
        here = [
            partition
            for partition in directory.partitions()
            if (asked is None or partition in asked)
            and partition.partition < len(services.replicas.topic(partition.topic))
        ]
        results.append(await asyncio.to_thread(_describe, directory, here))
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE, error_code=NO_ERROR, results=tuple(results)
    )


def _describe(
    directory: LogDirectory, partitions: Sequence[TopicPartition]
) -> DescribeLogDirsResult:
    full_path = os.path.abspath(directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    try:
        if directory.offline is not None:
            raise OSError(directory.offline)
        disk = os.statvfs(full_path)
        for partition in partitions:
            described = DescribeLogDirsPartition(
                partition_index=i32(partition.partition),
                partition_size=i64(_size(directory, partition)),
                offset_lag=i64(0),
                is_future_key=False,
            )
            topics.setdefault(partition.topic, []).append(described)
    except OSError:
        return DescribeLogDirsResult(
            error_code=error(ErrorCode.KAFKA_STORAGE_ERROR), log_dir=full_path, topics=()
        )
    return DescribeLogDirsResult(
        error_code=NO_ERROR,
        log_dir=full_path,
        topics=tuple(
            DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(found))
            for name, found in topics.items()
        ),
        total_bytes=i64(disk.f_blocks * disk.f_frsize),
        usable_bytes=i64(disk.f_bavail * disk.f_frsize),
    )


def _size(directory: LogDirectory, partition: TopicPartition) -> int:
    folder = f"{directory.path}/{partition}"
    size = 0
    try:
        for name in directory.disk.list_folder(folder):
            if name.endswith(LOG_SUFFIX):
                size += directory.disk.file_size(f"{folder}/{name}")
    except FileNotFoundError:
        # Deleted, or a segment was, between the list and the look.
        pass
    return size
