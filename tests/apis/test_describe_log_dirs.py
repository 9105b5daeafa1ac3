"""DescribeLogDirs describes the data folders."""

import asyncio
from pathlib import Path

from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest

from headrace.apis.cluster.describe_log_dirs import describe_log_dirs
from headrace.errors import ErrorCode
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import NOW, OneBroker

NONE = ErrorCode.NONE


def test_folders_are_described_with_sizes_and_room(broker: OneBroker, tmp_path: Path) -> None:
    broker.create("t", 2)
    broker.create("u")
    broker.append("t", [NOW], index=1)
    request = DescribeLogDirsRequest(topics=None)
    answer = asyncio.run(broker.ask(describe_log_dirs, request))
    (folder,) = answer.results
    assert (ErrorCode(folder.error_code), folder.log_dir) == (NONE, str(tmp_path))
    assert 0 < folder.usable_bytes <= folder.total_bytes
    sizes = {
        (t.name, p.partition_index): p.partition_size for t in folder.topics for p in t.partitions
    }
    assert sizes == {
        ("t", 0): 0,
        ("t", 1): broker.replicas.partition("t", 1).replica.log.segments.size_bytes,
        ("u", 0): 0,
    }
    some = DescribableLogDirTopic(topic=TopicName("t"), partitions=(i32(0), i32(9)))
    answer = asyncio.run(broker.ask(describe_log_dirs, DescribeLogDirsRequest(topics=(some,))))
    (topic,) = answer.results[0].topics
    assert [p.partition_index for p in topic.partitions] == [0]


def test_an_offline_folder_has_an_error(broker: OneBroker) -> None:
    broker.directories.first.offline = "the disk is gone"
    answer = asyncio.run(broker.ask(describe_log_dirs, DescribeLogDirsRequest(topics=None)))
    assert [ErrorCode(one.error_code) for one in answer.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
