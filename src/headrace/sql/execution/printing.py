"""PRINT: the records of a topic as lines of text."""

import asyncio
import contextlib
import datetime
import struct
from collections.abc import AsyncGenerator, Sequence

from headrace.admin.errors import AdminError
from headrace.admin.record_text import printable
from headrace.admin.typed_values import ValueDecoder
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.tailing import PrintedTopic
from headrace.sql.language.statements import PrintTopic
from headrace.sql.server import SqlServer
from headrace.wire.records import Record

INT_BYTES, LONG_BYTES = 4, 8


class TopicPrinter:
    """The lines of one PRINT."""

    def __init__(self, server: SqlServer, statement: PrintTopic) -> None:
        self._statement = statement
        self._tail = PrintedTopic(server.options.client, statement.topic)
        registry = server.options.registry
        self._decoder = None if registry is None else ValueDecoder(registry.by_id)

    async def start(self) -> None:
        """StatementRefused if the topic cannot be read."""
        try:
            await self._tail.start(from_beginning=self._statement.from_beginning)
        except (KafkaError, ClientError) as error:
            self._tail.close()
            raise StatementRefused(f"Topic {self._statement.topic}: {error}") from error

    async def lines(self) -> AsyncGenerator[Sequence[str], None]:
        """Batches of lines, until the limit."""
        seen = printed = 0
        limit = self._statement.limit
        try:
            async for batch in self._tail.batches():
                picked = []
                for partition, record in batch:
                    seen += 1
                    if (seen - 1) % self._statement.interval == 0:
                        picked.append((partition, record))
                if limit is not None:
                    picked = picked[: limit - printed]
                if picked:
                    # Values with a schema ask the registry.
                    yield await asyncio.to_thread(self._lines, picked)
                printed += len(picked)
                if limit is not None and printed >= limit:
                    return
        finally:
            self._tail.close()

    def _lines(self, records: Sequence[tuple[int, Record]]) -> list[str]:
        return [self._line(partition, record) for partition, record in records]

    def _line(self, partition: int, record: Record) -> str:
        moment = datetime.datetime.fromtimestamp(record.timestamp / 1000, datetime.UTC)
        when = f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03} Z"
        key, value = (self._text(each) for each in (record.key, record.value))
        return f"rowtime: {when}, key: {key}, value: {value}, partition: {partition}"

    def _text(self, value: bytes | None) -> str:
        if value is None:
            return "<null>"
        if self._decoder is not None:
            # A value that looks as if it had a schema, and has none, is shown as it is.
            with contextlib.suppress(AdminError, ClientError):
                value = self._decoder.text(value)
        assert value is not None
        return _guessed(value)


def _guessed(value: bytes) -> str:
    """Text if it is printable; else a number, as Kafka's serializers write it; else escaped."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable() or (value and text.strip().replace("\n", "").isprintable()):
        return text
    if len(value) == INT_BYTES:
        return str(struct.unpack(">i", value)[0])
    if len(value) == LONG_BYTES:
        return str(struct.unpack(">q", value)[0])
    return printable(value)
