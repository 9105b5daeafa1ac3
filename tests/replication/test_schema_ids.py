"""Registered schema ids, read from a replica of the registry's topic on a disk that fails."""

import errno
import json
from pathlib import Path

import pytest

from headrace.disk import RealDisk
from headrace.disk.failpoints import Fault, FaultyDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.schema_ids import SchemaIds
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NOW, OneBroker

SCHEMAS = "_schemas"
FRAMED = b"\0\0\0\0\x07"


def test_a_read_that_fails_refuses_the_produce_with_a_storage_error_and_is_repeated(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(RealDisk())
    broker = OneBroker(tmp_path, disk=disk)
    broker.create(SCHEMAS)
    key, value = {"keytype": "SCHEMA", "subject": "s", "version": 1}, {"id": 7}
    record = Record(0, NOW, json.dumps(key).encode(), json.dumps(value).encode())
    data = encode_batch([record], 0)
    partition = broker.replicas.partition(SCHEMAS, 0)
    partition.append(data, memoryview(data), 0, len(data), 1, NOW)
    disk.failpoints.trace = []
    partition.replica.read(0, 1000, True)
    to_find_the_position = disk.failpoints.trace.count("pread .log")
    ids = SchemaIds(SCHEMAS, broker.replicas.topic, lambda: 1 << 20)
    disk.failpoints.arm("pread .log", Fault(errno.ENOMEM), skip=to_find_the_position)
    with pytest.raises(KafkaError) as caught:
        ids.check("orders", "value", FRAMED)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    ids.check("orders", "value", FRAMED)
    broker.close()
