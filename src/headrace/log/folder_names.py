"""The names of partition folders: in use, deleted, or a copy from another data folder.

orders-0                  a partition
orders-0.<id>-delete      one that is deleted; its files still have to go
orders-0.<id>-future      a growing copy of one in another data folder
"""

import uuid

from headrace.types import TopicPartition

DELETE_SUFFIX = "-delete"
FUTURE_SUFFIX = "-future"
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
    suffix = f"-{partition.partition}.{uuid.uuid4().hex}{DELETE_SUFFIX}"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def future_folder_name(partition: TopicPartition) -> str:
    """A unique name for a copy that is to take the partition's place."""
    return f"{partition}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"


def parse_future_name(name: str) -> TopicPartition | None:
    """The partition of which that folder is a copy, or None."""
    if not name.endswith(FUTURE_SUFFIX):
        return None
    return parse_folder_name(name.removesuffix(FUTURE_SUFFIX).rpartition(".")[0])
