"""The HTTP source: polls an address whose responses are JSON."""

import json
import logging
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from headrace.connect.connectors.http.answers import AnswerFolder
from headrace.connect.connectors.http.exchange import (
    CONNECTION,
    IGNORED,
    HttpExchange,
    HttpRequest,
    HttpResponse,
    check_url,
    header_lines,
    one_of,
    origin,
)
from headrace.connect.connectors.http.positions import (
    ETAG,
    MODES,
    MODIFIED,
    OFFSET,
    MissingValue,
    ReadStep,
    ResponsePage,
    pointed,
    step,
)
from headrace.connect.connectors.json_lines import json_batches
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    Password,
    PermanentError,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

ENTITY = "entityName"
LONGEST_PAUSE_S = 3600.0
VALUE = "value"
"""The column of rows without a schema."""
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
_VARIABLE = re.compile(r"\$\{([^}]*)\}")

log = logging.getLogger(__name__)


class HttpSource(Source):
    """Polls an address and reads the rows of its JSON responses, at least once.

    A response cannot be requested again with the same result. It is stored on the worker's disk
    before its rows are read, and from there each row is in the topic once.
    """

    once = False
    on_driver = True
    aliases = ("io.confluent.connect.http.HttpSourceConnector",)
    ignored = (*IGNORED, "max.retries", "retry.backoff.ms", "retry.on.status.codes")
    options = (
        Option(
            "url",
            str,
            REQUIRED,
            "The address; it may contain ${offset} and ${entityName}.",
            importance="high",
        ),
        Option(
            "topic.name.pattern",
            str,
            REQUIRED,
            "The topic; it may contain ${entityName}.",
            importance="high",
        ),
        Option("entity.names", list[str], [], "What ${entityName} stands for; each is polled."),
        Option("request.interval.ms", int, 15_000, "The time between two requests of an entity."),
        Option("http.request.method", str, "GET", "GET or POST.", importance="high"),
        Option("http.request.headers", str, "", "Headers, such as `Accept: text/json`."),
        Option("http.request.sensitive.headers", Password, "", "Headers that are never shown."),
        Option("http.request.headers.separator", str, "|", "What stands between two headers."),
        Option("http.request.parameters", str, "", "Parameters of the query, as name=value."),
        Option("http.request.parameters.separator", str, "&", "What stands between two of them."),
        Option("http.request.body", str, "", "The body of a POST; it may contain ${offset}."),
        Option(
            "http.offset.mode",
            str,
            "SIMPLE_INCREMENTING",
            f"How the next request is made: {', '.join(MODES)}.",
            importance="high",
        ),
        Option("http.initial.offset", str, "", "${offset} in the first request."),
        Option("http.offset.json.pointer", str, "", "Where a row has its offset."),
        Option(
            "http.next.page.json.pointer",
            str,
            "",
            "Where a response has its next page; by default in the header Link.",
        ),
        Option("http.response.data.json.pointer", str, "", "Where a response has its rows."),
        Option("http.response.format", str, "json", "json, or jsonl for lines.", ("json", "jsonl")),
        Option(
            "schema",
            str,
            "",
            "The columns as DDL; without it the value is the JSON text of a row.",
            importance="high",
        ),
        Option("key", list[str], [], "The columns that are the record's key."),
        *CONNECTION,
    )

    url: str
    topic_name_pattern: str
    entity_names: Sequence[str]
    request_interval_ms: int
    http_request_method: str
    http_request_headers: str
    http_request_sensitive_headers: str
    http_request_headers_separator: str
    http_request_parameters: str
    http_request_parameters_separator: str
    http_request_body: str
    http_offset_mode: str
    http_initial_offset: str
    http_offset_json_pointer: str
    http_next_page_json_pointer: str
    http_response_data_json_pointer: str
    http_response_format: str
    key: Sequence[str]

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._method = one_of("http.request.method", self.http_request_method, "GET", "POST")
        self._mode = one_of("http.offset.mode", self.http_offset_mode, *MODES)
        separator = self.http_request_headers_separator
        hidden = header_lines(
            "http.request.sensitive.headers", self.http_request_sensitive_headers, separator
        )
        shown = header_lines("http.request.headers", self.http_request_headers, separator)
        self._headers = {"accept": "application/json", **shown, **hidden}
        self._exchange = HttpExchange(config)
        self._exchange.hide(hidden.values())
        self._check_templates()
        self._check_mode()
        if self.key and not self.schema:
            raise OptionError("key", "A key needs columns: set schema.")
        if not self.schema and config.get("value.converter") == JSON_CONVERTER:
            raise OptionError(
                "schema",
                "Set schema to the columns, such as `id bigint, name string`. Without it the value "
                "is the JSON text of a row, which StringConverter writes as it is.",
            )
        self._due: dict[str, float] = {}
        self._own_folder: tempfile.TemporaryDirectory[str] | None = None

    def check(self) -> None:
        from headrace.connect.connectors.ddl import DdlError

        try:
            names = self._arrow_schema().names
        except DdlError as error:
            raise OptionError("schema", str(error)) from None
        if missing := set(self.key) - set(names):
            raise OptionError("key", f"The schema has no column {', '.join(sorted(missing))}.")
        try:
            if self._method != "GET":
                self._exchange.check_reachable(self.url)
                return
            for stream in self.streams():
                for partition in stream.partitions:
                    self._requested(partition, None)
        except (PermanentError, ConnectionError) as error:
            raise OptionError("url", str(error)) from None
        finally:
            self._exchange.close()

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl

        by_topic: dict[str, list[SourcePartition]] = {}
        for name in self.entity_names or [""]:
            topic = self.topic_name_pattern.replace(f"${{{ENTITY}}}", name)
            by_topic.setdefault(topic, []).append({ENTITY: name})
        schema, scalar = ddl(self._arrow_schema()), "" if self.schema else VALUE
        return [
            SourceStream(topic, schema, partitions, self.key, scalar)
            for topic, partitions in by_topic.items()
        ]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        answers = self._answers(partition)
        if stored := answers.stored(start):
            # Received before a restart.
            return stored.end
        now, name = time.monotonic(), str(partition[ENTITY])
        if now < self._due.get(name, float("-inf")):
            return start
        self._due[name] = now + self.request_interval_ms / 1000
        found = self._requested(partition, start)
        if found is None or found.end is None:
            return start
        return answers.store(start, found.end, [_json(row) for row in found.rows])

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        stored = self._answers(partition).stored(start)
        if stored is not None:
            rows = stored.rows
        else:
            log.warning("a stored response of %s is missing; requesting again", origin(self.url))
            found = self._requested(partition, start)
            rows = b"\n".join(map(_json, found.rows if found is not None else ()))
            self._exchange.close()
        if not self.schema:
            yield _texts(rows)
            return
        try:
            yield from json_batches(rows, self._arrow_schema())
        except (ValueError, TypeError) as error:  # Arrow's errors are of these kinds
            raise PermanentError(
                f"{origin(self.url)} does not have the columns of the option schema: {error}"
            ) from error

    def commit(self, partition: SourcePartition, end: SourceOffset) -> None:
        self._answers(partition).remove(end)

    # ------------------------------------------------------------------------------ requests

    def _requested(self, partition: SourcePartition, start: SourceOffset | None) -> ReadStep | None:
        """The rows after an offset; None if there are none now."""
        answer = self._exchange.send(self._request(partition, start))
        if answer.status == 304:
            return None
        if not answer.is_success:
            pause_s = answer.retry_after_s() if answer.status in (429, 503) else None
            if pause_s is None:
                self._exchange.refuse(answer)
            self._pause(partition, min(pause_s, LONGEST_PAUSE_S))
            return None
        pointer = self.http_offset_json_pointer
        return step(self._mode, self._page(answer), start, self.http_initial_offset, pointer)

    def _pause(self, partition: SourcePartition, pause_s: float) -> None:
        log.warning("%s asks for a pause of %.0f s", origin(self.url), pause_s)
        name = str(partition[ENTITY])
        self._due[name] = max(self._due.get(name, 0.0), time.monotonic() + pause_s)

    def _request(self, partition: SourcePartition, start: SourceOffset | None) -> HttpRequest:
        headers = dict(self._headers)
        offset = str(start[OFFSET]) if start and start.get(OFFSET) is not None else None
        if self._mode == "NONE" and start is not None and self._method == "GET":
            if start.get(ETAG):
                headers["if-none-match"] = str(start[ETAG])
            if start.get(MODIFIED):
                headers["if-modified-since"] = str(start[MODIFIED])
        variables = {
            ENTITY: str(partition[ENTITY]),
            OFFSET: self.http_initial_offset if offset is None else offset,
        }
        url = _filled(self.url, variables, lambda text: quote(text, safe=""))
        if query := self._query(variables):
            url += ("&" if "?" in url else "?") + query
        body = None
        if self._method == "POST":
            body = _filled(self.http_request_body, variables, self._in_body).encode()
            headers.setdefault("content-type", "application/json")
        if self._pages_are_addresses and offset is not None:
            url = self._next_address(url, offset)
        return HttpRequest(self._method, url, body, headers)

    def _query(self, variables: Mapping[str, str]) -> str:
        found = []
        for each in self.http_request_parameters.split(self.http_request_parameters_separator):
            name, _, value = each.partition("=")
            filled = _filled(value, variables, str)
            # Servers refuse an empty page token.
            if name.strip() and (filled or f"${{{OFFSET}}}" not in value):
                found.append((name.strip(), filled))
        return urlencode(found)

    def _in_body(self, text: str) -> str:
        is_json = self.http_request_body.lstrip().startswith(("{", "["))
        return json.dumps(text)[1:-1] if is_json else text

    @property
    def _pages_are_addresses(self) -> bool:
        """Whether a next page is an address, and not a token for `${offset}`."""
        templates = (self.url, self.http_request_parameters, self.http_request_body)
        return self._mode == "CURSOR_PAGINATION" and (
            not self.http_next_page_json_pointer
            or not any(f"${{{OFFSET}}}" in text for text in templates)
        )

    def _next_address(self, first: str, address: str) -> str:
        """Only of the same server: the request has credentials."""
        import httpx

        try:
            found = str(httpx.URL(first).join(address))
        except httpx.InvalidURL:
            found = ""
        if origin(found) != origin(first):
            raise PermanentError(f"the next page of {origin(first)} is on {origin(found)}")
        return found

    # ----------------------------------------------------------------------------- responses

    def _page(self, answer: HttpResponse) -> ResponsePage:
        try:
            if self.http_response_format == "jsonl":
                lines = answer.body.decode().splitlines()
                document: Any = [json.loads(line) for line in lines if line.strip()]
            else:
                document = json.loads(answer.body) if answer.body.strip() else None
        except ValueError as error:
            raise PermanentError(f"the response of {answer.origin} is not JSON: {error}") from None
        found = pointed(document, self.http_response_data_json_pointer)
        if found is None or isinstance(found, MissingValue):
            rows = []
        else:
            rows = found if isinstance(found, list) else [found]
        modified = answer.headers.get("last-modified")
        return ResponsePage(
            rows, self._next(document, answer), answer.headers.get("etag"), modified
        )

    def _next(self, document: Any, answer: HttpResponse) -> str | None:
        if self._mode != "CURSOR_PAGINATION":
            return None
        if not self.http_next_page_json_pointer:
            return _linked(answer)
        found = pointed(document, self.http_next_page_json_pointer)
        is_text = isinstance(found, (str, int)) and not isinstance(found, bool)
        return str(found) if is_text and found != "" else None

    # ---------------------------------------------------------------------------------------

    def _answers(self, partition: SourcePartition) -> AnswerFolder:
        if not self.folder and self._own_folder is None:
            self._own_folder = tempfile.TemporaryDirectory(prefix="headrace-http-")
        folder = self._own_folder.name if self._own_folder is not None else self.folder
        return AnswerFolder(Path(folder), partition)

    def _arrow_schema(self) -> "pa.Schema":
        from headrace.connect.connectors.ddl import arrow_schema

        return arrow_schema(self.schema or f"{VALUE} string")

    def _check_templates(self) -> None:
        known = {
            "url": (OFFSET, ENTITY),
            "http.request.parameters": (OFFSET, ENTITY),
            "http.request.body": (OFFSET, ENTITY),
            "topic.name.pattern": (ENTITY,),
        }
        for option, variables in known.items():
            text = getattr(self, option.replace(".", "_"))
            for found in _VARIABLE.findall(text):
                if found not in variables:
                    allowed = " and ".join(f"${{{each}}}" for each in variables)
                    raise OptionError(option, f"Unknown variable ${{{found}}}; use {allowed}.")
                if found == ENTITY and not self.entity_names:
                    raise OptionError("entity.names", f"{option} needs it for ${{{ENTITY}}}.")
        check_url("url", _VARIABLE.sub("x", self.url))
        if self.http_request_body and self._method != "POST":
            raise OptionError("http.request.body", "Only http.request.method=POST has a body.")
        if not self.http_request_parameters_separator:
            raise OptionError("http.request.parameters.separator", "It must not be empty.")

    def _check_mode(self) -> None:
        needs_pointer = self._mode in ("CHAINING", "INCREMENTING", "TIMESTAMP")
        if needs_pointer and not self.http_offset_json_pointer:
            raise OptionError("http.offset.json.pointer", f"{self._mode} needs it.")
        if self._mode == "SIMPLE_INCREMENTING" and self.http_initial_offset:
            try:
                int(self.http_initial_offset)
            except ValueError:
                message = f"{self._mode} needs a whole number."
                raise OptionError("http.initial.offset", message) from None
        for option in (
            "http.offset.json.pointer",
            "http.next.page.json.pointer",
            "http.response.data.json.pointer",
        ):
            text = getattr(self, option.replace(".", "_"))
            if text and not text.startswith("/"):
                raise OptionError(option, f"A JSON pointer begins with a slash: /{text}")


def _filled(template: str, variables: Mapping[str, str], encode: Any) -> str:
    return _VARIABLE.sub(lambda found: str(encode(variables[found[1]])), template)


def _linked(answer: HttpResponse) -> str | None:
    """The address with rel="next" in the header Link (RFC 8288)."""
    for address, words in re.findall(r"<([^>]*)>([^<]*)", answer.headers.get("link", "")):
        relation = re.search(r';\s*rel\s*=\s*"?([^";,]*)', words, re.IGNORECASE)
        if relation and "next" in relation[1].lower().split():
            return str(address)
    return None


def _json(row: Any) -> bytes:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(row, separators=(",", ":")).encode()


def _texts(lines: bytes) -> "pa.RecordBatch":
    import pyarrow as pa

    texts = lines.decode().split("\n") if lines else []
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], [VALUE])
