"""Decodes the messages of PostgreSQL's output plug-in pgoutput, in version 1 of its protocol.

All integers are big-endian, and a string ends with a zero byte:

    B  final LSN int64, commit time int64, transaction int32         begin
    C  flags int8, commit LSN int64, end LSN int64, time int64       commit
    R  relation int32, schema string, name string, identity int8,
       count int16, (flags int8, name string, type int32, modifier int32)*
    I  relation int32, "N" tuple                                     insert
    U  relation int32, ("K" tuple | "O" tuple)?, "N" tuple           update
    D  relation int32, "K" tuple | "O" tuple                         delete
    T, Y, O, M: truncate, type, origin and message; not used here

A tuple has a count int16 and its values: `n` for null, `u` for a long value that did not change, or
`t` with a length int32 and text. Times are microseconds since 2000.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

_BEGIN = struct.Struct(">xqqi")
_COMMIT = struct.Struct(">xbqqq")
_LENGTH = struct.Struct(">i")
_COUNT = struct.Struct(">h")
_RELATION = struct.Struct(">xi")
_YEAR_2000_MS = 946_684_800_000


class Unchanged:
    """A long value that an update did not change, so that the log does not have it."""


UNCHANGED: Final = Unchanged()
TextValue: TypeAlias = bytes | Unchanged | None
TextTuple: TypeAlias = Sequence[TextValue]


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """The transaction of a change."""

    end_lsn: int
    """The position behind its commit: a reader that was here has the whole transaction."""
    number: int
    time_ms: int


class RowChange(NamedTuple):
    """A change of one row, with values as text in UTF-8. Made for every row, so it is a tuple."""

    op: str
    """Debezium's letter: c, u or d."""
    before: TextTuple | None
    after: TextTuple | None
    names: Sequence[str]
    """The columns that the table had."""
    has_key_only: bool
    """`before` has the columns of the key, and null for all others."""
    lsn: int
    transaction: CommittedTransaction


def changes_of(
    messages: Iterable[tuple[int, bytes]], schema: str, table: str, after_lsn: int
) -> Iterator[RowChange]:
    """The changes of a table in transactions that end after this position."""
    names: dict[int, Sequence[str]] = {}
    pending: list[tuple[int, Sequence[str], bytes]] = []
    begin = (0, 0, 0)
    for lsn, message in messages:
        kind = message[0]
        if kind == 73 or kind == 85 or kind == 68:  # I, U, D
            (relation,) = _RELATION.unpack_from(message)
            if relation in names:
                pending.append((lsn, names[relation], message))
        elif kind == 66:  # B
            begin = _BEGIN.unpack_from(message)
            pending = []
        elif kind == 67:  # C
            end_lsn = _COMMIT.unpack_from(message)[2]
            if end_lsn > after_lsn:
                done = CommittedTransaction(end_lsn, begin[2], begin[1] // 1000 + _YEAR_2000_MS)
                for place, columns, change in pending:
                    yield _change(change, columns, place, done)
            pending = []
        elif kind == 82:  # R
            relation, found, columns = _relation(message)
            if found == (schema, table):
                names[relation] = columns


def end_of(message: bytes) -> int:
    """The position behind a transaction, of its commit."""
    assert message[0] == 67, "transactions are decoded whole, so the last message is a commit"
    found: int = _COMMIT.unpack_from(message)[2]
    return found


def _relation(message: bytes) -> tuple[int, tuple[str, str], Sequence[str]]:
    (number,) = _RELATION.unpack_from(message)
    schema, place = _string(message, 5)
    name, place = _string(message, place)
    (count,) = _COUNT.unpack_from(message, place + 1)
    place += 3
    columns = []
    for _ in range(count):
        column, place = _string(message, place + 1)
        columns.append(column)
        place += 8
    return number, (schema, name), columns


def _string(message: bytes, place: int) -> tuple[str, int]:
    end = message.index(0, place)
    return message[place:end].decode(), end + 1


def _change(
    message: bytes, names: Sequence[str], lsn: int, done: CommittedTransaction
) -> RowChange:
    kind, place = message[0], 5
    before = after = None
    has_key_only = False
    if message[place] != 78:  # K or O
        has_key_only = message[place] == 75
        before, place = _tuple(message, place + 1)
    if kind != 68:
        after, _ = _tuple(message, place + 1)
    op = {73: "c", 85: "u", 68: "d"}[kind]
    return RowChange(op, before, after, names, has_key_only, lsn, done)


def _tuple(message: bytes, place: int) -> tuple[TextTuple, int]:
    (count,) = _COUNT.unpack_from(message, place)
    place += 2
    values: list[TextValue] = []
    for _ in range(count):
        kind = message[place]
        if kind == 116:  # t
            (length,) = _LENGTH.unpack_from(message, place + 1)
            place += 5 + length
            values.append(message[place - length : place])
        else:
            values.append(None if kind == 110 else UNCHANGED)
            place += 1
    return values, place
