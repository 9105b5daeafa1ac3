"""A push source with its spool: delivery, acknowledgements, and messages that come again."""

import queue
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect.plugin import PermanentError, PushSource, Received, SourceStream
from headrace.connect.push.spooled_source import SpooledSource
from headrace.connect.trial import try_source

WITHIN_S = 60.0


class Mailbox(PushSource):
    """Messages that a test puts into a queue."""

    def __init__(self, config: dict[str, str]) -> None:
        super().__init__(config)
        self.arrived: queue.Queue[Received | BaseException] = queue.Queue()
        self.acknowledged: list[object] = []
        self.is_closed = False

    def streams(self) -> list[SourceStream]:
        return [SourceStream("mail", "text string", self.partitions())]

    def put(self, *texts: str, redelivered: bool = False) -> None:
        for text in texts:
            self.arrived.put(Received({"text": text}, f"receipt of {text}", redelivered))

    def receive(self) -> Generator[Received | None, None, None]:
        try:
            while True:
                try:
                    message = self.arrived.get(timeout=0.02)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(message, BaseException):
                    raise message
                yield message
        finally:
            self.is_closed = True

    def acknowledge(self, upto: object) -> None:
        self.acknowledged.append(upto)


class Reader:
    """Reads as the host does, with as many processes as instances of the source."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.mail = Mailbox(options)
        self.folder = folder
        self.source = SpooledSource(self.mail, folder)
        (self.partition,) = self.mail.partitions()

    def until(self, start: Any, is_enough: Callable[[Any], bool], limit: int = 1000) -> Any:
        end = time.monotonic() + WITHIN_S
        while not is_enough(found := self.source.latest(self.partition, start, limit)):
            assert time.monotonic() < end, found
            time.sleep(0.01)
        return found

    def upto(self, sequence: int, start: Any = None) -> Any:
        return self.until(start, lambda found: found == {"sequence": sequence})

    def texts(self, start: Any, end: Any) -> list[str]:
        """In a task, which has an instance of its own."""
        task = SpooledSource(Mailbox({}), self.folder)
        batches = task.read(self.partition, start, end)
        return [text for each in batches for text in each.column("text").to_pylist()]


@pytest.fixture
def reader(tmp_path: Path) -> Any:
    made = Reader(tmp_path)
    yield made
    made.source.close()


def test_messages_are_acknowledged_when_they_are_in_the_topic(reader: Reader) -> None:
    assert reader.source.latest(reader.partition, None, 10) is None
    reader.mail.put("a", "b", "c")
    first = reader.upto(3)
    assert reader.texts(None, first) == ["a", "b", "c"]
    reader.mail.put("d")
    second = reader.upto(4, first)
    assert reader.mail.acknowledged == []
    reader.source.commit(reader.partition, first)
    assert reader.mail.acknowledged == ["receipt of c"]
    assert reader.texts(first, second) == ["d"]
    reader.source.commit(reader.partition, second)
    assert reader.mail.acknowledged == ["receipt of c", "receipt of d"]


def test_an_epoch_has_no_more_rows_than_its_limit(reader: Reader) -> None:
    reader.mail.put("a", "b", "c")
    reader.upto(3)
    end = reader.source.latest(reader.partition, None, 2)
    assert end == {"sequence": 2}
    assert reader.texts(None, end) == ["a", "b"]


def test_messages_that_come_again_are_in_the_topic_once(tmp_path: Path) -> None:
    before = Reader(tmp_path)
    before.mail.put("a", "b", "same", "same")
    reached = before.upto(4)
    before.source.commit(before.partition, {"sequence": 1})
    before.source.close()

    after = Reader(tmp_path)
    start = {"sequence": 1}
    # b, and two of three equal messages, are in the spool already.
    after.mail.put("b", "same", "same", "same", redelivered=True)
    after.mail.put("b")
    end = after.upto(6, start)
    assert after.texts(start, end) == ["b", "same", "same", "same", "b"]
    after.source.commit(after.partition, reached)
    assert after.mail.acknowledged == ["receipt of same"]
    after.source.commit(after.partition, end)
    assert after.mail.acknowledged == ["receipt of same", "receipt of b"]
    after.source.close()


def test_a_message_that_comes_again_after_its_commit_is_acknowledged(tmp_path: Path) -> None:
    before = Reader(tmp_path)
    before.mail.put("a")
    end = before.upto(1)
    before.source.close()

    after = Reader(tmp_path)
    assert after.source.latest(after.partition, None, 10) == end
    after.source.commit(after.partition, end)
    after.mail.put("a", redelivered=True)
    after.until(end, lambda _: after.mail.acknowledged == ["receipt of a"])
    assert after.source.latest(after.partition, end, 10) == end
    after.source.close()


def test_what_was_received_is_read_before_an_error_is_raised(reader: Reader) -> None:
    reader.mail.put("a")
    reader.mail.arrived.put(PermanentError("the queue does not exist"))
    end = reader.upto(1)
    assert reader.texts(None, end) == ["a"]
    with pytest.raises(PermanentError, match="the queue does not exist"):
        reader.until(end, lambda _: False)


def test_closing_disconnects(reader: Reader) -> None:
    reader.source.latest(reader.partition, None, 10)
    reader.source.close()
    assert reader.mail.is_closed


def test_a_new_spool_continues_at_the_offset(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    start = {"sequence": 100}
    assert reader.source.latest(reader.partition, start, 10) == start
    reader.mail.put("a")
    end = reader.upto(101, start)
    assert reader.texts(start, end) == ["a"]
    reader.source.close()


def test_the_size_of_the_spool_is_an_option(tmp_path: Path) -> None:
    reader = Reader(tmp_path, **{"headrace.spool.max.bytes": "100"})
    reader.mail.put(*("x" * 60 for _ in range(10)))
    reader.upto(2)
    time.sleep(0.2)
    assert reader.source.latest(reader.partition, None, 10) == {"sequence": 2}
    reader.source.close()


def test_a_push_source_can_be_tried() -> None:
    mail = Mailbox({})
    mail.put("a", "b")
    ranges = try_source(mail, epochs=2, rows=1)
    assert [each.rows for each in ranges] == [[{"text": "a"}], [{"text": "b"}]]
    assert mail.is_closed
    assert mail.acknowledged == []


def test_rows_have_the_types_of_the_schema(reader: Reader) -> None:
    reader.mail.arrived.put(Received({"text": 5}, None))
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        reader.until(None, lambda _: False)
