"""How a worker acknowledges what Spark's Java sends to it."""

import os
import pickle
import socket
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.pipelines.lake.writers import LakeBatchWriter, LakeStreamWriter
from headrace.pipelines.sink.sink import BatchWriter, StreamWriter, make_sink
from headrace.pipelines.source.options import parse_options
from headrace.pipelines.source.readers import BatchReader, StreamReader
from headrace.pipelines.worker_memory import REUSED
from headrace.pipelines.worker_socket import SentToTasks, acknowledge_at_once

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_QUICKACK"), reason="only Linux lets a program acknowledge at once"
)
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def from_java(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A worker's end of its connection, on which acknowledgements are late."""
    monkeypatch.setenv(REUSED, "1")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            yield connection


def is_prompt(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def sent_objects() -> list[SentToTasks]:
    sink = make_sink(
        OPTIONS | {"topic": "t"}, StructType([StructField("value", BinaryType())]), False
    )
    reading = OPTIONS | {"subscribe": "t"}
    return [
        StreamReader(parse_options(reading, streaming=True)),
        BatchReader(parse_options(reading, streaming=False)),
        BatchWriter(sink),
        StreamWriter(sink),
    ]


def test_readers_and_writers_acknowledge_their_function_when_it_arrives(
    from_java: socket.socket,
) -> None:
    for each in sent_objects():
        pickled = pickle.dumps(each)
        from_java.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert not is_prompt(from_java)
        again = pickle.loads(pickled)
        assert is_prompt(from_java), type(each)
        assert again.__dict__.keys() == each.__dict__.keys()
    assert issubclass(LakeBatchWriter, SentToTasks)
    assert issubclass(LakeStreamWriter, SentToTasks)


class Probe(SentToTasks):
    """Tells whether the worker acknowledges at once, as soon as it has its function."""

    def __init__(self) -> None:
        self.prompt: list[bool] = []

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self.prompt = [is_prompt(each) for each in connections_within_this_machine()]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        ok = bool(self.prompt) and all(self.prompt)
        yield pa.RecordBatch.from_arrays([pa.array([ok])], names=["ok"])


def connections_within_this_machine() -> list[socket.socket]:
    found: list[socket.socket] = []
    for number in range(3, 256):
        try:
            each = socket.socket(fileno=os.dup(number))
            if each.family == socket.AF_INET and each.getpeername()[0] == "127.0.0.1":
                found.append(each)
        except OSError:
            continue
    return found


@pytest.mark.spark
def test_tasks_of_spark_acknowledge_on_the_connection_from_java(spark: SparkSession) -> None:
    probe, here = Probe(), sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)  # workers cannot import the tests
    try:
        for _ in range(5):
            rows = spark.range(0, 1, 1, 1).mapInArrow(lambda some: probe(some), "ok boolean")
            assert [row.ok for row in rows.collect()] == [True]
    finally:
        cloudpickle.unregister_pickle_by_value(here)


def test_the_connection_stays_open(from_java: socket.socket) -> None:
    acknowledge_at_once()
    assert from_java.fileno() >= 0
    assert from_java.getpeername()[0] == "127.0.0.1"


def test_other_processes_are_left_alone(
    from_java: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REUSED)
    acknowledge_at_once()
    assert not is_prompt(from_java)
