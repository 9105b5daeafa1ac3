"""One client of a workload, in its own process: performs random operations and records them.

`python -m tests.checker.worker SPEC` with a `Spec` as JSON. It runs until SIGTERM. Its
exit code is 0 after SIGTERM, or `FENCED` if it has to be started again, like an application
whose producer is fenced. Lines are written one by one, so that SIGKILL loses none.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType

from confluent_kafka import (
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.checker.history import Key, Op, Poll, Send, Type, What, to_line

FENCED = 3
PATIENCE_S = 30.0
USUAL = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20}
FATAL = (KafkaException, SystemError)
"""What calls raise when a producer is of no use any more. The second comes from the bindings, where
a fatal error is reported while the delivery of a record is."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What a worker is told."""

    process: str
    bootstrap: str
    history: str
    transactional_id: str
    keys: tuple[Key, ...]
    seed: int
    pause_in_transaction_s: float = 0.0
    """How long a transaction is left open between its sends and its end."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further properties of all clients, such as those of a login."""

    def encode(self) -> str:
        return json.dumps(asdict(self))


class Recorder:
    """Writes events into a file of its own, each with the machine's monotonic time."""

    def __init__(self, path: str, process: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._process = process

    def write(self, kind: Type, f: What, ops: Iterable[Op] = ()) -> None:
        os.write(self._file, to_line(time.monotonic_ns(), self._process, kind, f, ops))


class Sending:
    """Records on their way: which of them the broker has acknowledged, and where they are."""

    def __init__(self, sends: list[Send]) -> None:
        self.sends = list(sends)

    def start(self, producer: Producer) -> None:
        for number, send in enumerate(self.sends):
            topic, partition = parsed(send.key)
            producer.produce(topic, send.value, partition=partition, on_delivery=self._told(number))

    @property
    def acknowledged(self) -> bool:
        return all(send.offset is not None for send in self.sends)

    def _told(self, number: int) -> Callable[[object, Message], None]:
        def delivered(error: object, message: Message) -> None:
            if error is None:
                send = self.sends[number]
                self.sends[number] = Send(send.key, send.value, message.offset())

        return delivered


def parsed(key: Key) -> tuple[str, int]:
    """Topic and partition of a key."""
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)


def consuming(
    bootstrap: str,
    isolation: str = "read_committed",
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Consumer:
    """A consumer of what is committed, unless told otherwise."""
    return Consumer(
        {
            **USUAL,
            **properties,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 50,
        }
    )


def poll(consumer: Consumer, count: int, timeout_s: float) -> Poll:
    """Up to `count` records, or what there is in time."""
    records: dict[Key, list[tuple[int, str]]] = {}
    for message in consumer.consume(count, timeout_s):
        if message.error() is None:
            key = f"{message.topic()}-{message.partition()}"
            records.setdefault(key, []).append((message.offset(), message.value().decode()))
    return Poll(records)


class Worker:
    """Does one operation after the other."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._random = random.Random(spec.seed)
        self._recorder = Recorder(spec.history, spec.process)
        self._count = 0
        self._consumer = consuming(spec.bootstrap, properties=spec.properties)
        usual = {**USUAL, **spec.properties, "bootstrap.servers": spec.bootstrap}
        self._plain = Producer({**usual, "enable.idempotence": True})
        self._producer = Producer(
            {
                **usual,
                "transactional.id": spec.transactional_id,
                "transaction.timeout.ms": 60_000,
            }
        )
        self.stopping = False

    def run(self) -> None:
        """Until SIGTERM or the tests' own end; one of FATAL when the producer is of no use."""
        signal.signal(signal.SIGTERM, self._stop)
        self._assign()
        self._retried(lambda: self._producer.init_transactions(PATIENCE_S))
        parent = os.getppid()
        while not self.stopping and os.getppid() == parent:
            chosen = self._random.random()
            if chosen < 0.6:
                self._transaction()
            elif chosen < 0.8:
                self._send()
            elif chosen < 0.97:
                self._poll()
            else:
                self._assign()

    def _stop(self, *_: object) -> None:
        self.stopping = True

    # ------------------------------------------------------------------------------ operations

    def _assign(self) -> None:
        """Some of the keys, from the beginning."""
        self._recorder.write("invoke", "assign")
        chosen = self._random.sample(self._spec.keys, self._random.randint(1, len(self._spec.keys)))
        self._consumer.assign([TopicPartition(*parsed(key), 0) for key in chosen])
        self._recorder.write("ok", "assign")

    def _poll(self) -> None:
        self._recorder.write("invoke", "poll")
        found = poll(self._consumer, self._random.randint(1, 50), 0.2)
        self._recorder.write("ok", "poll", [found])

    def _send(self) -> None:
        sending = Sending(self._values())
        self._recorder.write("invoke", "send", sending.sends)
        sending.start(self._plain)
        self._plain.flush(PATIENCE_S)
        self._recorder.write("ok" if sending.acknowledged else "info", "send", sending.sends)

    def _transaction(self) -> None:
        sending = Sending(self._values())
        self._recorder.write("invoke", "txn", sending.sends)
        ops: list[Op] = []
        try:
            kind = self._attempt(sending, ops)
        except FATAL:
            self._recorder.write("info", "txn", [*sending.sends, *ops])
            raise
        self._recorder.write(kind, "txn", [*sending.sends, *ops])

    def _attempt(self, sending: Sending, ops: list[Op]) -> Type:
        producer = self._producer
        producer.begin_transaction()
        if self._random.random() < 0.5:
            ops.append(poll(self._consumer, self._random.randint(1, 20), 0.05))
        try:
            sending.start(producer)
            self._retried(lambda: producer.flush(PATIENCE_S))
            if self._spec.pause_in_transaction_s:
                time.sleep(self._random.random() * self._spec.pause_in_transaction_s)
            if self._random.random() < 0.85:
                self._retried(lambda: producer.commit_transaction(PATIENCE_S))
                return "ok"
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
        self._retried(lambda: producer.abort_transaction(PATIENCE_S))
        return "fail"

    def _retried(self, call: Callable[[], object]) -> None:
        """librdkafka asks its application to repeat some calls."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def _values(self) -> list[Send]:
        """One to four records that have never been written before."""
        sends = []
        for _ in range(self._random.randint(1, 4)):
            self._count += 1
            key = self._random.choice(self._spec.keys)
            sends.append(Send(key, f"{self._spec.process}/{self._count}"))
        return sends


def main() -> int:
    given = json.loads(sys.argv[1])
    worker = Worker(Spec(**{**given, "keys": tuple(given["keys"])}))
    try:
        worker.run()
    except FATAL as failure:
        print(f"{given['process']}: {failure}", file=sys.stderr)
        return FENCED
    return 0


if __name__ == "__main__":
    # librdkafka's threads need no farewell, and a broker that is down must not delay the end.
    code = main()
    sys.stderr.flush()
    os._exit(code)
