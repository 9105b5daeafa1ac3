"""What MariaDB's log does not have: events of MySQL, and half a transaction after a crash."""

import struct

import pytest

from headrace.connect import PermanentError
from headrace.connect.connectors.mysql_changes.binlog import BinlogEvent, BinlogPosition
from headrace.connect.connectors.mysql_changes.table_maps import KnownColumn, KnownTable
from headrace.connect.connectors.mysql_changes.transactions import TransactionReader

TABLE = KnownTable("d", "t", [KnownColumn("id", "int", "binary")], {}, is_mariadb=False)
MAP = (
    struct.pack("<IHH", 7, 0, 1) + b"\x01d\0\x01t\0" + b"\x01\x03" + b"\0" + b"\0"
)  # one INT, no metadata
QUERY_HEAD = struct.pack("<IIBHH", 1, 0, 1, 0, 0) + b"d\0"


def event(kind: int, body: bytes, pos: int, file: str = "log.000001") -> BinlogEvent:
    return BinlogEvent(kind, 1, 5, BinlogPosition(file, pos), body)


def insert(number: int) -> bytes:
    """Version 2 of the event, with two bytes of additional data."""
    return (
        struct.pack("<IHHH2s", 7, 0, 1, 4, b"ab") + b"\x01\x01" + b"\0" + struct.pack("<i", number)
    )


def rows(events: list[BinlogEvent]) -> list[tuple[str | None, object]]:
    found = TransactionReader(TABLE).read(events)
    return [(each.gtid, change.after) for each in found for change in each.changes()]


def test_transactions_of_mysql_have_their_gtid() -> None:
    gtid = b"\x01" + bytes(range(16)) + struct.pack("<Q", 9)
    assert rows(
        [
            event(33, gtid, 10),
            event(2, QUERY_HEAD + b"BEGIN", 20),
            event(19, MAP, 30),
            event(30, insert(1), 40),
            event(16, b"", 50),
            event(34, b"", 60),
            event(2, QUERY_HEAD + b"BEGIN", 70),
            event(19, MAP, 80),
            event(30, insert(2), 90),
            event(2, QUERY_HEAD + b"COMMIT", 100),
        ]
    ) == [("00010203-0405-0607-0809-0a0b0c0d0e0f:9", (1,)), (None, (2,))]


def test_half_a_transaction_before_another_file_is_left_out() -> None:
    reader = TransactionReader(TABLE)
    events = [
        event(2, QUERY_HEAD + b"BEGIN", 20),
        event(19, MAP, 30),
        event(30, insert(1), 40),
        event(15, b"", 4, "log.000002"),
        event(2, QUERY_HEAD + b"BEGIN", 20, "log.000002"),
        event(19, MAP, 30, "log.000002"),
        event(30, insert(2), 40, "log.000002"),
        event(16, b"", 50, "log.000002"),
    ]
    found = [change.after for each in reader.read(events) for change in each.changes()]
    assert found == [(2,)]
    assert reader.boundary == BinlogPosition("log.000002", 50)


def test_what_is_rolled_back_is_left_out() -> None:
    assert (
        rows(
            [
                event(2, QUERY_HEAD + b"BEGIN", 20),
                event(19, MAP, 30),
                event(30, insert(1), 40),
                event(2, QUERY_HEAD + b"ROLLBACK", 50),
            ]
        )
        == []
    )


@pytest.mark.parametrize(("kind", "word"), [(26, "incident"), (39, "JSON"), (40, "compression")])
def test_events_that_cannot_be_read_are_sentences(kind: int, word: str) -> None:
    with pytest.raises(PermanentError, match=word):
        rows([event(kind, b"", 10)])


def test_files_are_in_the_order_of_their_numbers() -> None:
    assert BinlogPosition("log.999999", 9).order < BinlogPosition("log.1000000", 4).order


def test_a_range_that_the_server_lost_is_a_sentence() -> None:
    found = TransactionReader(TABLE).read_until(
        [event(16, b"", 50)], BinlogPosition("log.000001", 99)
    )
    with pytest.raises(PermanentError, match=r"ends before log\.000001:99"):
        list(found)
