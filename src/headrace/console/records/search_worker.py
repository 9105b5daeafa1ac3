"""The process that searches a topic: `python -m headrace.console.records.search_worker`.

It gets one job as JSON on its standard input, credentials included, and writes JSON lines: records
that match, progress, and at the end why it stopped and what it has not searched. The newest records
are searched first, in windows; a batch whose bytes do not contain a text that all matching records
contain is not decoded.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.errors import ClientError
from headrace.client.fetching import DataLoss, FetchPlan, fetch_range
from headrace.console.masks import parse_masks
from headrace.console.records.expression import (
    Anywhere,
    BadExpression,
    Condition,
    SearchedRecord,
    parse_expression,
)
from headrace.console.records.shown import PREVIEW_CHARACTERS, Decoder, shown_record
from headrace.errors import KafkaError
from headrace.schemas.client import SchemaClient
from headrace.types import TopicPartition
from headrace.wire.batch import CONTROL, LOG_APPEND_TIME, read_header
from headrace.wire.records import Record, iterate, unpack

WINDOW = 50_000
MOST_DECOMPRESSED = 64 << 20
PROGRESS_S = 0.25
FETCH_BYTES = 4 << 20
SCHEMA_MARK = b"\0"
"""The first byte of keys and values that begin with a schema id."""


class SearchStopped(Exception):
    """The search ends before everything was searched; the message tells why."""


class TopicSearch:
    """One job."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._topic: str = job["topic"]
        self._left: dict[int, list[int]] = {int(p): list(r) for p, r in job["ranges"].items()}
        self._newest_first: bool = job["newest_first"]
        self._most: int = job["most_matches"]
        self._deadline = time.monotonic() + job["seconds"]
        self._node: Condition = condition(job)
        self._literal = _prefilter(self._node)
        registry = job["registry"]
        client = None if registry is None else SchemaClient(**registry)
        self._decoder = Decoder.of(client, parse_masks(job["masks"]))
        self._cluster = Cluster(client_config(job["properties"]))
        self._total = sum(stop - start for start, stop in self._left.values())
        self._matched = self._scanned = self._bytes = 0
        self._told = 0.0

    def run(self) -> None:
        reason = "everything was searched"
        try:
            while self._left:
                for partition in sorted(self._left):
                    self._window(partition)
        except SearchStopped as stop:
            reason = str(stop)
        except (KafkaError, ClientError) as error:
            reason = f"the cluster answered with an error: {error}"
        self._tell(done=reason)

    def _window(self, partition: int) -> None:
        start, stop = self._left[partition]
        if self._newest_first:
            low, high = max(start, stop - WINDOW), stop
        else:
            low, high = start, min(stop, start + WINDOW)
        found: list[dict[str, object]] = []
        scanned = self._scanned
        for row in self._matches(partition, low, high, scanned):
            if self._newest_first:
                found.append(row)
            else:
                self._match(row)
                self._left[partition] = [int(str(row["offset"])) + 1, stop]
        for row in reversed(found):
            self._left[partition] = [start, int(str(row["offset"]))]
            self._match(row)
        self._scanned = scanned + high - low
        left = [start, low] if self._newest_first else [high, stop]
        if left[0] < left[1]:
            self._left[partition] = left
        else:
            del self._left[partition]
        self._check()

    def _match(self, row: dict[str, object]) -> None:
        self._matched += 1
        print(json.dumps({"record": row}, ensure_ascii=False), flush=True)
        if self._matched >= self._most:
            raise SearchStopped(f"{self._most} records were found")

    def _matches(
        self, partition: int, low: int, high: int, scanned: int
    ) -> Iterator[dict[str, object]]:
        plan = FetchPlan(TopicPartition(self._topic, partition), max_bytes=FETCH_BYTES)
        while low < high:
            try:
                for fetched in fetch_range(self._cluster, plan, low, high):
                    ends = [*fetched.positions[1:], fetched.end]
                    for at, end in zip(fetched.positions, ends, strict=True):
                        yield from self._batch(fetched.data, at, end, partition, low, high)
                        self._bytes += end - at
                    last = read_header(fetched.data, fetched.positions[-1]).next_offset
                    self._scanned = scanned + max(0, min(high, last) - low)
                    if not self._newest_first:
                        self._left[partition][0] = min(high, last)
                    self._check()
                return
            except DataLoss as loss:
                low = max(low + 1, loss.resume_at)

    def _batch(
        self, data: bytearray, at: int, end: int, partition: int, low: int, high: int
    ) -> Iterator[dict[str, object]]:
        header = read_header(data, at)
        if header.attributes & CONTROL:
            return
        only_with_schema = False
        if self._literal is not None:
            payload = unpack(data, at, end, header, MOST_DECOMPRESSED)
            # JSON may have any character as an escape sequence.
            if self._literal not in payload and b"\\u" not in payload:
                if self._decoder.values is None:
                    return
                only_with_schema = True
        append_time = bool(header.attributes & LOG_APPEND_TIME)
        place = TopicPartition(self._topic, partition)
        matches, text, masks = self._node.matches, self._text, self._decoder.masks.masks
        for record in iterate(data, at, end, MOST_DECOMPRESSED):
            if not low <= record.offset < high or (only_with_schema and not _has_schema(record)):
                continue
            if masks:
                # Whether a masked field matches would tell what is in it.
                record = self._decoder.masked(self._topic, record)
            if matches(SearchedRecord(record, partition, text)):
                yield shown_record(record, place, append_time, self._decoder, PREVIEW_CHARACTERS)

    def _text(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        if data.startswith(SCHEMA_MARK):
            decoded, _ = self._decoder.text(data)
            data = data if decoded is None else decoded
        return data.decode("utf-8", "replace")

    def _check(self) -> None:
        now = time.monotonic()
        if now - self._told > PROGRESS_S:
            self._told = now
            self._tell()
        if now > self._deadline:
            raise SearchStopped("the time limit was reached")

    def _tell(self, done: str = "") -> None:
        """Progress; numbers above 2^53 cannot be exact in a browser, so all are texts."""
        line: dict[str, object] = {
            "scanned": str(min(self._scanned, self._total)),
            "total": str(self._total),
            "matched": self._matched,
            "bytes": str(self._bytes),
            "left": {str(p): [str(start), str(stop)] for p, (start, stop) in self._left.items()},
        }
        if done:
            line["done"] = done
        print(json.dumps({"progress": line}), flush=True)


def _has_schema(record: Record) -> bool:
    """Whether a part is decoded with a schema: names of fields and enumerations are not in it."""
    values = (record.key, record.value, *(value for _, value in record.headers))
    return any(each is not None and each.startswith(SCHEMA_MARK) for each in values)


def condition(job: dict[str, Any]) -> Condition:
    """What a job looks for; raises BadExpression."""
    text: str = job["text"]
    if job["kind"] == "expression":
        return parse_expression(text)
    if not text:
        raise BadExpression("a text to search for is missing")
    return Anywhere(text, bool(job["ignore_case"]))


def _prefilter(node: Condition) -> bytes | None:
    """Bytes that every batch with a match contains. Characters that JSON may write in two ways
    (quotes, backslashes, slashes, control characters, all beyond ASCII) cannot be looked for."""
    literal = node.literal()
    if literal is None or not literal.isascii() or not literal.isprintable():
        return None
    return None if set(literal) & set('"\\/') else literal.encode()


def main() -> None:
    os.nice(5)
    TopicSearch(json.load(sys.stdin)).run()


if __name__ == "__main__":
    main()
