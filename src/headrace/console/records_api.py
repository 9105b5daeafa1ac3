"""Records of a topic: pages, single records, the live tail, and downloads."""

import asyncio
import json
from collections.abc import Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.offsets import list_offsets
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.console.records.expression import BadExpression
from headrace.console.records.reading import (
    LogBounds,
    PageBudget,
    PageRange,
    read_bounds,
    read_page,
    read_records,
)
from headrace.console.records.search import SearchJob
from headrace.console.records.search_worker import condition as search_condition
from headrace.console.records.shown import (
    PREVIEW_CHARACTERS,
    WHOLE_CHARACTERS,
    Decoder,
    shown_record,
)
from headrace.service.errors import HttpError
from headrace.service.responses import HttpContent, HttpStream
from headrace.types import TopicPartition
from headrace.wire.records import Record

DEFAULT_LIMIT = 50
MOST_RECORDS = 500
MOST_IN_FILE = 5000


async def list_records(request: ConsoleRequest) -> object:
    """A page of records: `from` is newest, oldest, offset:N or time:MS; `at` continues one."""
    start = request.text("from", "newest")
    limit = whole_number("limit", request.text("limit", str(DEFAULT_LIMIT)), 1, MOST_RECORDS)
    return await request.console.cluster.run(
        _page,
        request.path["topic"],
        _partitions(request.text("partitions")),
        start,
        _positions(request.text("at")),
        limit,
        request.console.decoder,
    )


async def download_list(request: ConsoleRequest) -> object:
    """A page of records as a file: a JSON object a line. Its parameters are those of a page.

    A file that is shorter than asked for ends with a line that tells why.
    """
    topic = request.path["topic"]
    limit = whole_number("limit", request.text("limit", str(MOST_IN_FILE)), 1, MOST_IN_FILE)
    page = await request.console.cluster.run(
        _page,
        topic,
        _partitions(request.text("partitions")),
        request.text("from", "newest"),
        _positions(request.text("at")),
        limit,
        request.console.decoder,
        WHOLE_CHARACTERS,
    )
    return HttpContent(
        await asyncio.to_thread(_json_lines, page),
        "application/x-ndjson",
        {
            "content-disposition": f'attachment; filename="{topic}.jsonl"',
            "cache-control": "no-store",
        },
    )


def _json_lines(page: Mapping[str, object]) -> bytes:
    rows = page["records"]
    assert isinstance(rows, list)
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if page["stopped"]:
        lines.append(json.dumps({"stopped": page["stopped"], "next": page["next"]}))
    return "".join(f"{line}\n" for line in lines).encode()


async def get_record(request: ConsoleRequest) -> object:
    """One record, with much longer texts than a list has."""
    record, append_time = await _record(request)
    place = _place(request)
    decoder = request.console.decoder
    return await request.console.cluster.run(
        lambda _: shown_record(record, place, append_time, decoder, WHOLE_CHARACTERS)
    )


async def download(request: ConsoleRequest) -> object:
    """The bytes of a record's key or value, as a file."""
    part = request.path["part"]
    if part not in ("key", "value"):
        raise HttpError(404, "A record has a key and a value")
    found, _ = await _record(request)
    decoder = request.console.decoder
    record = await request.console.cluster.run(
        lambda _: decoder.masked(request.path["topic"], found)
    )
    data = record.key if part == "key" else record.value
    if data is None:
        raise HttpError(404, f"The record has no {part}")
    # Names of topics have letters, digits, dots, dashes and underscores only.
    name = f"{request.path['topic']}-{request.path['partition']}-{record.offset}.{part}"
    return HttpContent(
        data,
        "application/octet-stream",
        {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"},
    )


async def follow(request: ConsoleRequest) -> object:
    """Server-sent events with new records. `at`, or the header Last-Event-ID, continues."""
    last = request.headers.get(b"last-event-id", b"").decode("latin-1")
    seen = _positions(last or request.text("at"))
    return HttpStream(request.console.tails.follow(request.path["topic"], seen))


async def search(request: ConsoleRequest) -> object:
    """Server-sent events with the records that match and the progress of the search.

    `left` continues a search: `partition:start:stop,...`, as its last progress has it.
    """
    kind = request.text("kind", "text")
    condition = {
        "kind": kind,
        "text": request.text("q"),
        "ignore_case": request.flag("ignore_case"),
    }
    try:
        search_condition(condition)
    except BadExpression as error:
        raise HttpError(400, f"The search cannot be understood: {error}") from None
    console = request.console
    console.searches.check()
    ranges = _ranges(request.text("left"))
    without_leader: tuple[int, ...] = ()
    if not ranges:
        ranges, without_leader = await console.cluster.run(
            _search_ranges,
            request.path["topic"],
            _partitions(request.text("partitions")),
            request.text("from"),
            request.text("to"),
        )
    job = SearchJob(
        topic=request.path["topic"],
        ranges=ranges,
        kind=kind,
        text=request.text("q"),
        ignore_case=request.flag("ignore_case"),
        newest_first=request.text("order", "newest") == "newest",
        properties=console.options.client_properties,
        registry=console.registry,
        masks=tuple(console.options.masks.texts()),
        without_leader=without_leader,
    )
    return HttpStream(console.searches.run(job))


def _search_ranges(
    cluster: Cluster, topic: str, wanted: Sequence[int] | None, since: str, until: str
) -> tuple[dict[int, tuple[int, int]], tuple[int, ...]]:
    """The offsets to search, by partition, and the partitions that cannot be searched.

    Times bound the offsets through the index of the brokers.
    """
    leaders = cluster.existing_topics([topic])[topic].leaders
    chosen = [
        index
        for index in (range(len(leaders)) if wanted is None else wanted)
        if index < len(leaders)
    ]
    partitions = [index for index in chosen if leaders[index] >= 0]
    bounds = read_bounds(cluster, topic, partitions)
    lows = {index: each.begin for index, each in bounds.items()}
    highs = {index: each.end for index, each in bounds.items()}
    if since:
        lows = _starts(cluster, topic, bounds, f"time:{since}")
    if until:
        highs = _starts(cluster, topic, bounds, f"time:{until}")
    ranges = {index: (lows[index], highs[index]) for index in bounds if lows[index] < highs[index]}
    return ranges, tuple(index for index in chosen if leaders[index] < 0)


def _ranges(text: str) -> dict[int, tuple[int, int]]:
    """Ranges of offsets by partition: `0:17:400,1:4:20`."""
    found: dict[int, tuple[int, int]] = {}
    for each in filter(None, text.split(",")):
        numbers = each.split(":")
        if len(numbers) != 3:
            raise HttpError(400, "left must have the form PARTITION:START:STOP,...")
        partition, start, stop = (whole_number("left", number) for number in numbers)
        found[partition] = (start, stop)
    return found


async def _record(request: ConsoleRequest) -> tuple[Record, bool]:
    offset = whole_number("offset", request.path["offset"])
    return await request.console.cluster.run(one_record, _place(request), offset)


def _place(request: ConsoleRequest) -> TopicPartition:
    partition = whole_number("partition", request.path["partition"], 0, 2**31 - 1)
    return TopicPartition(request.path["topic"], partition)


def one_record(cluster: Cluster, place: TopicPartition, offset: int) -> tuple[Record, bool]:
    """A record, and whether the broker has set its time; HttpError 404 if there is none."""
    bounds = read_bounds(cluster, place.topic, [place.partition])[place.partition]
    if not bounds.begin <= offset < bounds.end:
        raise HttpError(
            404,
            f"{place} has the offsets {bounds.begin} to {bounds.end - 1}; {offset} is gone"
            if offset < bounds.begin
            else f"{place} ends at offset {bounds.end - 1}; {offset} is not written yet",
        )
    for found in read_records(cluster, place, offset, offset + 1, PageBudget()):
        return found
    raise HttpError(
        404,
        f"{place} has no record at offset {offset}: it was compacted away, or is the marker of a "
        "transaction",
    )


def _page(
    cluster: Cluster,
    topic: str,
    wanted: Sequence[int] | None,
    start: str,
    at: Mapping[int, int],
    limit: int,
    decoder: Decoder,
    most: int = PREVIEW_CHARACTERS,
) -> Mapping[str, object]:
    leaders = cluster.existing_topics([topic])[topic].leaders
    partitions = [
        index
        for index in (range(len(leaders)) if wanted is None else wanted)
        if index < len(leaders) and leaders[index] >= 0
    ]
    bounds = read_bounds(cluster, topic, partitions)
    newest_first = start == "newest"
    starts = at or _starts(cluster, topic, bounds, start)
    ranges = [_range(index, each, starts, limit, newest_first) for index, each in bounds.items()]
    page = read_page(cluster, topic, ranges, limit, decoder, newest_first=newest_first, most=most)
    return {
        **page,
        "bounds": {
            str(index): {"begin": str(each.begin), "end": str(each.end)}
            for index, each in bounds.items()
        },
        "without_leader": [index for index, leader in enumerate(leaders) if leader < 0],
    }


def _range(
    partition: int, bounds: LogBounds, starts: Mapping[int, int], limit: int, newest_first: bool
) -> PageRange:
    at = starts.get(partition, bounds.end)
    if newest_first:
        stop = min(max(at, bounds.begin), bounds.end)
        return PageRange(partition, max(bounds.begin, stop - limit), stop)
    begin = min(max(at, bounds.begin), bounds.end)
    return PageRange(partition, begin, min(bounds.end, begin + limit))


def _starts(
    cluster: Cluster, topic: str, bounds: Mapping[int, LogBounds], start: str
) -> dict[int, int]:
    kind, _, text = start.partition(":")
    if kind == "newest":
        return {index: each.end for index, each in bounds.items()}
    if kind == "oldest":
        return {index: each.begin for index, each in bounds.items()}
    if kind == "offset":
        return dict.fromkeys(bounds, whole_number("offset", text))
    if kind == "time":
        moment = whole_number("time", text)
        places = {TopicPartition(topic, index): moment for index in bounds}
        found = list_offsets(cluster, places)
        return {
            each.partition: offset if offset >= 0 else bounds[each.partition].end
            for each, offset in found.items()
        }
    raise HttpError(400, "from must be newest, oldest, offset:N or time:MILLISECONDS")


def _partitions(text: str) -> list[int] | None:
    """Partitions of a request: `0,2,5`; empty for all."""
    if not text:
        return None
    return sorted({whole_number("partitions", each, 0, 2**31 - 1) for each in text.split(",")})


def _positions(text: str) -> dict[int, int]:
    """Offsets by partition: `0:17,1:4`."""
    found: dict[int, int] = {}
    for each in filter(None, text.split(",")):
        partition, _, offset = each.partition(":")
        found[whole_number("at", partition, 0, 2**31 - 1)] = whole_number("at", offset)
    return found
