"""AlterReplicaLogDirs without a move; moves are in tests/replication and tests/broker."""

from pathlib import Path

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

from headrace.apis.cluster.alter_replica_log_dirs import alter_replica_log_dirs
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import NOW, OneBroker


def _answers(broker: OneBroker, path: Path) -> list[ErrorCode]:
    """For a partition that exists, and for one that does not."""
    topic = AlterReplicaLogDirTopic(name=TopicName("t"), partitions=(i32(0), i32(9)))
    request = AlterReplicaLogDirsRequest(
        dirs=(AlterReplicaLogDir(path=str(path), topics=(topic,)),)
    )
    (answer,) = broker.ask(alter_replica_log_dirs, request).results
    assert (answer.topic_name, [one.partition_index for one in answer.partitions]) == ("t", [0, 9])
    return [ErrorCode(one.error_code) for one in answer.partitions]


def test_a_partition_without_a_log_gets_it_in_the_folder_named(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path / "data", folders=2)
    broker.create("t", 100)  # more than get their folders at once
    second = broker.directories.all[1]
    late = next(n for n in range(100) if not broker.directories.has(TopicPartition("t", n)))
    topic = AlterReplicaLogDirTopic(name=TopicName("t"), partitions=(i32(late),))
    request = AlterReplicaLogDirsRequest(
        dirs=(AlterReplicaLogDir(path=second.path, topics=(topic,)),)
    )
    (answer,) = broker.ask(alter_replica_log_dirs, request).results
    assert ErrorCode(answer.partitions[0].error_code) is ErrorCode.NONE
    broker.append("t", [NOW], late)
    assert second.has(TopicPartition("t", late))
    broker.close()


def test_a_replica_may_stay_where_it_is(broker: OneBroker, tmp_path: Path) -> None:
    broker.create("t")
    assert _answers(broker, tmp_path) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_folder_that_is_not_ours_or_is_offline_is_refused(
    broker: OneBroker, tmp_path: Path
) -> None:
    broker.create("t")
    assert _answers(broker, tmp_path / "other") == [ErrorCode.LOG_DIR_NOT_FOUND] * 2
    broker.directories.first.offline = "the disk is gone"
    assert _answers(broker, tmp_path) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
