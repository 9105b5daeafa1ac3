"""Three workers of a share group, one of which often fails, while their broker is killed."""

import random
import threading
import time
from pathlib import Path

from confluent_kafka import AcknowledgeType, KafkaException, Message

from headrace.admin.share_groups import share_offsets
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.types import TopicPartition
from tests.clients.test_share_groups import SETTINGS, WAIT_S, Queue
from tests.support.headrace_broker import HeadraceBroker

COUNT = 600
LIMIT = 10


class Worker(threading.Thread):
    """Accepts most records, and releases the others."""

    def __init__(self, queue: Queue, number: int) -> None:
        super().__init__(name=f"worker-{number}", daemon=True)
        self.accepted: set[int] = set()
        """Records whose acceptance the broker has confirmed."""
        self.most_deliveries = 0
        self.over = threading.Event()
        self._failing = number == 0
        self._dice = random.Random(number)
        self._consumer = queue.consumer(**{"max.poll.records": 20})

    def run(self) -> None:
        while not self.over.is_set():
            self._work([one for one in self._consumer.poll(0.5) if one.error() is None])

    def _work(self, messages: list[Message]) -> None:
        done: set[int] = set()
        for message in messages:
            self.most_deliveries = max(self.most_deliveries, message.delivery_count())
            fails = self._failing and self._dice.random() < 0.3
            kind = AcknowledgeType.RELEASE if fails else AcknowledgeType.ACCEPT
            self._consumer.acknowledge(message, kind)
            if not fails:
                done.add(int(message.value()))
        try:
            results = self._consumer.commit_sync(WAIT_S)
        except KafkaException:
            return
        if messages and results and all(error is None for error in results.values()):
            self.accepted |= done


def progress(broker: HeadraceBroker, queue: Queue) -> tuple[int | None, int | None]:
    """The start offset and the lag of the group."""
    with Cluster(ClientConfig(parse_bootstrap(broker.bootstrap), request_timeout_s=10)) as cluster:
        found = share_offsets(cluster, queue.group)[TopicPartition(queue.topic, 0)]
    return found.start, found.lag


def test_no_record_is_lost_and_none_is_left_when_the_broker_is_killed(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.share.delivery.count.limit": str(LIMIT)}
    with HeadraceBroker(tmp_path, settings=settings) as broker:
        queue = Queue(broker, share_record_lock_duration_ms="2000")
        for first in range(0, COUNT, 20):
            queue.produce(*(str(number) for number in range(first, first + 20)))
        workers = [Worker(queue, number) for number in range(3)]
        for worker in workers:
            worker.start()
        until = time.monotonic() + 3 * WAIT_S
        kills = 0
        while True:
            accepted = set().union(*(worker.accepted for worker in workers))
            if len(accepted) == COUNT:
                break
            assert time.monotonic() < until, f"{len(accepted)} of {COUNT} were accepted"
            if kills < 2 and len(accepted) >= (kills + 1) * COUNT // 4:
                broker.kill()
                broker.start()
                kills += 1
            time.sleep(0.02)
        for worker in workers:
            worker.over.set()
        for worker in workers:
            worker.join(WAIT_S)
        queue.close()
        assert max(worker.most_deliveries for worker in workers) <= LIMIT
        broker.kill()
        broker.start()
        assert progress(broker, queue) == (COUNT, 0)
