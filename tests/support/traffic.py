"""A producer that runs during the faults of a cluster, and the check afterwards."""

import itertools
import threading
import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.cluster import PATIENCE_S, RunningCluster


class Writer:
    """An idempotent producer in a thread; knows what was acknowledged."""

    def __init__(self, cluster: RunningCluster, topic: str, **settings: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                # With several in flight librdkafka may send them out of order after a change of
                # leader, begin a new epoch, and write twice.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 2,
                **settings,
            }
        )
        self._topic = topic
        self.acknowledged: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
        self.failed: list[str] = []
        self._stop = threading.Event()
        # A test that fails before `stop` leaves it to the end of the process.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                return
            self._send(number)
            if number % 50 == 0:
                time.sleep(0.005)

    def _send(self, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=number % 3, on_delivery=self._delivered
                )
            except BufferError:  # it is full until somebody leads again
                self._producer.poll(0.05)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        value = message.value()
        assert value is not None
        self.acknowledged[message.partition() or 0].add(int(value))

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def wait_for_more(self, records: int = 200) -> None:
        """Until so many more were acknowledged."""
        target = self.count() + records
        deadline = time.monotonic() + PATIENCE_S
        while self.count() < target:
            assert time.monotonic() < deadline, f"{self.count()} of {target} acknowledged"
            time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


def read_all(cluster: RunningCluster, topic: str) -> dict[int, list[int]]:
    """Every record of each partition, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, part, 0) for part in range(3)])
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < 3:
        assert time.monotonic() < deadline, f"only {ended} came to their ends"
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            value = message.value()
            assert value is not None
            found[message.partition() or 0].append(int(value))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
    consumer.close()
    return found


def check(cluster: RunningCluster, topic: str, writer: Writer) -> None:
    """Everything acknowledged is there, once, in order."""
    assert writer.failed == []
    found = read_all(cluster, topic)
    for partition, acknowledged in writer.acknowledged.items():
        assert acknowledged <= set(found[partition])
        assert found[partition] == sorted(set(found[partition]))
