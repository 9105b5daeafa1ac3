"""Writing to the topic: one instance at a time, and nobody's records are lost or mixed.

Every instance may want to write; who holds the pen does. The pen is the transactional id: taking
it (`init_transactions`) makes the cluster refuse whoever had it before, finishes or aborts what he
left, and from then on nobody else's records come between ours. So the one who takes it reads the
topic to its end, and from there decides on its own copy of the state, which it keeps in step with
the records that it writes. If a transaction fails, the pen and the copy are thrown away, and the
requests are decided again from the start.
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

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.registry import failures
from headrace.registry.decisions import Outcome
from headrace.registry.failures import RegistryError
from headrace.registry.records import Change, encode
from headrace.registry.schemas_topic import Follower, Where, end_of
from headrace.registry.state import State

log = logging.getLogger("headrace.registry")

Decide = Callable[[State], Outcome]
BATCH_REQUESTS = 200
GIVE_UP_S = 20.0
TRANSACTION_S = 10.0
RECORD_BYTES = 900_000
"""Below the megabyte that a topic and a producer take unless they are told otherwise."""


@dataclass(slots=True)
class Request:
    """A write that somebody waits for."""

    decide: Decide
    done: "asyncio.Future[object]"
    deadline: float


class Pen:
    """The thread that writes."""

    def __init__(self, where: Where, follower: Follower) -> None:
        self._where = where
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._producer: Producer | None = None
        self._ahead = State()
        self._admin: AdminClient | None = None
        self._last_offset = -1
        self.taken = 0
        """How often the pen was taken; more than once means that it was lost in between."""
        self._thread = threading.Thread(target=self._run, name="pen", daemon=True)
        self._thread.start()

    async def write(self, decide: Decide) -> object:
        """The answer, once the records are committed and this instance's readers see them."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._requests.put(Request(decide, future, time.monotonic() + GIVE_UP_S))
        return await future

    def stop(self) -> None:
        self._requests.put(None)
        self._thread.join()

    # ------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            while batch:
                try:
                    self._write(batch)
                    break
                except (KafkaException, FutureTimeout) as error:
                    self._drop_pen()
                    batch = self._still_waiting(batch, error)

    def _next_batch(self) -> list[Request] | None:
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

    def _write(self, batch: list[Request]) -> None:
        """One transaction for all requests that wait; the answers leave when it has come back."""
        producer = self._producer or self._take_pen()
        answers: list[tuple[Request, object]] = []
        begun = False
        for request in batch:
            answer, changes, records = self._decide(request)
            answers.append((request, answer))
            if records and not begun:
                producer.begin_transaction()
                begun = True
            for change in changes:
                self._ahead.replay(change)
            for key, value in records:
                producer.produce(
                    self._where.topic, key=key, value=value, partition=0, on_delivery=self._sent
                )
        if begun:
            producer.commit_transaction(TRANSACTION_S)
        self._loop.call_soon_threadsafe(self._answer, answers, self._last_offset + 1)

    def _decide(
        self, request: Request
    ) -> tuple[object, tuple[Change, ...], list[tuple[bytes, bytes | None]]]:
        """Answer, changes and records; an error is an answer too."""
        try:
            outcome = request.decide(self._ahead)
            records = [encode(change) for change in outcome.changes]
        except RegistryError as error:
            return error, (), []
        except Exception as error:
            # A mistake of ours in one request must not take the others with it.
            log.exception("a request could not be decided")
            return failures.RegistryError(500, f"Internal error: {type(error).__name__}"), (), []
        largest = max((len(key) + len(value or b"") for key, value in records), default=0)
        if largest > RECORD_BYTES:
            return failures.record_too_large(largest, RECORD_BYTES), (), []
        return outcome.answer, outcome.changes, records

    def _sent(self, error: KafkaError | None, message: object) -> None:
        if error is None:
            self._last_offset = message.offset()  # type: ignore[attr-defined]

    def _take_pen(self) -> Producer:
        started = time.monotonic()
        settings = self._where.client(
            **{
                "transactional.id": f"{self._where.topic}-writer",
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                "linger.ms": 0,
            }
        )
        producer = Producer(settings)
        producer.init_transactions(TRANSACTION_S)
        self._admin = self._admin or AdminClient(self._where.client())
        end = end_of(self._admin, self._where.topic)
        copy = asyncio.run_coroutine_threadsafe(self._follower.copy_at(end), self._loop)
        try:
            self._ahead = copy.result(TRANSACTION_S)
        finally:
            copy.cancel()
        self._producer = producer
        self._last_offset = end - 1
        self.taken += 1
        log.info("this instance writes now; it took %.0f ms", (time.monotonic() - started) * 1000)
        return producer

    def _drop_pen(self) -> None:
        self._producer = None
        self._ahead = State()

    def _still_waiting(self, batch: list[Request], error: Exception) -> list[Request]:
        """Those who have time left; the others are told why."""
        reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        log.warning("a write failed and is tried again: %s", reason)
        now = time.monotonic()
        late = [each for each in batch if each.deadline <= now]
        batch = [each for each in batch if each.deadline > now]
        problem = failures.store_timed_out(reason)
        if late:
            answers: list[tuple[Request, object]] = [(each, problem) for each in late]
            self._loop.call_soon_threadsafe(self._answer, answers, 0)
        # Two instances that want the pen at once must not take it from each other for ever.
        time.sleep(random.uniform(0.01, 0.1))
        return batch

    # ---------------------------------------------------------------------------- the event loop

    def _answer(self, answers: list[tuple[Request, object]], offset: int) -> None:
        if self._follower.next_offset >= offset:
            _settle(answers)
        else:
            task = self._loop.create_task(self._follower.reached(offset))
            task.add_done_callback(lambda _: _settle(answers))


def _settle(answers: list[tuple[Request, object]]) -> None:
    for request, answer in answers:
        if request.done.done():
            continue
        if isinstance(answer, RegistryError):
            request.done.set_exception(answer)
        else:
            request.done.set_result(answer)
