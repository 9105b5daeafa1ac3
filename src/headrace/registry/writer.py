"""Writes to the schemas topic: one instance at a time, in transactions.

Every instance accepts writes. An instance becomes the writer by calling `init_transactions` with
the transactional id that all instances share: the cluster then fences the previous writer and
completes or aborts its open transaction, so no records of another instance can come in between.
The new writer reads the topic to its end, copies the state, and decides requests on that copy; it
replays its own records into the copy before they are committed. If a transaction fails, the
producer and the copy are discarded, and the requests are decided again.
"""

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from confluent_kafka import KafkaException

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from headrace.registry import failures
from headrace.registry.decisions import Decision
from headrace.registry.failures import RegistryError
from headrace.registry.records import Change, encode
from headrace.registry.schemas_topic import SchemasReader, TopicLocation, end_of
from headrace.registry.state import RegistryState
from headrace.registry.topic_records import BATCH_BYTES, RecordWriter, open_writer

log = logging.getLogger("headrace.registry")

Decide = Callable[[RegistryState], Decision]
BATCH_REQUESTS = 200
GIVE_UP_S = 20.0
TRANSACTION_S = 10.0


@dataclass(slots=True)
class PendingWrite:
    """A write whose request has not been answered."""

    decide: Decide
    done: "asyncio.Future[object]"
    deadline: float


class Writer:
    """The thread that writes, and the queue in front of it."""

    def __init__(self, location: TopicLocation, reader: SchemasReader) -> None:
        self._location = location
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[PendingWrite | None] = queue.SimpleQueue()
        self._producer: RecordWriter | None = None
        self._state = RegistryState()
        self._cluster: Cluster | None = None
        self._last_offset = -1
        self.changes = 0
        """How often this instance became the writer. Above 1: another instance wrote in between,
        or a transaction failed."""
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    async def write(self, decide: Decide) -> object:
        """The response, after the records are committed and replayed on this instance."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._requests.put(PendingWrite(decide, future, time.monotonic() + GIVE_UP_S))
        return await future

    def stop(self) -> None:
        self._requests.put(None)
        self._thread.join()

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                if self._cluster is not None:
                    self._cluster.close()
                return
            while batch:
                try:
                    self._write(batch)
                    break
                except (KafkaException, KafkaError, ClientError, FutureTimeout) as error:
                    self._discard_producer()
                    batch = self._still_waiting(batch, error)

    def _next_batch(self) -> list[PendingWrite] | None:
        first = self._requests.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < BATCH_REQUESTS:
            try:
                following = self._requests.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._requests.put(None)
                break
            batch.append(following)
        return batch

    def _write(self, batch: list[PendingWrite]) -> None:
        """Writes one transaction for the batch; answers are sent when its records are replayed."""
        producer = self._producer or self._become_writer()
        answers: list[tuple[PendingWrite, object]] = []
        begun = False
        for request in batch:
            answer, changes, records = self._decide(request)
            answers.append((request, answer))
            if records and not begun:
                producer.begin()
                begun = True
            for change in changes:
                self._state.replay(change)
            for key, value in records:
                producer.send(key, value)
        if begun:
            self._last_offset = producer.commit()
        self._loop.call_soon_threadsafe(self._answer, answers, self._last_offset + 1)

    def _decide(
        self, request: PendingWrite
    ) -> tuple[object, tuple[Change, ...], list[tuple[bytes, bytes | None]]]:
        """Answer, changes and records. An error is returned as the answer."""
        try:
            outcome = request.decide(self._state)
            records = [encode(change) for change in outcome.changes]
        except RegistryError as error:
            return error, (), []
        except Exception as error:
            # A bug that one request triggers must not fail the rest of the batch.
            log.exception("a write request failed")
            return failures.RegistryError(500, f"Internal error: {type(error).__name__}"), (), []
        largest = max((len(key) + len(value or b"") for key, value in records), default=0)
        if largest > BATCH_BYTES:
            return failures.record_too_large(largest, BATCH_BYTES), (), []
        return outcome.answer, outcome.changes, records

    def _become_writer(self) -> RecordWriter:
        started = time.monotonic()
        producer = open_writer(self._location, TRANSACTION_S)
        self._cluster = self._cluster or self._location.cluster(TRANSACTION_S)
        end = end_of(self._cluster, self._location.topic)
        copy = asyncio.run_coroutine_threadsafe(self._reader.copy_at(end), self._loop)
        try:
            self._state = copy.result(TRANSACTION_S)
        finally:
            copy.cancel()
        self._producer = producer
        self._last_offset = end - 1
        self.changes += 1
        elapsed_ms = (time.monotonic() - started) * 1000
        log.info("became the writer of %s in %.0f ms", self._location.topic, elapsed_ms)
        return producer

    def _discard_producer(self) -> None:
        self._producer = None
        self._state = RegistryState()

    def _still_waiting(self, batch: list[PendingWrite], error: Exception) -> list[PendingWrite]:
        """The writes that have time left for another attempt; the others fail with the reason."""
        if isinstance(error, KafkaException):
            reason = error.args[0].str()
        else:
            reason = str(error) or "the request timed out"
        log.warning("a transaction on %s failed and is retried: %s", self._location.topic, reason)
        now = time.monotonic()
        late = [each for each in batch if each.deadline <= now]
        batch = [each for each in batch if each.deadline > now]
        problem = failures.store_timed_out(reason)
        if late:
            answers: list[tuple[PendingWrite, object]] = [(each, problem) for each in late]
            self._loop.call_soon_threadsafe(self._answer, answers, 0)
        # A random pause: two instances must not fence each other forever.
        time.sleep(random.uniform(0.01, 0.1))
        return batch

    # ---------------------------------------------------------------------------- the event loop

    def _answer(self, answers: list[tuple[PendingWrite, object]], offset: int) -> None:
        if self._reader.next_offset >= offset:
            _settle(answers)
        else:
            task = self._loop.create_task(self._reader.reached(offset))
            task.add_done_callback(lambda _: _settle(answers))


def _settle(answers: list[tuple[PendingWrite, object]]) -> None:
    for request, answer in answers:
        if request.done.done():
            continue
        if isinstance(answer, RegistryError):
            request.done.set_exception(answer)
        else:
            request.done.set_result(answer)
