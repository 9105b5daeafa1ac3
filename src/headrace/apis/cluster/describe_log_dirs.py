"""DescribeLogDirs (35), versions 1-5.

Returns the partitions of each data folder of this broker with their sizes, and the free space of
its disk. Without topics in the request all are described. Sizes are read from the files, outside
the event loop, so that a request for 10,000 partitions opens no logs and does not delay other
requests.

A replica that is moving from one folder to another is in both: the copy is a future replica with
the number of offsets that it lacks.

v2 flexible; v3 an error code for the whole response; v4 size and free space of the disk;
v5 whether a folder is cordoned, which ours never are.
"""

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode
from headrace.log.directory import LogDirectory
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, TopicName, error, i32, i64, respond

LOG_SUFFIX = ".log"


async def describe_log_dirs(
    services: Services, request: DescribeLogDirsRequest, _context: RequestContext
) -> DescribeLogDirsResponse:
    """Describe every folder, with the requested partitions."""
    asked = None
    if request.topics is not None:
        asked = {
            TopicPartition(topic.topic, index)
            for topic in request.topics
            for index in topic.partitions
        }
    replicas, results = services.replicas, []

    def is_wanted(name: TopicPartition) -> bool:
        # Only hosted replicas: the folder of a deleted one exists until it is removed.
        known = replicas.topic(name.topic)[name.partition : name.partition + 1]
        return any(one.hosted for one in known) and (asked is None or name in asked)

    for directory in replicas.directories.all:
        here = [
            _Replica(name, f"{directory.path}/{name}")
            for name in directory.partitions()
            if is_wanted(name)
        ]
        for name, future in [*directory.futures.items()]:
            if is_wanted(name):
                lag = -1  # the copy is not open yet
                if future.log is not None:
                    end = replicas.topic(name.topic)[name.partition].replica.log.end_offset
                    lag = max(end - future.log.end_offset, 0)
                here.append(_Replica(name, future.folder, True, lag))
        results.append(await asyncio.to_thread(_describe, directory, here))
    return respond(partial(DescribeLogDirsResponse, error_code=NO_ERROR, results=tuple(results)))


class _Replica(NamedTuple):
    name: TopicPartition
    folder: str
    is_future: bool = False
    lag: int = 0


def _describe(directory: LogDirectory, replicas: Sequence[_Replica]) -> DescribeLogDirsResult:
    full_path = os.path.abspath(directory.path)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    try:
        if directory.offline is not None:
            raise OSError(directory.offline)
        disk = os.statvfs(full_path)
        for replica in replicas:
            described = DescribeLogDirsPartition(
                partition_index=i32(replica.name.partition),
                partition_size=i64(_size(directory, replica.folder)),
                offset_lag=i64(replica.lag),
                is_future_key=replica.is_future,
            )
            topics.setdefault(replica.name.topic, []).append(described)
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


def _size(directory: LogDirectory, folder: str) -> int:
    size = 0
    try:
        for name in directory.disk.list_folder(folder):
            if name.endswith(LOG_SUFFIX):
                size += directory.disk.file_size(f"{folder}/{name}")
    except FileNotFoundError:
        # The folder or a segment was deleted after it was listed.
        pass
    return size
