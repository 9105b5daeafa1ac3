"""Connectors whose driver, workers, broker or database are killed at moments that a seed decides.

A `Flow` is a connector between an external system and a topic: it knows what to put in at one side
and what must then be at the other. `burn` runs one.
"""

import contextlib
import json
import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer

from headrace.connect.hosting import RunState
from tests.connect.conftest import EmptyDatabase
from tests.connect.host.conftest import WITHIN_S, HostUnderTest
from tests.connect.host.served import ServedHost
from tests.pipelines.fire import below
from tests.support.databases import DatabaseServer

STEPS = 30
ROWS_A_STEP = 20
ROWS_BEFORE = 100
ROWS_AN_EPOCH = "60"
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
}


def driver_pids(parent: int | str = "self") -> list[int]:
    """The processes of drivers that a process has started."""
    return [
        int(pid)
        for tasks in Path(f"/proc/{parent}/task").iterdir()
        for pid in (tasks / "children").read_text().split()
        if b"headrace.connect.host.driver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def driver_pid(parent: int | str = "self") -> int:
    """The process of the only driver."""
    (found,) = driver_pids(parent)
    return found


def java_pid() -> int:
    """The Java process of the only driver."""
    (found,) = (
        pid
        for pid, words in below(driver_pid()).items()
        if "org.apache.spark.deploy.SparkSubmit" in words
    )
    return found


def worker_pids() -> list[int]:
    """The Python processes below the driver: they plan, read and write."""
    return [
        pid
        for pid, words in below(driver_pid()).items()
        if any("fork_server" in word or "pyspark" in word for word in words)
        and "java" not in words[0]
    ]  # fmt: skip


class Flow(ABC):
    """A connector, its external system and its topic, each used by one run."""

    victims: ClassVar[tuple[str, ...]] = ("driver", "worker", "broker")
    rows_option: ClassVar[str] = "headrace.batch.max.rows"
    repeats: ClassVar[bool] = False
    """Whether rows may be there more than once."""

    def __init__(self, host: HostUnderTest, name: str) -> None:
        self.host = host
        self.name = name
        self.topic = name
        self.server: DatabaseServer | None = None

    @abstractmethod
    def prepare(self) -> None:
        """Create what the connector needs; its topic is there."""

    @abstractmethod
    def config(self) -> Mapping[str, str]: ...

    @abstractmethod
    def feed(self, step: int) -> None:
        """Put in the rows of a step; called again if it fails, and then no row may be doubled."""

    @abstractmethod
    def expected(self) -> Counter[Any]:
        """What must be there at the end, each as often as it must be there.

        It may depend on what was found last.
        """

    @abstractmethod
    def found(self) -> Counter[Any]: ...


class FileFlow(Flow):
    """Lines of a file to a topic."""

    def __init__(self, host: HostUnderTest, name: str, folder: Path) -> None:
        super().__init__(host, name)
        self._file = folder / name

    def prepare(self) -> None:
        self._file.write_text("")

    def config(self) -> Mapping[str, str]:
        string = "org.apache.kafka.connect.storage.StringConverter"
        return {
            "connector.class": "FileStreamSource",
            "file": str(self._file),
            "topic": self.topic,
            "value.converter": string,
            "key.converter": string,
        }

    def feed(self, step: int) -> None:
        with self._file.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers_of(step))

    def expected(self) -> Counter[Any]:
        return Counter(number for step in range(STEPS) for number in numbers_of(step))

    def found(self) -> Counter[Any]:
        return Counter(self.host.values(self.topic))


class DatabaseFlow(Flow):
    """With a table `t` in a database."""

    victims = ("driver", "worker", "broker", "database")

    def __init__(self, host: HostUnderTest, name: str, database: EmptyDatabase) -> None:
        super().__init__(host, name)
        self.database = database
        self.server = database.server

    def prepare(self) -> None:
        self.database.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")

    def feed(self, step: int) -> None:
        numbers = numbers_of(step)
        if self.database.run(f"SELECT 1 FROM t WHERE id = {numbers[0]}"):
            return  # the attempt before was committed
        rows = ", ".join(f"({number}, 0)" for number in numbers)
        self.database.run(f"INSERT INTO t (id, n) VALUES {rows}", *self.changes(numbers))

    def changes(self, numbers: range) -> list[str]:
        """What else is done in the transaction that inserts these."""
        return []


class JdbcSourceFlow(DatabaseFlow):
    """Rows of a table to a topic, by a number that grows."""

    def __init__(self, host: HostUnderTest, name: str, database: EmptyDatabase) -> None:
        super().__init__(host, name, database)
        self.topic = f"{name}-t"

    def config(self) -> Mapping[str, str]:
        return {
            **JSON,
            **self.database.config,
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "t",
            "topic.prefix": f"{self.name}-",
        }

    def expected(self) -> Counter[Any]:
        return Counter(number for step in range(STEPS) for number in numbers_of(step))

    def found(self) -> Counter[Any]:
        return Counter(value["id"] for value in self.host.values(self.topic))


class ChangesFlow(DatabaseFlow):
    """Changes of a table to a topic: rows that were there before, then the log."""

    _steps_before = 0

    def prepare(self) -> None:
        super().prepare()
        rows = ", ".join(f"({-number}, 0)" for number in range(1, ROWS_BEFORE + 1))
        self.database.run(f"INSERT INTO t VALUES {rows}")

    def config(self) -> Mapping[str, str]:
        login = self.database.dialect.login
        return {
            **JSON,
            "database.hostname": login.host,
            "database.port": str(login.port),
            "database.user": login.user,
            "topic.prefix": self.name,
        }

    def feed(self, step: int) -> None:
        if step == STEPS // 2:
            self.database.run("ALTER TABLE t ADD COLUMN IF NOT EXISTS more INTEGER")
        super().feed(step)

    def changes(self, numbers: range) -> list[str]:
        return [
            f"UPDATE t SET n = {numbers[0] + 1} WHERE id = {numbers[0]}",
            f"DELETE FROM t WHERE id = {numbers[1]}",
        ]

    def expected(self) -> Counter[Any]:
        found = Counter((-number, "r", 0) for number in range(1, ROWS_BEFORE + 1))
        for step in range(STEPS):
            first, second, *others = numbers_of(step)
            if step < self._steps_before:
                found.update([(first, "r", first + 1), *((number, "r", 0) for number in others)])
                continue
            found.update((number, "c", 0) for number in numbers_of(step))
            found.update([(first, "u", first + 1), (second, "d", 0), (second, "tombstone", 0)])
        return found

    def found(self) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for key, value, _ in self.host.records(self.topic):
            number = json.loads(key or b"null")["id"]
            if value is None:
                found[number, "tombstone", 0] += 1
                continue
            event = json.loads(value)
            row = event["after"] or {"n": 0}
            found[number, event["op"], row["n"]] += 1
        # Steps that were done before the connector began are in its snapshot.
        self._steps_before = sum((numbers_of(step)[2], "r", 0) in found for step in range(STEPS))
        return found


class PostgresqlFlow(ChangesFlow):
    """The write-ahead log of PostgreSQL."""

    def __init__(self, host: HostUnderTest, name: str, database: EmptyDatabase) -> None:
        super().__init__(host, name, database)
        self.topic = f"{name}.public.t"

    def config(self) -> Mapping[str, str]:
        return {
            **super().config(),
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.dbname": self.database.dialect.login.name,
            "slot.name": self.name.replace("-", "_"),
        }

    def feed(self, step: int) -> None:
        if step == 0:
            # A snapshot that is interrupted is at least once, so that it must be over.
            self.host.wait(lambda: len(self.found()), lambda count: count == ROWS_BEFORE)
        super().feed(step)

    def close(self) -> None:
        """A server has few slots."""
        self.database.run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE database = current_database()"
        )


class MariadbFlow(ChangesFlow):
    """The binary log of MariaDB."""

    def __init__(self, host: HostUnderTest, name: str, database: EmptyDatabase) -> None:
        super().__init__(host, name, database)
        self.topic = f"{name}.{database.dialect.login.name}.t"

    def config(self) -> Mapping[str, str]:
        return {
            **super().config(),
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.include.list": self.database.dialect.login.name,
        }


class JdbcSinkFlow(DatabaseFlow):
    """A topic to a table by upserts: each key has many records, and the last one counts."""

    rows_option = "consumer.override.max.poll.records"
    KEYS = 50

    def config(self) -> Mapping[str, str]:
        return {
            **JSON,
            **self.database.config,
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "topics": self.topic,
            "table.name.format": "t",
            "insert.mode": "upsert",
            "pk.mode": "record_value",
            "pk.fields": "id",
            "tasks.max": "2",
        }

    def feed(self, step: int) -> None:
        producer = Producer({"bootstrap.servers": self.host.bootstrap, "enable.idempotence": True})
        for number in numbers_of(step):
            value = {"id": number % self.KEYS, "n": number}
            producer.produce(self.topic, json.dumps(value).encode(), b"%d" % value["id"])
        assert producer.flush(WITHIN_S) == 0

    def expected(self) -> Counter[Any]:
        last = {number % self.KEYS: number for step in range(STEPS) for number in numbers_of(step)}
        return Counter(last.items())

    def found(self) -> Counter[Any]:
        return Counter(map(tuple, self.database.run("SELECT id, n FROM t")))


def numbers_of(step: int) -> range:
    """What is put in in a step."""
    return range(step * ROWS_A_STEP, (step + 1) * ROWS_A_STEP)


def burn(flow: Flow, seed: int, killed: list[str], victims: tuple[str, ...] = ()) -> None:
    """Run a connector to its end while it loses what it runs on.

    Everything must be there exactly as often as it must. `victims` are killed in this order; by
    default three are drawn. `killed` gets what was killed, and for some kills the seconds until the
    connector was RUNNING again.
    """
    chosen = random.Random(seed)
    victims = victims or tuple(chosen.choices(flow.victims, k=3))
    host = flow.host
    flow.prepare()
    host.create(flow.topic, 2)
    host.start(flow.name, {**flow.config(), flow.rows_option: ROWS_AN_EPOCH})
    feeder = _Feeder(flow, chosen)
    feeder.start()
    try:
        for victim in victims:
            # In some runs the start and the snapshot are killed too.
            if chosen.random() < 0.8:
                _wait_for_progress(flow)
            time.sleep(chosen.uniform(0, 1))
            kill(flow, victim, chosen)
            began, step = time.monotonic(), feeder.step
            told = f"{victim} at step {step}"
            if chosen.random() < 0.5:
                # In the other runs the next kill may come before it runs again.
                _wait_for_progress(flow)
                told += f", at work again after {time.monotonic() - began:.1f} s"
            killed.append(told)
        feeder.join(WITHIN_S)
        assert feeder.step == STEPS, feeder.problem
        host.wait(lambda: _seen(flow), lambda seen: not flow.expected() - seen[0])
        host.stop(flow.name)
        found = flow.found()
        wanted = flow.expected()
        assert wanted - found == Counter(), "lost"
        if flow.repeats:
            assert set(found) <= set(wanted), "never put in"
        else:
            assert found - wanted == Counter(), "there twice, or never put in"
    finally:
        feeder.over = True
        host.stop(flow.name)


def _wait_for_progress(flow: Flow) -> None:
    """Until the connector runs and has moved, or has nothing left to do."""
    before = _seen(flow)[0]
    flow.host.wait(
        lambda: _seen(flow),
        lambda seen: (
            seen[1] is RunState.RUNNING
            and (bool(seen[0] - before) or not flow.expected() - seen[0])
        ),
    )


def _seen(flow: Flow) -> tuple[Counter[Any], RunState, str | None]:
    """With the state, which a failed test then shows."""
    status = flow.host.status(flow.name)
    try:
        return flow.found(), status.state, status.trace
    except Exception as error:
        return Counter(), status.state, f"{error}"


class _Feeder(threading.Thread):
    """Puts in one step after the other, through all failures."""

    def __init__(self, flow: Flow, chosen: random.Random) -> None:
        super().__init__(daemon=True)
        self.step = 0
        self.over = False
        self.problem: Exception | None = None
        self._flow = flow
        self._pauses = [chosen.uniform(0, 0.5) for _ in range(STEPS)]

    def run(self) -> None:
        while self.step < STEPS and not self.over:
            time.sleep(self._pauses[self.step])
            try:
                self._flow.feed(self.step)
            except Exception as error:
                self.problem = error
                continue
            self.step += 1


def kill(flow: Flow, victim: str, chosen: random.Random) -> None:
    """Kill it; a broker and a database come back with what they have on disk."""
    if victim == "driver":
        with contextlib.suppress(ProcessLookupError):
            os.kill(flow.host.wait(lambda: _driver(flow.host), bool), signal.SIGKILL)
    elif victim == "worker":
        found = flow.host.wait(_workers, bool)
        with contextlib.suppress(ProcessLookupError):
            os.kill(chosen.choice(sorted(found)), signal.SIGKILL)
    elif victim == "connect":
        assert isinstance(flow.host, ServedHost)
        flow.host.kill_worker()
        time.sleep(chosen.uniform(0, 2))
        flow.host.serve()
    elif victim == "broker":
        flow.host.broker.kill()
        time.sleep(chosen.uniform(0, 2))
        flow.host.broker.start()
    else:
        assert flow.server is not None
        flow.server.kill()
        time.sleep(chosen.uniform(0, 2))
        flow.server.start()


def _driver(host: HostUnderTest) -> int:
    """0 while the host starts another one."""
    parent = host.pid if isinstance(host, ServedHost) else "self"
    return int(_or(lambda: driver_pid(parent), 0))


def _workers() -> list[int]:
    return _or(worker_pids, [])


def _or(look: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return look()
    except (ValueError, OSError):
        return otherwise
