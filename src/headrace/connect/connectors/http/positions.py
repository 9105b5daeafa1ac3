"""Where the HTTP source continues: the offset modes, without requests.

An offset has the field `offset`, which replaces `${offset}` in the next request, or is the
address of the next page.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connect.plugin import PermanentError, SourceOffset

MODES = (
    "NONE",
    "SIMPLE_INCREMENTING",
    "CHAINING",
    "CURSOR_PAGINATION",
    "INCREMENTING",
    "TIMESTAMP",
)
OFFSET, ROWS, SEEN, ETAG, MODIFIED = "offset", "rows", "seen", "etag", "last_modified"


@dataclass(frozen=True, slots=True)
class ResponsePage:
    """A response that has been parsed."""

    rows: Sequence[Any]
    next: str | None = None
    """The token or address of the next page."""
    etag: str | None = None
    modified: str | None = None


@dataclass(frozen=True, slots=True)
class ReadStep:
    """The rows of a page that are new, and the offset after them; no offset: it stays."""

    rows: Sequence[Any]
    end: SourceOffset | None


class MissingValue:
    """A JSON pointer points to nothing."""


MISSING = MissingValue()


def pointed(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) points to, or MISSING."""
    found = document
    for word in pointer.split("/")[1:] if pointer not in ("", "/") else ():
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and word in found:
            found = found[word]
        elif isinstance(found, list) and word.isdecimal() and int(word) < len(found):
            found = found[int(word)]
        else:
            return MISSING
    return found


def step(
    mode: str, page: ResponsePage, start: SourceOffset | None, initial: str, pointer: str
) -> ReadStep:
    """What a page means for the offset. `pointer` finds the offset in a row."""
    if mode == "NONE":
        is_known = bool(page.rows or page.etag or page.modified)
        return ReadStep(page.rows, {ETAG: page.etag, MODIFIED: page.modified} if is_known else None)
    if mode == "CURSOR_PAGINATION":
        return _cursor(page, start, initial)
    if not page.rows:
        return ReadStep((), None)
    if mode == "SIMPLE_INCREMENTING":
        before = int(str(start[OFFSET]) if start and OFFSET in start else initial or "0")
        return ReadStep(page.rows, {OFFSET: before + len(page.rows)})
    if mode == "CHAINING":
        reached = _field(page.rows[-1], pointer)
        is_new = start is None or reached != start.get(OFFSET)
        return ReadStep(page.rows, {OFFSET: reached}) if is_new else ReadStep((), None)
    return _growing(mode, page, start, pointer)


def _cursor(page: ResponsePage, start: SourceOffset | None, initial: str) -> ReadStep:
    """The last page is requested again until it has more rows or a successor."""
    current = str(start[OFFSET]) if start and start.get(OFFSET) is not None else initial
    done = int(str((start or {}).get(ROWS) or 0))
    rows = page.rows[done:]
    if page.next is not None and page.next != current:
        return ReadStep(rows, {OFFSET: page.next, ROWS: 0})
    return ReadStep(rows, {OFFSET: current, ROWS: len(page.rows)} if rows else None)


def _growing(mode: str, page: ResponsePage, start: SourceOffset | None, pointer: str) -> ReadStep:
    """Rows whose field is greater than before, in whatever order a page has them.

    Several rows may have the same time, and may appear one after the other: the offset has
    digests of those that have been read.
    """
    comparable = _number if mode == "INCREMENTING" else _instant
    last = comparable(start[OFFSET]) if start and OFFSET in start else None
    seen = str((start or {}).get(SEEN) or "").split()
    rows, greatest, value = [], last, (start or {}).get(OFFSET)
    for row in page.rows:
        found = _field(row, pointer)
        at = comparable(found)
        is_old = last is not None and (
            at < last or (at == last and (mode == "INCREMENTING" or _digest(row) in seen))
        )
        if is_old:
            continue
        rows.append(row)
        if greatest is None or at > greatest:
            greatest, value = at, found
    if not rows:
        return ReadStep((), None)
    end: dict[str, Any] = {OFFSET: value}
    if mode == "TIMESTAMP":
        at_end = [_digest(row) for row in rows if comparable(_field(row, pointer)) == greatest]
        end[SEEN] = " ".join((seen if greatest == last else []) + at_end)
    return ReadStep(rows, end)


def _field(row: Any, pointer: str) -> Any:
    found = pointed(row, pointer)
    if found is None or isinstance(found, (MissingValue, dict, list)):
        raise PermanentError(
            f"a row of the response has no value at {pointer or '/'} (http.offset.json.pointer)"
        )
    return found


def _number(value: Any) -> float:
    try:
        return int(value) if not isinstance(value, float) else value
    except (ValueError, TypeError):
        raise PermanentError(
            f"{value!r} at http.offset.json.pointer is not a whole number; "
            "use http.offset.mode=TIMESTAMP or CHAINING"
        ) from None


def _instant(value: Any) -> float:
    """Seconds; numbers are compared as they are."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    try:
        found = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        raise PermanentError(
            f"{value!r} at http.offset.json.pointer is not a time as in 2026-01-02T03:04:05Z; "
            "use http.offset.mode=CHAINING"
        ) from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
    # Exact, where a float of seconds is not.
    return (at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(
        microseconds=1
    )


def _digest(row: Any) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]
