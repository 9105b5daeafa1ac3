"""What is measured: each row runs the same configuration on both workers, in turns."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.connect.workers import JSON, Worker
from tests.support.databases import PostgresqlServer
from tests.support.topics import create_topic

PATIENCE_S = 300.0
TEXT = "org.apache.kafka.connect.storage.StringConverter"
MANY = 10
"""Connectors in the row about memory."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the rows measure with."""

    bootstrap: str
    folder: Path
    postgresql: PostgresqlServer
    scale: float


@dataclass(frozen=True, slots=True)
class Cost:
    """One measurement: rows by the clock and by CPU time."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / max(self.cpu_s, 0.01)


@dataclass(frozen=True, slots=True)
class ConnectRow:
    """A kind of connector, and how many times faster than Kafka Connect it has to be."""

    name: str
    title: str
    goal: float
    measure: Callable[[Bench, Worker], Cost]


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """Seconds that something takes, of which the median has a limit."""

    name: str
    title: str
    most_s: float
    measure: Callable[[Bench, Worker], list[float]]


@contextmanager
def cost_of(worker: Worker, rows: int) -> Iterator[list[Cost]]:
    """Measures the block; the result is in the list afterwards."""
    done: list[Cost] = []
    cpu, began = worker.cpu_seconds(), time.perf_counter()
    yield done
    done.append(Cost(rows, time.perf_counter() - began, worker.cpu_seconds() - cpu))


def wait_for_records(bootstrap: str, topic: str, least: int) -> None:
    """Until so many records, without markers, can be read by a reader of committed ones."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"}
    )
    end = time.monotonic() + PATIENCE_S
    part = TopicPartition(topic, 0)
    try:
        while consumer.get_watermark_offsets(part, 30)[1] < least:
            assert time.monotonic() < end, f"{topic} has no {least} records"
            time.sleep(0.05)
    finally:
        consumer.close()


def new_topic(bench: Bench) -> str:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(bench.bootstrap, topic, partitions=1)
    return topic


def file_source(bench: Bench, worker: Worker) -> Cost:
    rows = int(500_000 * bench.scale)
    file = bench.folder / f"{rows}.txt"
    if not file.exists():
        file.write_text("".join(f"{n:010} {'x' * 94}\n" for n in range(rows)))
    topic = new_topic(bench)
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(file),
        "topic": topic,
        "value.converter": TEXT,
        "exactly.once.support": "requested",
    }
    with cost_of(worker, rows) as done:
        worker.create(topic, config)
        wait_for_records(bench.bootstrap, topic, rows)
    worker.delete(topic)
    return done[0]


def filled_topic(bench: Bench, rows: int) -> str:
    """A topic with rows as JSON with a schema."""
    topic = new_topic(bench)
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "field": "name"},
        {"type": "int64", "optional": True, "field": "amount"},
    ]
    schema = {"type": "struct", "name": "Row", "optional": False, "fields": fields}
    producer = Producer({"bootstrap.servers": bench.bootstrap, "linger.ms": 50})
    for n in range(rows):
        payload = {"id": n, "name": f"name {n}", "amount": n * 7}
        producer.produce(topic, json.dumps({"schema": schema, "payload": payload}))
        producer.poll(0)
    producer.flush(60)
    return topic


WITH_SCHEMA = {
    "value.converter": JSON,
    "value.converter.schemas.enable": "true",
    "key.converter": TEXT,
    "consumer.override.auto.offset.reset": "earliest",
}


def jdbc_sink(bench: Bench, worker: Worker) -> Cost:
    rows = int(100_000 * bench.scale)
    topic = filled_topic(bench, rows)
    server = bench.postgresql
    config = {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
        "connection.username": "postgres",
        "connection.password": "unused",
        "topics": topic,
        "collection.name.format": topic.replace("-", "_"),
        "insert.mode": "upsert",
        "primary.key.mode": "record_value",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        **WITH_SCHEMA,
    }
    with cost_of(worker, rows) as done:
        worker.create(topic, config)
        _wait_for_table(server, topic.replace("-", "_"), rows)
    worker.delete(topic)
    return done[0]


def _connected(server: PostgresqlServer) -> psycopg.Connection[tuple[object, ...]]:
    address = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
    return psycopg.connect(address, autocommit=True)


def _wait_for_table(server: PostgresqlServer, table: str, rows: int) -> None:
    end = time.monotonic() + PATIENCE_S
    with _connected(server) as connection:
        while True:
            try:
                found = connection.execute(f"select count(*) from {table}").fetchone()
            except psycopg.errors.UndefinedTable:
                found = (0,)
            if int(str(found[0] if found else 0)) >= rows:
                return
            assert time.monotonic() < end, f"{table} has {found} rows"
            time.sleep(0.1)


def postgresql_changes(bench: Bench, worker: Worker) -> Cost:
    rows = int(100_000 * bench.scale)
    with (
        changes_of_a_table(bench, worker) as (connection, name, topic),
        cost_of(worker, rows) as done,
    ):
        connection.execute(
            f"insert into {name} select n, 'name ' || n, n * 7 from generate_series(1, {rows}) n"
        )
        wait_for_records(bench.bootstrap, topic, rows)
    return done[0]


def change_latency(bench: Bench, worker: Worker) -> list[float]:
    """Seconds from the commit of a row to its event at a consumer, for rows one after the other."""
    rows = max(20, int(100 * bench.scale))
    consumer = Consumer(
        {
            "bootstrap.servers": bench.bootstrap,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    found = []
    with changes_of_a_table(bench, worker) as (connection, name, topic):
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1]
        consumer.assign([TopicPartition(topic, 0, end)])
        for number in range(rows + 1):
            connection.execute(f"insert into {name} values ({number}, 'name', 0)")
            began = time.perf_counter()
            while (message := consumer.poll(PATIENCE_S)) is None or message.error():
                assert message is None or message.error() is None, message.error()
            if number:  # the first one finds a slot that has waited
                found.append(time.perf_counter() - began)
    consumer.close()
    return found


@contextmanager
def changes_of_a_table(
    bench: Bench, worker: Worker
) -> Iterator[tuple[psycopg.Connection[tuple[object, ...]], str, str]]:
    """A table whose snapshot is in its topic; with the names of both."""
    name = f"c_{uuid.uuid4().hex[:8]}"
    server = bench.postgresql
    topic = f"{name}.public.{name}"
    create_topic(bench.bootstrap, topic, partitions=1)
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": name,
        "table.include.list": f"public.{name}",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "exactly.once.support": "requested",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
    }
    with _connected(server) as connection:
        connection.execute(f"create table {name} (id int primary key, name text, amount bigint)")
        connection.execute(f"insert into {name} values (-1, 'first', 0)")
        worker.create(name, config)
        wait_for_records(bench.bootstrap, topic, 1)
        yield connection, name, topic
        worker.delete(name)
        _drop_slots(connection, name)


def _drop_slots(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    end = time.monotonic() + PATIENCE_S
    left = f"select slot_name from pg_replication_slots where slot_name like '{name}%'"
    while slots := connection.execute(left).fetchall():
        for (slot,) in slots:
            try:
                connection.execute("select pg_drop_replication_slot(%s)", (slot,))
            except psycopg.errors.ObjectInUse:
                assert time.monotonic() < end, f"{slot} stays in use"
                time.sleep(0.2)


def first_record(bench: Bench, worker: Worker) -> list[float]:
    """Seconds from the request that creates a connector to its first record, on a warm worker."""
    found = []
    for _ in range(max(2, int(6 * bench.scale))):
        topic = new_topic(bench)
        file = bench.folder / f"{topic}.txt"
        file.write_text("one line\n")
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(file),
            "topic": topic,
            "value.converter": TEXT,
        }
        began = time.perf_counter()
        worker.create(topic, config)
        wait_for_records(bench.bootstrap, topic, 1)
        found.append(time.perf_counter() - began)
        worker.delete(topic)
    return found[1:]


def memory_of_many(bench: Bench, worker: Worker) -> float:
    """Megabytes with ten file sources that wait for lines."""
    names = []
    for number in range(MANY):
        topic = new_topic(bench)
        names.append(topic)
        file = bench.folder / f"few-{number}.txt"
        file.write_text("one line\n")
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(file),
            "topic": topic,
            "value.converter": TEXT,
        }
        worker.create(topic, config)
    for topic in names:
        wait_for_records(bench.bootstrap, topic, 1)
    time.sleep(3)
    found = worker.memory_mb()
    for topic in names:
        worker.delete(topic)
    return found


ROWS = (
    ConnectRow("file-source", "file source, exactly once", 1.5, file_source),
    ConnectRow("jdbc-sink", "JDBC sink, upsert into PostgreSQL", 2.0, jdbc_sink),
    ConnectRow("changes", "changes of PostgreSQL, inserts to topic", 1.0, postgresql_changes),
)
LATENCIES = (
    LatencyRow("first-record", "create to first record, warm", 5.0, first_record),
    LatencyRow("change-latency", "changes of PostgreSQL, commit to consumer", 0.5, change_latency),
)
