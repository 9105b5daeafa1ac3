"""The names of partition folders: in use, deleted, or not complete yet.

orders-0                  a partition
orders-0.<id>-delete      a deleted partition; its files are still to be removed
orders-0.<id>-future      an unfinished copy of one in another data folder
orders-0.<id>-fork        an unfinished fork of another partition
"""

import uuid

from headrace.types import TopicPartition

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
FORK_SUFFIX = "-fork"
_NAME_BYTES_MAX = 255


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition whose folder has that name, or None."""
    topic, dash, index = name.rpartition("-")
    if not topic or not dash or not index.isdecimal() or not index.isascii():
        return None
    if index != str(int(index)):
        return None
    return TopicPartition(topic, int(index))


def deleted_folder_name(partition: TopicPartition) -> str:
    """A unique name for a deleted partition's folder that fits into 255 bytes."""
    return _shortened(partition, DELETE_SUFFIX)


def fork_folder_name(partition: TopicPartition) -> str:
    """A unique name for a fork that is being built, which fits into 255 bytes."""
    return _shortened(partition, FORK_SUFFIX)


def _shortened(partition: TopicPartition, suffix: str) -> str:
    suffix = f"-{partition.partition}.{uuid.uuid4().hex}{suffix}"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def future_folder_name(partition: TopicPartition) -> str:
    """A unique name for a copy that will replace the partition."""
    return f"{partition}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition of which that folder is a copy, or None."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return parse_folder_name(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])
