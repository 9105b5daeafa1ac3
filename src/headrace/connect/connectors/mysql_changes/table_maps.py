"""Decodes table map events, which come before the events of rows and describe their columns.

    table id 6 bytes, flags 2 bytes, database and table: length uint8, name, zero byte
    count of columns; a type uint8 for each; length and bytes of their metadata; bits of NULL
    optional metadata: (kind uint8, length, bytes)*

Counts and lengths are integers with their length. The optional metadata have the names of columns
with binlog_row_metadata=FULL; without it the columns must be those that the table has now.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.connect.connectors.mysql_changes.columns import (
    ENUM,
    GEOMETRY,
    NUMBERS,
    SET,
    TEXTS,
    ColumnFormat,
    UnknownType,
    codec_of,
    meta_size,
    real_type,
)
from headrace.connect.connectors.mysql_changes.decimals import Decoder
from headrace.connect.plugin import PermanentError

_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_CHOICES_DEFAULT_CHARSET, _CHOICES_CHARSETS = 10, 11


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column of a table as it is now."""

    name: str
    type: str
    charset: str
    """`binary` for everything that is no text."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table as it is now, and what is needed to decode its events."""

    database: str
    name: str
    columns: Sequence[KnownColumn]
    charsets: Mapping[int, str]
    """The character set of each collation, by its number."""
    is_mariadb: bool

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


class TableLayout(NamedTuple):
    """How rows of a table are in the events after its table map."""

    names: Sequence[str]
    decoders: Sequence[Decoder]

    def rows(self, body: bytes, place: int) -> Iterator[tuple[object, ...]]:
        """The rows from this place to the end."""
        decoders = self.decoders
        size = (len(decoders) + 7) // 8
        end = len(body)
        while place < end:
            nulls = int.from_bytes(body[place : place + size], "little")
            place += size
            row: list[object] = []
            for decode in decoders:
                if nulls & 1:
                    row.append(None)
                else:
                    value, place = decode(body, place)
                    row.append(value)
                nulls >>= 1
            yield tuple(row)


def table_of(body: bytes) -> tuple[int, str, str, int]:
    """The number of a table map, its database and its table, and where the columns begin."""
    number = int.from_bytes(body[:6], "little")
    end = 9 + body[8]
    database = body[9:end].decode()
    begin = end + 2
    end = begin + body[begin - 1]
    return number, database, body[begin:end].decode(), end + 1


def layout_of(body: bytes, place: int, table: KnownTable) -> TableLayout:
    """The columns of a table map, which begin at this place."""
    count, place = length_at(body, place)
    kinds = body[place : place + count]
    _, place = length_at(body, place + count)
    metas = []
    for kind in kinds:
        metas.append(body[place : place + meta_size(kind)])
        place += meta_size(kind)
    place += (count + 7) // 8
    kinds = bytes(real_type(kind, meta) for kind, meta in zip(kinds, metas, strict=True))
    optional = dict(_optional(body, place))
    known = {column.name: column for column in table.columns}
    if _NAMES in optional:
        names = [name.decode() for name in _strings(optional[_NAMES])]
    elif count == len(table.columns):
        names = [column.name for column in table.columns]
    else:
        raise PermanentError(
            f"the table {table} has {len(table.columns)} columns, but its changes in the binary "
            f"log have {count}: it was altered since, and the log has no names of columns. Set "
            "binlog_row_metadata=FULL on the server, and reset the connector's offsets"
        )
    columns = [known.get(name, KnownColumn(name, "", "binary")) for name in names]
    signs = _signs(kinds, optional, columns)
    charsets = _charsets(kinds, optional, columns, table)
    choices = _choices(kinds, optional, columns, charsets)
    try:
        decoders = [
            ColumnFormat(kind, meta, column.name, sign, charset, words, column.type).decoder()
            for kind, meta, column, sign, charset, words in zip(
                kinds, metas, columns, signs, charsets, choices, strict=True
            )
        ]
    except UnknownType as error:
        raise PermanentError(f"the table {table} cannot be read: {error}") from None
    return TableLayout(names, decoders)


def length_at(body: bytes, place: int) -> tuple[int, int]:
    """An integer with its length, and the place behind it."""
    first = body[place]
    if first < 251:
        return first, place + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(body[place + 1 : place + 1 + size], "little"), place + 1 + size


def _optional(body: bytes, place: int) -> Iterator[tuple[int, bytes]]:
    while place < len(body):
        kind = body[place]
        size, place = length_at(body, place + 1)
        yield kind, body[place : place + size]
        place += size


def _strings(data: bytes) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        size, place = length_at(data, place)
        yield data[place : place + size]
        place += size


def _numbers(data: bytes) -> list[int]:
    found, place = [], 0
    while place < len(data):
        number, place = length_at(data, place)
        found.append(number)
    return found


def _signs(
    kinds: bytes, optional: Mapping[int, bytes], columns: Sequence[KnownColumn]
) -> Sequence[bool]:
    """Which columns are unsigned. The first one has the highest bit."""
    if _SIGNS not in optional:
        return ["unsigned" in column.type for column in columns]
    bits = optional[_SIGNS]
    found, number = [], 0
    for kind in kinds:
        if kind in NUMBERS:
            found.append(bool(bits[number // 8] << number % 8 & 0x80))
            number += 1
        else:
            found.append(False)
    return found


def _charsets(
    kinds: bytes,
    optional: Mapping[int, bytes],
    columns: Sequence[KnownColumn],
    table: KnownTable,
) -> Sequence[str]:
    texts = TEXTS | {GEOMETRY} if table.is_mariadb else TEXTS
    found = {
        **_charsets_of(kinds, texts, optional, _DEFAULT_CHARSET, _CHARSETS),
        **_charsets_of(kinds, {ENUM, SET}, optional, _CHOICES_DEFAULT_CHARSET, _CHOICES_CHARSETS),
    }
    return [
        table.charsets.get(found[place], f"with collation {found[place]}")
        if place in found
        else column.charset
        for place, column in enumerate(columns)
    ]


def _charsets_of(
    kinds: bytes, wanted: set[int], optional: Mapping[int, bytes], default: int, listed: int
) -> dict[int, int]:
    """The collations of these columns by their place: a default with exceptions, or a list."""
    places = [place for place, kind in enumerate(kinds) if kind in wanted]
    if default in optional:
        usual, *others = _numbers(optional[default])
        found = dict.fromkeys(places, usual)
        for number, collation in zip(others[::2], others[1::2], strict=True):
            found[places[number]] = collation
        return found
    if listed in optional:
        return dict(zip(places, _numbers(optional[listed]), strict=True))
    return {}


def _choices(
    kinds: bytes,
    optional: Mapping[int, bytes],
    columns: Sequence[KnownColumn],
    charsets: Sequence[str],
) -> Sequence[Sequence[str]]:
    """The values of each ENUM and SET."""
    lists = {
        kind: iter(list(_choice_lists(optional[named])))
        for kind, named in ((ENUM, _ENUMS), (SET, _SETS))
        if named in optional
    }
    found: list[Sequence[str]] = []
    for kind, column, charset in zip(kinds, columns, charsets, strict=True):
        if kind in lists:
            codec = codec_of(charset) or "utf-8"
            found.append([word.decode(codec, "replace") for word in next(lists[kind])])
        elif kind in (ENUM, SET):
            found.append(declared_choices(column.type))
        else:
            found.append(())
    return found


def _choice_lists(data: bytes) -> Iterator[Sequence[bytes]]:
    place = 0
    while place < len(data):
        count, place = length_at(data, place)
        words = []
        for _ in range(count):
            size, place = length_at(data, place)
            words.append(data[place : place + size])
            place += size
        yield words


def declared_choices(declared: str) -> Sequence[str]:
    """The values in a type such as enum('a','b'), where a quote stands twice."""
    found = re.findall(r"'((?:[^']|'')*)'", declared)
    return [word.replace("''", "'") for word in found]
