"""Dead letters: topics that hold them, their causes, a dry run, and sending them back."""

from collections import Counter
from dataclasses import replace

from headrace.admin.dead_letters import (
    DeadLetter,
    Resend,
    StoredLetter,
    group_of,
    is_dead_letter_name,
    plan_resend,
    read_dead_letter,
)
from headrace.admin.record_text import NewRecord
from headrace.client.cluster import Cluster
from headrace.client.groups import committed_by_group
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, available_offsets
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.console.dead_letters.jobs import LetterSender, ResendJob
from headrace.console.dead_letters.progress import (
    LetterProgress,
    group_name,
    read_progress,
    write_progress,
)
from headrace.console.dead_letters.scan import (
    Cause,
    DryRun,
    LetterScan,
    ResendOrder,
    dry_run,
    find_causes,
    partition_counts,
    stored,
)
from headrace.console.masks import MASKED_BYTES
from headrace.console.records.reading import PageBudget, read_bounds, read_records
from headrace.console.records.shown import PREVIEW_CHARACTERS, Decoder, shown
from headrace.service.errors import HttpError
from headrace.types import TopicPartition
from headrace.wire.records import Record

MOST_TOPICS = 500
MOST_EDITED_BYTES = 500_000
MOST_SHOWN = 20
MOST_RATE = 10_000


async def list_topics(request: ConsoleRequest) -> object:
    """Topics whose names look like those of dead-letter topics."""
    rows = await request.console.cluster.run(_topics)
    jobs = request.console.resends.by_topic
    return {"topics": [{**row, "job": _job(jobs.get(str(row["name"])))} for row in rows]}


async def get_causes(request: ConsoleRequest) -> object:
    """The letters of a topic by cause. `all` also looks at those that were sent before."""
    topic = request.path["topic"]
    decoder = request.console.decoder
    causes, scan = await request.console.cluster.run(
        find_causes, topic, from_beginning=request.flag("all")
    )
    return {
        "group": group_name(topic),
        "causes": [_cause(each, decoder) for each in causes],
        **_scan(scan),
    }


async def get_job(request: ConsoleRequest) -> object:
    """The last run of sending letters of the topic back; null if there was none."""
    return {"job": _job(request.console.resends.by_topic.get(request.path["topic"]))}


async def plan(request: ConsoleRequest) -> object:
    """What an order would send where. It sends nothing."""
    found = await request.console.cluster.run(dry_run, _order(request))
    return _dry_run(found, request.console.decoder)


async def send(request: ConsoleRequest) -> object:
    """Starts to send letters back, in the background."""
    return {"job": _job(request.console.resends.start(_order(request)))}


async def stop(request: ConsoleRequest) -> object:
    """Stops sending. A later run continues."""
    job = request.console.resends.by_topic.get(request.path["topic"])
    if job is None:
        raise HttpError(404, f"No letters of {request.path['topic']} are being sent back")
    await job.stop()
    return {"job": _job(job)}


async def get_letter(request: ConsoleRequest) -> object:
    """One letter with the record as it would be sent back."""
    place, offset = _place(request)
    letter, done = await request.console.cluster.run(_letter, place, offset)
    found = read_dead_letter(letter.headers, letter.value)
    counts = await request.console.cluster.run(partition_counts)
    planned = plan_resend([letter], counts, target=request.text("target") or None)
    decoder = request.console.decoder
    return {
        **_letter_row(letter, decoder),
        "done": done,
        "stage": found and found.stage,
        "refused": planned.refused[0].reason if planned.refused else None,
        "resend": _editable(planned.resends[0], decoder) if planned.resends else None,
        "headers": [
            {"name": name, "value": shown(value, decoder, PREVIEW_CHARACTERS)}
            for name, value in _visible(letter, decoder).headers[:100]
        ],
    }


async def send_letter(request: ConsoleRequest) -> object:
    """Sends one letter back now; `key` and `value` replace those of the record if given."""
    place, offset = _place(request)
    request.console.resends.check_free(place.topic)
    body = request.fields()
    target = body.get("target")
    edits = {name: _edited(name, body[name]) for name in ("key", "value") if name in body}
    sent = await request.console.cluster.run(
        _send_letter, place, offset, str(target) if target else None, edits
    )
    return {"topic": sent.topic, "partition": sent.record.partition}


# ------------------------------------------------------------------------------ requests


def _order(request: ConsoleRequest) -> ResendOrder:
    body = request.fields()
    target, cause = body.get("target"), body.get("cause")
    return ResendOrder(
        request.path["topic"],
        str(target) if target else None,
        str(cause) if cause else "",
        bool(body.get("from_beginning")),
        whole_number("rate", body.get("rate", 100), 1, MOST_RATE),
    )


def _place(request: ConsoleRequest) -> tuple[TopicPartition, int]:
    partition = whole_number("partition", request.path["partition"], 0, 2**31 - 1)
    offset = whole_number("offset", request.path["offset"])
    return TopicPartition(request.path["topic"], partition), offset


def _edited(name: str, field: object) -> bytes | None:
    """The bytes of a key or value that was edited as text or as hexadecimal digits."""
    if field is None:
        return None
    if not isinstance(field, dict) or not isinstance(field.get("text"), str):
        raise HttpError(400, f"The field {name} must be null or have a text")
    try:
        if field.get("format") == "hex":
            return bytes.fromhex(field["text"])
        return str(field["text"]).encode()
    except ValueError as error:
        raise HttpError(400, f"The {name} is not valid: {error}") from None


# ------------------------------------------------------------------------- work in threads


def _topics(cluster: Cluster) -> list[dict[str, object]]:
    counts = partition_counts(cluster)
    names = sorted(each for each in counts if is_dead_letter_name(each))[:MOST_TOPICS]
    places = [TopicPartition(name, index) for name in names for index in range(counts[name])]
    begins = available_offsets(cluster, dict.fromkeys(places, EARLIEST))
    ends = available_offsets(cluster, dict.fromkeys(places, LATEST))
    committed, refused = committed_by_group(cluster, map(group_name, names))
    rows: list[dict[str, object]] = []
    for name in names:
        known = committed.get(group_name(name), {})
        own = [at for at in places if at.topic == name and at in begins and at in ends]
        left = 0
        for at in own:
            position = known[at].offset if at in known else begins[at].offset
            left += max(0, ends[at].offset - max(position, begins[at].offset))
        total = sum(ends[at].offset - begins[at].offset for at in own)
        complete = len(own) == counts[name]
        rows.append(
            {
                "name": name,
                "letters": str(total) if complete else None,
                "left": str(left) if complete and group_name(name) not in refused else None,
            }
        )
    return rows


def _letter(cluster: Cluster, place: TopicPartition, offset: int) -> tuple[StoredLetter, bool]:
    """A letter, and whether it was sent or passed over before."""
    bounds = read_bounds(cluster, place.topic, [place.partition], COMMITTED)[place.partition]
    progress = read_progress(cluster, place.topic, [place.partition]).get(place.partition)
    if bounds.begin <= offset < bounds.end:
        for record, _ in read_records(cluster, place, offset, offset + 1, PageBudget(), COMMITTED):
            letter = stored(place.topic, place.partition, record)
            return letter, progress is not None and progress.done(offset)
    raise HttpError(404, f"{place} has no record at offset {offset}")


def _send_letter(
    cluster: Cluster,
    place: TopicPartition,
    offset: int,
    target: str | None,
    edits: dict[str, bytes | None],
) -> Resend:
    bounds = read_bounds(cluster, place.topic, [place.partition], COMMITTED)[place.partition]
    known = read_progress(cluster, place.topic, [place.partition]).get(place.partition)
    progress = known or LetterProgress(bounds.begin)
    if progress.full and not progress.done(offset):
        raise HttpError(
            422,
            "Too many letters were sent one by one to remember another; send the letters before "
            f"offset {min(progress.sent)} of {place} first",
        )
    letter, _ = _letter(cluster, place, offset)
    counts = partition_counts(cluster)
    planned = plan_resend([letter], counts, target=target)
    for refused in planned.refused:
        raise HttpError(422, f"The letter cannot be sent back: {refused.reason}")
    (resend,) = planned.resends
    record: NewRecord = replace(
        resend.record,
        key=edits.get("key", resend.record.key),
        value=edits.get("value", resend.record.value),
    )
    resend = replace(resend, record=record)
    LetterSender().send(cluster, [resend], counts)
    if not progress.done(offset):
        write_progress(cluster, place.topic, place.partition, progress.with_sent(offset))
    return resend


# ------------------------------------------------------------------------------ responses


def _scan(scan: LetterScan) -> dict[str, object]:
    return {"scanned": str(scan.scanned), "total": str(scan.total), "stopped": scan.stopped}


def _visible(letter: StoredLetter, decoder: Decoder) -> StoredLetter:
    """The letter without the fields that are masked in its topic or in that of its origin."""
    found = read_dead_letter(letter.headers, letter.value)
    record = Record(letter.offset, -1, letter.key, letter.value, letter.headers)
    record = decoder.masked(letter.topic, record)
    if found is not None and found.topic is not None:
        record = decoder.masked(found.topic, record)
        if found.raw is not None and decoder.masks.of(found.topic) is not None:
            # The record as it was is inside of the value, encoded.
            record = record._replace(value=MASKED_BYTES)
    return replace(letter, key=record.key, value=record.value, headers=record.headers)


def _cause(cause: Cause, decoder: Decoder) -> dict[str, object]:
    newest = _visible(cause.samples[-1], decoder)
    group = group_of(read_dead_letter(newest.headers, newest.value))
    return {
        "id": cause.id,
        "kind": group.kind,
        "topic": group.topic,
        "error": group.error,
        "message": group.message,
        "count": str(cause.count),
        "newest": str(cause.newest_ms),
        "samples": [_letter_row(each, decoder) for each in reversed(cause.samples)],
    }


def _letter_row(letter: StoredLetter, decoder: Decoder) -> dict[str, object]:
    letter = _visible(letter, decoder)
    found: DeadLetter | None = read_dead_letter(letter.headers, letter.value)
    return {
        "partition": letter.partition,
        "offset": str(letter.offset),
        "key": shown(letter.key, decoder, 200),
        "value": shown(letter.value, decoder, 300),
        "kind": found and found.kind,
        "origin": found and found.topic,
        "error": found and found.error,
        "message": found and found.message and found.message[:PREVIEW_CHARACTERS],
        "resends": found.resends if found else 0,
    }


def _editable(resend: Resend, decoder: Decoder) -> dict[str, object]:
    record = Record(0, -1, resend.record.key, resend.record.value)
    found = read_dead_letter(resend.letter.headers, resend.letter.value)
    visible = decoder.masked(resend.topic, decoder.masked(resend.letter.topic, record))
    if found is not None and found.topic is not None:
        visible = decoder.masked(found.topic, visible)
    return {
        "topic": resend.topic,
        "partition": resend.record.partition,
        "key": _text_field(record.key, masked=visible.key != record.key),
        "value": _text_field(record.value, masked=visible.value != record.value),
    }


def _text_field(data: bytes | None, *, masked: bool) -> object:
    """A key or value that can be edited: as text, as hexadecimal digits, or not at all."""
    if data is None:
        return None
    if masked:
        return {"format": "masked", "text": "", "bytes": len(data)}
    if len(data) > MOST_EDITED_BYTES:
        return {"format": "large", "text": "", "bytes": len(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"format": "hex", "text": data.hex(), "bytes": len(data)}
    return {"format": "text", "text": text, "bytes": len(data)}


def _dry_run(found: DryRun, decoder: Decoder) -> dict[str, object]:
    by_topic = Counter(each.topic for each in found.plan.resends)
    by_reason = Counter(each.reason for each in found.plan.refused)
    return {
        "send": str(len(found.plan.resends)),
        "passed_over": str(found.passed_over),
        "topics": [
            {"topic": name, "count": str(n)} for name, n in by_topic.most_common(MOST_SHOWN)
        ],
        "refused": [
            {"reason": reason, "count": str(n)} for reason, n in by_reason.most_common(MOST_SHOWN)
        ],
        "first": [
            {**_letter_row(each.letter, decoder), "to": each.topic}
            for each in found.plan.resends[:MOST_SHOWN]
        ],
        **_scan(found.scan),
    }


def _job(job: ResendJob | None) -> dict[str, object] | None:
    if job is None:
        return None
    return {
        "state": job.state,
        "started": str(job.started_ms),
        "total": str(job.total),
        "done": str(job.done),
        "sent": str(job.sent),
        "passed_over": str(job.passed_over),
        "refused": [{"reason": reason, "count": str(n)} for reason, n in job.refused.most_common()],
        "problem": job.problem,
        "rate": job.order.rate_per_s,
        "target": job.order.target,
    }
