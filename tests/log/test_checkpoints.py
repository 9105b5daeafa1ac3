import uuid

import pytest

from headrace.disk import read_file, write_file
from headrace.disk.memory import MemoryDisk
from headrace.log.checkpoints import (
    read_epochs,
    read_offsets,
    read_properties,
    read_topic_id,
    write_epochs,
    write_offsets,
    write_properties,
    write_topic_id,
)
from headrace.types import TopicPartition, decode_uuid, encode_uuid

A, B = TopicPartition("a", 0), TopicPartition("b.c-d", 12)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_offsets_are_written_as_kafka_writes_them(disk: MemoryDisk) -> None:
    write_offsets(disk, "/f", {A: 5, B: 1234})
    assert disk.content("/f") == b"0\n2\na 0 5\nb.c-d 12 1234\n"
    assert read_offsets(disk, "/f") == {A: 5, B: 1234}


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\0\0\0", b"1\n0\n", b"0\nx\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n",
     b"\xff\xfe"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_as_good_as_none(disk: MemoryDisk, damaged: bytes) -> None:
    write_file(disk, "/f", damaged, sync=True)
    assert read_offsets(disk, "/f") is None
    assert read_epochs(disk, "/f") is None
    assert read_offsets(disk, "/missing") is None
    assert read_epochs(disk, "/missing") == ()


def test_a_checkpoint_survives_a_crash_whole(disk: MemoryDisk) -> None:
    write_offsets(disk, "/f", {A: 5})
    disk.crash()
    assert read_offsets(disk, "/f") == {A: 5}


def test_epochs_are_written_as_kafka_writes_them(disk: MemoryDisk) -> None:
    write_epochs(disk, "/f", ((1, 0), (3, 10)))
    assert disk.content("/f") == b"0\n2\n1 0\n3 10\n"
    assert read_epochs(disk, "/f") == ((1, 0), (3, 10))


def test_epochs_that_do_not_increase_are_damaged(disk: MemoryDisk) -> None:
    write_epochs(disk, "/f", ((3, 0), (1, 10)))
    assert read_epochs(disk, "/f") is None


def test_a_topic_id_is_url_safe_base64_without_padding(disk: MemoryDisk) -> None:
    value = uuid.UUID(bytes=b"\xfb\xff" * 8)
    assert encode_uuid(value) == "-__7__v_-__7__v_-__7_w"
    assert decode_uuid(encode_uuid(value)) == value
    write_topic_id(disk, "/f", value)
    assert read_file(disk, "/f") == b"version: 0\ntopic_id: -__7__v_-__7__v_-__7_w"
    assert read_topic_id(disk, "/f") == value


def test_a_missing_or_damaged_topic_id_is_none(disk: MemoryDisk) -> None:
    assert read_topic_id(disk, "/f") is None
    write_file(disk, "/f", b"version: 0\ntopic_id: !", sync=True)
    assert read_topic_id(disk, "/f") is None


def test_properties_come_back_without_their_comments(disk: MemoryDisk) -> None:
    assert read_properties(disk, "/f") is None
    write_properties(disk, "/f", {"version": "1", "node.id": "3"})
    assert read_properties(disk, "/f") == {"version": "1", "node.id": "3"}
    write_file(disk, "/f", b"#Tue Jan 1\ncluster.id=abc=\n\n", sync=True)
    assert read_properties(disk, "/f") == {"cluster.id": "abc="}
