"""The HTTP sink: sends records to an address, one by one or in batches."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.connect.connectors.http.exchange import (
    CONNECTION,
    IGNORED,
    HttpExchange,
    HttpRequest,
    HttpResponse,
    check_url,
    header_lines,
    one_of,
)
from headrace.connect.connectors.value_texts import (
    VARIABLE,
    as_bytes,
    as_json,
    check_variables,
    plain,
)
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    Password,
    PermanentError,
    RecordError,
    Sink,
    SinkTask,
)

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_PAUSE_S = 60.0
OF_ALL_RECORDS = (401, 403, 405, 406, 407, 415)
"""Statuses that are not about the record: every record would be refused."""
OF_THE_ADDRESS = (404, 410)
"""Statuses that are about the record only if the address depends on it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record as it is sent."""

    row: int
    """In the batch of the host."""
    identity: tuple[str, int, int]
    """Topic, partition and offset."""
    method: str
    url: str
    value: bytes | None
    """None for a deletion."""


class HttpSink(Sink):
    """Sends the values of records to an address, at least once."""

    aliases = ("io.confluent.connect.http.HttpSinkConnector",)
    ignored = (*IGNORED, "reporter.bootstrap.servers")
    options = (
        Option(
            "http.api.url",
            str,
            REQUIRED,
            "The address; it may contain ${topic} and ${key}.",
            importance="high",
        ),
        Option("request.method", str, "POST", "POST, PUT or PATCH.", importance="high"),
        Option("request.body.format", str, "string", "string or json.", ("string", "json")),
        Option("headers", str, "", "Headers, such as `Content-Type: text/plain`."),
        Option("sensitive.headers", Password, "", "Headers that are never shown."),
        Option("header.separator", str, "|", "What stands between two headers."),
        Option("batch.max.size", int, 1, "How many records a request has at most."),
        Option("batch.prefix", str, "", "What stands before the records of a request."),
        Option("batch.suffix", str, "", "What stands behind them."),
        Option("batch.separator", str, ",", "What stands between two records."),
        Option("batch.json.as.array", bool, False, "Whether a request has an array of JSON."),
        Option(
            "behavior.on.null.values",
            str,
            "ignore",
            "What a tombstone does.",
            ("ignore", "log", "delete", "fail"),
        ),
        Option("behavior.on.error", str, "fail", "Only fail; see errors.tolerance."),
        Option(
            "retry.on.status.codes",
            str,
            "408,425,429,500-",
            "For which statuses a request is sent again at once: numbers and ranges.",
        ),
        Option("max.retries", int, 3, "How often it is sent again before the connector restarts."),
        Option("retry.backoff.ms", int, 1000, "The first pause; it doubles."),
        *CONNECTION,
    )

    http_api_url: str
    request_method: str
    request_body_format: str
    headers: str
    sensitive_headers: str
    header_separator: str
    batch_max_size: int
    batch_prefix: str
    batch_suffix: str
    batch_separator: str
    batch_json_as_array: bool
    behavior_on_null_values: str
    behavior_on_error: str
    retry_on_status_codes: str
    max_retries: int
    retry_backoff_ms: int

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._method = one_of("request.method", self.request_method, "POST", "PUT", "PATCH")
        hidden = header_lines("sensitive.headers", self.sensitive_headers, self.header_separator)
        shown = header_lines("headers", self.headers, self.header_separator)
        is_json = self.request_body_format == "json"
        kind = "application/json" if is_json else "text/plain; charset=utf-8"
        self._headers = {"content-type": kind, **shown, **hidden}
        self._retried = _statuses(self.retry_on_status_codes)
        self._exchange = HttpExchange(config)
        self._exchange.hide(hidden.values())
        self._done: set[tuple[str, int, int]] = set()
        """Records of a batch with refused ones that were sent: the host writes them again."""
        check_variables("http.api.url", self.http_api_url)
        check_url("http.api.url", VARIABLE.sub("x", self.http_api_url))
        if self.batch_max_size < 1:
            raise OptionError("batch.max.size", "A request has at least one record.")
        if self.batch_json_as_array and not is_json:
            raise OptionError("batch.json.as.array", "It needs request.body.format=json.")
        if self.behavior_on_error.lower() != "fail":
            raise OptionError(
                "behavior.on.error",
                "Set errors.tolerance=all instead, which leaves out records that the server "
                "refuses, and errors.deadletterqueue.topic.name to keep them.",
            )

    def check(self) -> None:
        try:
            self._exchange.check_reachable(VARIABLE.sub("x", self.http_api_url))
        except (PermanentError, ConnectionError) as error:
            raise OptionError("http.api.url", str(error)) from None
        finally:
            self._exchange.close()

    def open(self, task: SinkTask) -> None:
        self._done = set()

    def close(self) -> None:
        self._exchange.close()

    def abandon(self) -> None:
        self._exchange.close()

    def write(self, batch: "pa.RecordBatch") -> None:
        refused: dict[int, str] = {}
        sent: set[tuple[str, int, int]] = set()
        records = [
            each for each in self._records(batch, refused) if each.identity not in self._done
        ]
        if refused and not self._tolerant:
            raise RecordError(refused)
        for request in self._requests(records):
            for row, why in self._send(request, sent):
                refused[row] = why
                if not self._tolerant:
                    raise RecordError(refused)
        self._done = sent if refused else set()
        if refused:
            raise RecordError(refused)

    @property
    def _tolerant(self) -> bool:
        """Otherwise the connector ends, and what follows a refused record is not sent."""
        return self.config.get("errors.tolerance", "none") == "all"

    # --------------------------------------------------------------------------------- records

    def _records(self, batch: "pa.RecordBatch", refused: dict[int, str]) -> list[OutgoingRecord]:
        """The records that are sent. Adds those that cannot be to `refused`."""
        found = []
        names = ("topic", "partition", "offset", "key", "value")
        rows = batch.select(list(names)).to_pylist(maps_as_pydicts="lossy")
        for number, row in enumerate(rows):
            identity = row["topic"], row["partition"], row["offset"]
            method = self._method
            if row["value"] is None:
                if self.behavior_on_null_values == "fail":
                    refused[number] = "a tombstone (behavior.on.null.values=fail)"
                    continue
                if self.behavior_on_null_values == "log":
                    log.warning("tombstone %s-%s at offset %s is not sent", *identity)
                if self.behavior_on_null_values != "delete":
                    continue
                method = "DELETE"
            if row["key"] is None and "${key}" in self.http_api_url:
                refused[number] = "it has no key for ${key} in http.api.url"
                continue
            value = None if row["value"] is None else self._encoded(row["value"])
            found.append(OutgoingRecord(number, identity, method, self._url(row), value))
        return found

    def _url(self, row: Mapping[str, Any]) -> str:
        values = {"topic": row["topic"], "key": plain(row["key"])}
        return VARIABLE.sub(lambda it: quote(str(values[it[1]]), safe=""), self.http_api_url)

    def _encoded(self, value: Any) -> bytes:
        if self.request_body_format == "json":
            return as_json(value).encode()
        return as_bytes(value)

    def _requests(self, records: Sequence[OutgoingRecord]) -> Iterator[list[OutgoingRecord]]:
        """Neighbours with the same address, up to the size of a batch."""
        for (method, _), run in groupby(records, key=lambda each: (each.method, each.url)):
            size = self.batch_max_size if method != "DELETE" else 1
            some = list(run)
            for first in range(0, len(some), size):
                yield some[first : first + size]

    # -------------------------------------------------------------------------------- requests

    def _send(
        self, records: list[OutgoingRecord], sent: set[tuple[str, int, int]]
    ) -> Iterator[tuple[int, str]]:
        """Send a request. The records that the server refuses are found by halves."""
        answer = self._answer(self._request(records))
        if answer.is_success or (answer.status in OF_THE_ADDRESS and records[0].value is None):
            # What is deleted may be gone already.
            sent |= {each.identity for each in records}
        elif not self._is_about_records(answer):
            self._exchange.refuse(answer)
        elif len(records) == 1:
            yield records[0].row, self._exchange.sentence(answer)
        else:
            half = len(records) // 2
            yield from self._send(records[:half], sent)
            yield from self._send(records[half:], sent)

    def _is_about_records(self, answer: HttpResponse) -> bool:
        if answer.passes or not 400 <= answer.status < 500 or answer.status in OF_ALL_RECORDS:
            return False
        return answer.status not in OF_THE_ADDRESS or "${" in self.http_api_url

    def _request(self, records: Sequence[OutgoingRecord]) -> HttpRequest:
        first = records[0]
        if first.value is None:
            return HttpRequest(first.method, first.url, None, self._headers)
        before, between, after = self.batch_prefix, self.batch_separator, self.batch_suffix
        if self.batch_json_as_array:
            before, between, after = "[", ",", "]"
        values = between.encode().join(each.value for each in records if each.value is not None)
        body = before.encode() + values + after.encode()
        return HttpRequest(first.method, first.url, body, self._headers)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        """The response; requests are sent again here for a while, because a restart of the
        connector repeats everything that this task has sent."""
        pause_s = self.retry_backoff_ms / 1000
        for left in range(self.max_retries, -1, -1):
            try:
                answer = self._exchange.send(request)
            except ConnectionError:
                if not left:
                    raise
                answer = None
            if answer is not None:
                if not left or answer.status not in self._retried:
                    return answer
                pause_s = answer.retry_after_s() or pause_s
            time.sleep(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2
        raise AssertionError("the last attempt returns or raises")


def _statuses(text: str) -> frozenset[int]:
    """Statuses of a list such as `429,500-599,600-`."""
    found: set[int] = set()
    for word in filter(None, map(str.strip, text.split(","))):
        first, dash, last = word.partition("-")
        try:
            begin = int(first)
            found |= set(range(begin, (int(last) if last else 599) + 1)) if dash else {begin}
        except ValueError:
            raise OptionError(
                "retry.on.status.codes", f"Expected statuses such as 429,500-599; found {word}."
            ) from None
    return frozenset(found)
