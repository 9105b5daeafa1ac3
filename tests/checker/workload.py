"""Records histories of real clients in separate processes, under faults of broker and clients."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.running import RunningBroker
from tests.checker.history import FINAL, Event, Poll, Type, What, read_lines, to_line
from tests.checker.worker import FENCED, PATIENCE_S, Spec, consuming, parsed

TOPICS = {"left": 2, "right": 1}
KEYS = tuple(f"{topic}-{n}" for topic, count in TOPICS.items() for n in range(count))


class Client:
    """A worker's process."""

    def __init__(self, spec: Spec, errors: Path) -> None:
        self.spec = spec
        with errors.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.checker.worker", spec.encode()],
                stderr=output,
                stdin=subprocess.DEVNULL,
            )


class Workload:
    """Clients at work on brokers; a context manager that leaves none of them behind."""

    def __init__(
        self,
        bootstrap_servers: str,
        folder: Path,
        *,
        clients: int = 3,
        seed: int = 1,
        pause_in_transaction_s: float = 0.0,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`properties` are further ones of all clients, such as those of a login."""
        self._properties = dict(properties or {})
        self._bootstrap_servers = bootstrap_servers
        self._replicas = replicas
        self._configs = dict(configs or {})
        self._folder = folder
        self._seed = seed
        self._pause_in_transaction_s = pause_in_transaction_s
        self._started = 0
        self._clients = clients
        self.errors = folder / "errors.txt"
        self.running: list[Client] = []
        self._all: list[Client] = []

    def __enter__(self) -> Self:
        admin = AdminClient({**self._properties, "bootstrap.servers": self._bootstrap_servers})
        made = admin.create_topics(
            [
                NewTopic(name, count, self._replicas, config=self._configs)
                for name, count in TOPICS.items()
            ]
        )
        for created in made.values():
            created.result(PATIENCE_S)
        self.running = [self._start(f"x-{n}") for n in range(self._clients)]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._all:
            client.process.kill()
            client.process.wait()

    def _start(self, transactional_id: str) -> Client:
        self._started += 1
        process = f"client-{self._started}"
        spec = Spec(
            process,
            self._bootstrap_servers,
            str(self._folder / f"{process}.jsonl"),
            transactional_id,
            KEYS,
            self._seed * 1000 + self._started,
            self._pause_in_transaction_s,
            self._properties,
        )
        client = Client(spec, self.errors)
        self._all.append(client)
        return client

    # ---------------------------------------------------------------------------- going on

    def go_on(self, operations: int = 10) -> None:
        """Until every client has done so many more transactions; the fenced begin anew."""
        wanted = {n: self._done(client) + operations for n, client in enumerate(self.running)}
        self._await(
            lambda: all(self._done(self.running[n]) >= count for n, count in wanted.items()),
            f"every client did {operations} more transactions",
            wanted,
        )

    def _done(self, client: Client) -> int:
        """How many transactions of the client were committed."""
        path = Path(client.spec.history)
        if not path.exists():
            return 0
        return sum(b'"ok", "f": "txn"' in line for line in path.read_bytes().splitlines())

    def _await(
        self, condition: Callable[[], bool], what: str, counts: dict[int, int] | None = None
    ) -> None:
        deadline = time.monotonic() + 4 * PATIENCE_S
        while not condition():
            for n, client in enumerate(self.running):
                code = client.process.poll()
                if code == FENCED:
                    before = self._done(client)
                    self.running[n] = self._start(client.spec.transactional_id)
                    if counts is not None:
                        counts[n] = max(counts[n] - before, 1)
                elif code is not None:
                    raise AssertionError(f"a client ended with {code}: {self._said()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {4 * PATIENCE_S} s: {what}. {self._said()}")
            time.sleep(0.02)

    def _said(self) -> str:
        return self.errors.read_text()[-2000:]

    # ------------------------------------------------------------------------------ faults

    def kill_broker(self, broker: RunningBroker) -> None:
        """SIGKILL, and start it again."""
        pid = broker.pid
        broker.kill()
        gone = not Path(f"/proc/{pid}").exists()
        self.struck("broker", gone)
        broker.start()

    def kill_client(self, number: int = 0) -> None:
        """SIGKILL; another one takes its place and its transactional id."""
        client = self.running[number]
        client.process.kill()
        code = client.process.wait()
        self.struck(client.spec.process, code == -signal.SIGKILL)
        self.running[number] = self._start(client.spec.transactional_id)

    def lose_answers(self, broker: RunningBroker, count: int) -> None:
        """The broker works on the next Produces, and their answers are lost."""
        broker.cut("Produce", count, after=True)
        self._await(lambda: broker.faults_left() == 0, f"{count} Produces were cut")
        self.struck("answers", True)

    def make_zombie(self, number: int = 0) -> None:
        """A client stands still in a transaction, another takes its place, the first goes on."""
        zombie = self.running[number]
        self._await(lambda: self._in_transaction(zombie), "a client is in a transaction")
        zombie.process.send_signal(signal.SIGSTOP)
        stopped = self._in_transaction(zombie)
        self.running[number] = self._start(zombie.spec.transactional_id)
        self.go_on(2)
        self.struck(zombie.spec.process, stopped)
        zombie.process.send_signal(signal.SIGCONT)

    def _in_transaction(self, client: Client) -> bool:
        """Whether the last that the client wrote down is that it began a transaction."""
        path = Path(client.spec.history)
        lines = path.read_bytes().splitlines() if path.exists() else []
        return bool(lines) and b'"invoke", "f": "txn"' in lines[-1]

    def struck(self, process: str, landed: bool) -> None:
        """Write down that something was struck, and whether there is proof of it."""
        kind: Type = "info" if landed else "fail"
        with (self._folder / "faults.jsonl").open("ab") as file:
            file.write(to_line(time.monotonic_ns(), process, kind, "crash"))

    # ----------------------------------------------------------------------------- the end

    def finish(self) -> list[Event]:
        """Let everyone end what he does, read everything with a fresh client; the history."""
        for client in self._all:
            client.process.terminate()
        for client in self._all:
            client.process.wait(2 * PATIENCE_S)
        self._read_everything()
        return read_lines(sorted(self._folder.glob("*.jsonl")))

    def _read_everything(self) -> None:
        consumer = consuming(self._bootstrap_servers, properties=self._properties)
        # Clients hear of a commit before its markers are written: who waits for those must know
        # how far the log goes, and not only how far it is settled.
        ends = consuming(self._bootstrap_servers, "read_uncommitted", self._properties)
        with (self._folder / "final.jsonl").open("ab") as file:

            def write(kind: Type, f: What, ops: Sequence[Poll] = ()) -> None:
                file.write(to_line(time.monotonic_ns(), FINAL, kind, f, ops))

            for key in KEYS:
                write("invoke", "assign")
                consumer.assign([TopicPartition(*parsed(key), 0)])
                write("ok", "assign")
                write("invoke", "poll")
                where = TopicPartition(*parsed(key))
                _, end = ends.get_watermark_offsets(where, PATIENCE_S)
                records, whole = _read_to_the_end(consumer, end)
                write("ok" if whole else "info", "poll", [Poll({key: records})])
        consumer.close()
        ends.close()


def _read_to_the_end(consumer: Consumer, end: int) -> tuple[list[tuple[int, str]], bool]:
    """All records below the high watermark `end`, and whether that was reached.

    Open transactions hold the reader back: not to get there is as bad as to lose something.
    """
    records: list[tuple[int, str]] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append((message.offset(), message.value().decode()))
        elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= end:
            return records, True
    return records, False
