"""Two tables with columns of all types, as files of views."""

import datetime
from decimal import Decimal
from pathlib import Path

from headrace.sql.language.parsing import parse
from headrace.sql.language.statements import SelectStatement
from headrace.sql.records.decoding import Row
from headrace.sql.sources import SqlSource
from headrace.sql.views.compiling import compiled
from headrace.sql.views.connections import connect
from headrace.sql.views.pull_plans import PullPlan, pull_plan
from headrace.sql.views.view_file import ViewFile
from tests.sql.records.rows import source

THINGS = source(
    "id string key; b boolean; i int; n bigint; d double; x decimal(10,2); y decimal(30,5);"
    " s string; u string; day date; at timestamp; o binary; a array<int>; w array<string>;"
    " m map<string,bigint>; r struct<name: string, place: struct<lat: double, n: bigint>,"
    " `odd name`: int>; f float; l smallint",
    name="things",
)
GROUPS = source("k string key; label string; weight double; n int", name="groups")


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


THING_ROWS: list[tuple[object, ...]] = [
    ("a", True, 1, 2**62, 1.5, Decimal("12.50"), Decimal("1.00001"), "x", "Übung ", None,
     at("2026-01-02T03:04:05.678"), b"\x00\xff", [1, 2, 3], ["p", None, "q"], {"k": 1},
     {"name": "one", "place": {"lat": 0.1, "n": 2**60}, "odd name": 5}, 0.5, 7),
    ("b", False, -7, -5, -2.5, Decimal("-0.05"), Decimal("99999999999999999999.99999"), "y",
     "it's 100%_", datetime.date(2024, 2, 29), at("1969-12-31T23:59:59.999"), b"", [], ["z"],
     {"j": None},
     {"name": None, "place": None, "odd name": None}, -1.25, -7),
    ("c", None, None, None, None, None, None, None, None, None, None, None, None, None, None, None,
     None, None),
    ("d", True, 2147483647, 0, float("nan"), Decimal("0.00"), Decimal("0.00000"), "x", "",
     datetime.date(1970, 1, 1), at("2026-01-02T03:04:05"), b"abc", [None, 5], [], {"k": 5},
     {"name": "", "place": {"lat": None, "n": None}, "odd name": 0}, 3.0, 0),
    ("e", False, 0, 7, float("inf"), Decimal("99999999.99"), Decimal("-1.50000"), "z",
     "a\\b\tc", datetime.date(2026, 12, 31), at("2026-06-30T00:00:00"), None, [2], ["x", "y"],
     {"k": -1}, {"name": "ä", "place": {"lat": -1e300, "n": 3}, "odd name": 1}, 1e10, 100),
]  # fmt: skip
GROUP_ROWS: list[tuple[object, ...]] = [
    ("x", "first", 0.5, 1),
    ("y", "second", 1.5, 2),
    ("q", "nobody", None, 3),
]


def known(name: str) -> SqlSource | None:
    return {"things": THINGS, "groups": GROUPS}.get(name.casefold())


def fill(folder: Path) -> None:
    """Make the files of both tables."""
    for of, rows in ((THINGS, THING_ROWS), (GROUPS, GROUP_ROWS)):
        file = ViewFile(folder, of)
        file.apply(
            (Row(values, 1000 + n, n % 2, n, None, None, False) for n, values in enumerate(rows)),
            {0: 10},
        )
        file.close()


def planned(text: str) -> PullPlan:
    statement = parse(text)
    assert isinstance(statement, SelectStatement)
    return pull_plan(statement.select, known)


def answered(folder: Path, text: str) -> tuple[list[tuple[str, str]], list[list[object]]]:
    """The columns and the rows that views have for a query."""
    query = compiled(planned(text))
    files = []
    for of in query.tables:
        file = ViewFile(folder, of)
        files.append(file.path)
        file.close()
    connection = connect(files)
    try:
        found = connection.execute(query.sql, {**query.key, "now": 0}).fetchall()
    finally:
        connection.close()
    columns = [(each.name, each.type) for each in query.columns]
    return columns, [query.load(row) for row in found]
