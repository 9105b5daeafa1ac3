"""Follows topics live: one reader a topic, any number of viewers.

The reader is a thread with a librdkafka consumer whose partitions are assigned; it joins no group
and commits nothing. Each batch is decoded and encoded once for all viewers. A topic that is faster
than a person can read is sampled, and the viewers are told how many records were left out. A viewer
who comes back continues at the offsets of its last event.
"""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.console.records.shown import PREVIEW_CHARACTERS, Decoder, shown_record
from headrace.types import TopicPartition
from headrace.wire.records import Record

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TICK_S = 0.1
MOST_PER_TICK = 200
MOST_CONSUMED = 5_000
RING_RECORDS = 2_000
"""Records of a topic that a viewer who comes back still gets; older ones are only counted."""
WAITING_BATCHES = 50
"""Batches that wait for a slow viewer; older ones are dropped and counted."""
LINGER_S = 5.0
"""How long a reader without viewers goes on: a reload of the page finds it."""
APPEND_TIME = 2
FETCH_MIN_BYTES = 65_536
FETCH_WAIT_MS = 100
# json.dumps would create an encoder for every record.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(slots=True)
class TailBatch:
    """Records of one tick, encoded."""

    records: list[tuple[int, int, str]]
    """Partition, offset and JSON of those that are shown."""
    seen: int
    """Of all, shown or not."""
    next_offsets: dict[int, int]
    """Offset after the last record of each partition in this batch."""


@dataclass(eq=False, slots=True)
class TailViewer:
    """A browser tab that follows a topic."""

    batches: deque[TailBatch] = field(default_factory=deque)
    dropped: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def give(self, batch: TailBatch) -> None:
        if len(self.batches) >= WAITING_BATCHES:
            self.dropped += self.batches.popleft().seen
        self.batches.append(batch)
        self.woken.set()


class TopicTail:
    """The reader of one topic and its viewers."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        decoder: Decoder,
        start: Mapping[int, int],
    ) -> None:
        self._properties = properties
        self._topic = topic
        self._start = start
        """Next offsets of the first viewer; partitions without one are followed from their end."""
        self._decoder = decoder
        self._loop = asyncio.get_running_loop()
        self._ring: deque[tuple[int, int, str]] = deque(maxlen=RING_RECORDS)
        self._next_offsets: dict[int, int] = {}
        self._stop = threading.Event()
        self.viewers: set[TailViewer] = set()
        self.problem = ""
        self.started = self._loop.create_future()
        """Set when the positions are known: records produced from then on are shown."""
        self._thread = threading.Thread(target=self._run, name=f"console-tail-{topic}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    async def events(self, seen: Mapping[int, int]) -> AsyncGenerator[bytes, None]:
        """Server-sent events for one viewer. `seen` has the next offsets of one who comes back."""
        viewer = TailViewer()
        self.viewers.add(viewer)
        try:
            await asyncio.shield(self.started)
            viewer.batches.clear()  # `missed` has the records of these
            missed, positions = self._missed(seen)
            yield f"retry: 2000\nid: {_event_id(positions)}\nevent: ready\ndata: {{}}\n\n".encode()
            if missed.seen:
                yield _event(missed, 0, positions)
            while not self.problem:
                viewer.woken.clear()
                while viewer.batches:
                    dropped, viewer.dropped = viewer.dropped, 0
                    yield _event(viewer.batches.popleft(), dropped, positions)
                try:
                    await asyncio.wait_for(viewer.woken.wait(), 15)
                except TimeoutError:
                    yield b": the connection is alive\n\n"
            yield f"event: problem\ndata: {json.dumps(self.problem)}\n\n".encode()
        finally:
            self.viewers.discard(viewer)

    def _missed(self, seen: Mapping[int, int]) -> tuple[TailBatch, dict[int, int]]:
        """What a viewer who comes back has not seen yet, and where it continues."""
        following = dict(self._next_offsets)
        positions = {
            partition: min(seen.get(partition, end), end) for partition, end in following.items()
        }
        rows = [each for each in self._ring if each[1] >= positions.get(each[0], 1 << 63)]
        passed = sum(end - positions[partition] for partition, end in following.items())
        return TailBatch(rows, max(passed, len(rows)), following), positions

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            consumer, positions = self._assigned()
        except Exception as error:
            self._tell(f"topic {self._topic} cannot be followed: {error}")
            return
        self._loop.call_soon_threadsafe(self._follow_from, positions)
        try:
            while not self._stop.is_set():
                self._tick(consumer.consume(MOST_CONSUMED, TICK_S))
                # A slow topic wakes the consumer for each record; a tick collects several.
                self._stop.wait(TICK_S)
        except Exception as error:
            self._tell(f"following topic {self._topic} failed: {error}")
        finally:
            consumer.close()

    def _assigned(self) -> tuple["Consumer", dict[int, int]]:
        from confluent_kafka import Consumer
        from confluent_kafka import TopicPartition as Assigned

        consumer = Consumer(
            {
                **self._properties,
                "group.id": "headrace-console-tail",  # a consumer must have one; it is not joined
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "enable.partition.eof": False,
                "queued.max.messages.kbytes": 4096,
                "fetch.message.max.bytes": 1_048_576,
                # Without a minimum, a producer's every batch would be a response of its own.
                "fetch.min.bytes": FETCH_MIN_BYTES,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "topic.metadata.refresh.interval.ms": 10_000,
            }
        )
        metadata = consumer.list_topics(self._topic, timeout=10).topics[self._topic]
        if metadata.error is not None:
            raise RuntimeError(metadata.error.str())
        positions = {}
        for index in metadata.partitions:
            begin, end = consumer.get_watermark_offsets(Assigned(self._topic, index), timeout=10)
            wanted = min(self._start.get(index, end), end)
            positions[index] = max(wanted, begin, end - RING_RECORDS)
        consumer.assign([Assigned(self._topic, index, at) for index, at in positions.items()])
        return consumer, positions

    def _tick(self, messages: list[Any]) -> None:
        good = [each for each in messages if each.error() is None]
        if not good:
            return
        records = [self._encoded(each) for each in good[-MOST_PER_TICK:]]
        following = {each.partition(): each.offset() + 1 for each in good}
        self._loop.call_soon_threadsafe(self._give, TailBatch(records, len(good), following))

    def _encoded(self, message: Any) -> tuple[int, int, str]:
        kind, timestamp = message.timestamp()
        record = Record(
            message.offset(),
            timestamp if kind else -1,
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )
        place = TopicPartition(self._topic, message.partition())
        row = shown_record(record, place, kind == APPEND_TIME, self._decoder, PREVIEW_CHARACTERS)
        return message.partition(), message.offset(), _ENCODER.encode(row)

    def _follow_from(self, positions: dict[int, int]) -> None:
        self._next_offsets = positions
        _set(self.started)

    def _give(self, batch: TailBatch) -> None:
        self._ring.extend(batch.records)
        self._next_offsets.update(batch.next_offsets)
        for viewer in self.viewers:
            viewer.give(batch)

    def _tell(self, problem: str) -> None:
        def tell() -> None:
            self.problem = problem
            _set(self.started)
            for viewer in self.viewers:
                viewer.woken.set()

        self._loop.call_soon_threadsafe(tell)


class Tails:
    """The readers of all topics that somebody follows."""

    def __init__(self, properties: Mapping[str, Any], decoder: Decoder) -> None:
        self._properties = properties
        self._decoder = decoder
        self._by_topic: dict[str, TopicTail] = {}

    async def follow(self, topic: str, seen: Mapping[int, int]) -> AsyncGenerator[bytes, None]:
        """The events of a topic for one viewer."""
        tail = self._by_topic.get(topic)
        if tail is None or tail.problem:
            tail = self._by_topic[topic] = TopicTail(self._properties, topic, self._decoder, seen)
        events = tail.events(seen)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()
            asyncio.get_running_loop().call_later(LINGER_S, self._release, topic, tail)

    @property
    def is_followed(self) -> bool:
        return any(tail.viewers for tail in self._by_topic.values())

    def close(self) -> None:
        for tail in self._by_topic.values():
            tail.stop()

    def _release(self, topic: str, tail: TopicTail) -> None:
        if not tail.viewers:
            tail.stop()
            if self._by_topic.get(topic) is tail:
                del self._by_topic[topic]


def _event(batch: TailBatch, dropped: int, positions: dict[int, int]) -> bytes:
    """One event; its id is where the viewer continues: `partition:offset,...`."""
    positions.update(batch.next_offsets)
    at = _event_id(positions)
    rows = ",".join(row for _, _, row in batch.records)
    left_out = batch.seen - len(batch.records) + dropped
    data = f'{{"records":[{rows}],"seen":{batch.seen + dropped},"left_out":{left_out}}}'
    return f"id: {at}\nevent: records\ndata: {data}\n\n".encode()


def _event_id(positions: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
