"""The results of statements are those of Flink SQL over the same records.

All cases read the same topics and run at the same time. Records are out of order, some are later
than the grace period, some have no key or no number, and rows of tables are changed and deleted.
What differs from Flink is in `DIFFERENT`, and in docs/sql.md.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from tests.sql.sql_process import SqlProcess, wait
from tests.support import flink
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

BASE_MS = 1_700_000_000_000
"""A time that is a multiple of all windows."""
END = "end"
"""The key of rows that only move the watermark: they are in no result that is compared."""

# Key, number, seconds after BASE_MS. The watermark is ten seconds behind.
ON_TIME = [
    ("a", 1, 1.0), ("b", 2, 0.5), ("a", 3, 4.9), ("a", None, 2.0), ("a", 10, 5.0), ("c", None, 6.0),
    ("b", 7, 12.0), ("a", 4, 9.9), ("b", -5, 3.0), (None, 8, 7.0), ("a", 5, 13.5), ("c", 1, 12.5),
    ("b", 6, 14.0), ("a", 2, 18.0), ("c", 9, 8.2), ("s", 1, 9.9),
    (END, 0, 22.0),
]  # fmt: skip
# The watermark is at 12 seconds: windows that have ended by then are closed.
AFTER_WATERMARK = [
    ("a", 100, 1.5),   # its windows are closed
    ("b", 200, 9.9),
    ("a", 20, 10.5),   # behind the watermark, but its tumbling window is open
    ("c", 300, 13.0),
    ("s", 50, 8.95),   # behind the watermark with its session, which is one with a later one
    ("b", 30, 25.0),
    (END, 0, 100.0),
]  # fmt: skip
# Streams that are joined within five seconds: key, text, seconds.
LEFT = [
    ("x", "l1", 0.0), ("y", "l2", 3.0), ("x", "l3", 10.0), ("z", "l4", 4.0), (None, "l5", 5.0),
    ("w", "l6", 16.0), ("x", "l7", 7.5), ("v", None, 9.0), (END, "", 100.0),
]  # fmt: skip
RIGHT = [
    ("x", "r1", 5.0), ("y", "r2", 8.001), ("x", "r3", 15.0), ("z", "r4", 2.0), (None, "r5", 5.0),
    ("y", "r6", 0.0), ("u", "r7", 6.0), ("v", "r8", 9.0), (END, "", 100.0),
]  # fmt: skip
# Changes of tables: key, value, seconds; without a value the row is deleted.
USERS = [
    ("a", {"city": "Ulm", "level": 1}, 0.0), ("b", {"city": "Bonn", "level": 2}, 0.0),
    ("c", {"city": None, "level": 3}, 1.0), ("a", {"city": "Bonn", "level": 5}, 5.0),
    ("b", None, 6.0), ("d", {"city": "Ulm", "level": 7}, 7.0), ("c", None, 8.0),
    ("c", {"city": "Ulm", "level": None}, 9.0), ("e", None, 9.5),
]  # fmt: skip
PLACES = [
    ("a", {"zip": 1}, 0.0), ("d", {"zip": 4}, 1.0), ("f", {"zip": 6}, 2.0),
    ("a", {"zip": 11}, 3.0), ("d", None, 4.0), ("c", {"zip": 3}, 4.0),
]  # fmt: skip

STREAMS = {"clicks": "n", "visits": "n", "lefts": "t", "rights": "t"}
"""The column of each."""
TABLES = {"users": {"city": "VARCHAR", "level": "BIGINT"}, "places": {"zip": "BIGINT"}}


@dataclass(frozen=True, slots=True)
class Case:
    """A statement for both. The columns of Flink's result are `columns`, in this order."""

    name: str
    kind: str
    """TABLE or STREAM."""
    ours: str
    flinks: str
    columns: str


AGGREGATES = "COUNT(*) AS c, COUNT(n) AS cn, SUM(n) AS s, MIN(n) AS lo, MAX(n) AS hi"
WINDOWED = f"SELECT k, window_start, {AGGREGATES} FROM {{}} GROUP BY k, window_start, window_end"
WITHIN = "l.ts BETWEEN r.ts - INTERVAL '5' SECOND AND r.ts + INTERVAL '5' SECOND"
CASES = [
    Case(
        "tumbling", "TABLE",
        f"SELECT k, {AGGREGATES} FROM clicks WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 10 "
        "SECONDS) GROUP BY k EMIT FINAL",
        WINDOWED.format("TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND)"),
        "k, WINDOWSTART, c, cn, s, lo, hi",
    ),
    Case(
        "hopping", "TABLE",
        f"SELECT k, {AGGREGATES} FROM clicks WINDOW HOPPING (SIZE 6 SECONDS, ADVANCE BY 2 SECONDS, "
        "GRACE PERIOD 10 SECONDS) GROUP BY k EMIT FINAL",
        WINDOWED.format("HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' "
                        "SECOND)"),
        "k, WINDOWSTART, c, cn, s, lo, hi",
    ),
    Case(
        "session", "TABLE",
        f"SELECT k, {AGGREGATES} FROM clicks WINDOW SESSION (3 SECONDS, GRACE PERIOD 10 SECONDS) "
        "GROUP BY k EMIT FINAL",
        WINDOWED.format("SESSION(TABLE clicks PARTITION BY k, DESCRIPTOR(ts), INTERVAL '3' "
                        "SECOND)"),
        "k, WINDOWSTART, c, cn, s, lo, hi",
    ),
    Case(
        "totals", "TABLE",
        f"SELECT k, {AGGREGATES}, AVG(CAST(n AS DOUBLE)) AS mean FROM clicks GROUP BY k",
        f"SELECT k, {AGGREGATES}, AVG(CAST(n AS DOUBLE)) AS mean FROM clicks GROUP BY k",
        "k, c, cn, s, lo, hi, mean",
    ),
    Case(
        "less_than_50", "TABLE",
        "SELECT k, SUM(n) AS s FROM clicks WHERE n < 50 GROUP BY k HAVING SUM(n) < 50",
        "SELECT k, SUM(n) AS s FROM clicks WHERE n < 50 GROUP BY k HAVING SUM(n) < 50",
        "k, s",
    ),
    *(
        Case(
            f"{kind.split()[0].lower()}_within", "STREAM",
            f"SELECT {key} AS k, l.t AS lt, r.t AS rt FROM lefts l {kind} JOIN rights r WITHIN 5 "
            "SECONDS GRACE PERIOD 10 SECONDS ON l.k = r.k",
            f"SELECT {flinks_key}, l.t, r.t FROM lefts l {kind} JOIN rights r ON l.k = r.k AND "
            f"{WITHIN}",
            "k, lt, rt",
        )
        for kind, key, flinks_key in (
            ("INNER", "l.k", "l.k"), ("LEFT", "l.k", "l.k"),
            ("FULL OUTER", "ROWKEY", "COALESCE(l.k, r.k)"),
        )
    ),
    *(
        Case(
            f"{kind.lower()}_table", "STREAM",
            f"SELECT c.k AS k, c.n AS n, u.city AS city, u.level AS level FROM visits c {kind} "
            "JOIN users u ON c.k = u.k",
            f"SELECT c.k, c.n, u.city, u.level FROM visits c {kind} JOIN users FOR SYSTEM_TIME AS "
            "OF c.ts AS u ON c.k = u.k",
            "k, n, city, level",
        )
        for kind in ("INNER", "LEFT")
    ),
    *(
        Case(
            f"{kind.lower()}_tables", "TABLE",
            f"SELECT u.k AS k, u.city AS city, p.zip AS zip FROM users u {kind} JOIN places p "
            "ON u.k = p.k",
            f"SELECT u.k, u.city, p.zip FROM users u {kind} JOIN places p ON u.k = p.k",
            "k, city, zip",
        )
        for kind in ("INNER", "LEFT")
    ),
    Case(
        "filtered", "TABLE",
        "SELECT k, city FROM users WHERE city = 'Ulm' OR level > 4",
        "SELECT k, city FROM users WHERE city = 'Ulm' OR level > 4",
        "k, city",
    ),
]  # fmt: skip
Row = tuple[str, ...]


def _at(seconds: float) -> str:
    return str(BASE_MS + round(seconds * 1000))


# A tombstone of a table that Flink joins has the time of the row that it deletes, not its own.
_BEFORE_DELETION: list[Row] = [
    ("b", "-5", "Bonn", "2"), ("b", "2", "Bonn", "2"), ("c", "null", "null", "3"),
]  # fmt: skip
# Rows that only Flink has, and rows that only we have. Flink has a group of the rows without a key.
DIFFERENT: dict[str, tuple[list[Row], list[Row]]] = {
    "tumbling": ([("null", _at(5), "1", "1", "8", "8", "8")], []),
    "hopping": ([("null", _at(start), "1", "1", "8", "8", "8") for start in (2, 4, 6)], []),
    # Flink counts a late row if the session that it belongs to is open.
    "session": (
        [("null", _at(7), "1", "1", "8", "8", "8"), ("s", _at(8.95), "2", "2", "51", "1", "50")],
        [("s", _at(9.9), "1", "1", "1", "1", "1")],
    ),
    "totals": ([("null", "1", "1", "8", "8", "8", "8.0")], []),
    "less_than_50": ([("null", "8")], []),
    "inner_table": ([], _BEFORE_DELETION),
    "left_table": (
        [(key, number, "null", "null") for key, number, *_ in _BEFORE_DELETION],
        _BEFORE_DELETION,
    ),
}


@dataclass(frozen=True, slots=True)
class Results:
    server: SqlProcess
    flinks: dict[str, list[Row]]

    def ours(self, case: Case) -> list[Row]:
        found = self.server.rows(f"SELECT {case.columns} FROM {case.name};")
        return _sorted([tuple(map(_text, row)) for row in found])


@pytest.fixture(scope="module")
def results(sql_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    if reason := flink.missing():
        pytest.skip(reason)
    prefix = f"f{uuid.uuid4().hex[:8]}_"
    topics = _Topics(sql_bootstrap, prefix)
    topics.send("clicks", [(k, {"n": n}, at) for k, n, at in ON_TIME])
    topics.send("visits", [(k, {"n": n}, at) for k, n, at in ON_TIME])
    topics.send("lefts", [(k, {"t": t}, at) for k, t, at in LEFT])
    topics.send("rights", [(k, {"t": t}, at) for k, t, at in RIGHT])
    topics.send("users", [*USERS, (END, {}, 100.0)])
    topics.send("places", PLACES)
    server = SqlProcess(sql_bootstrap, tmp_path_factory.mktemp("sql"), prefix.strip("_"))
    try:
        server.sql(_declarations(prefix))
        for case in CASES:
            server.sql(
                f"CREATE {case.kind} {case.name} WITH (kafka_topic='{prefix}{case.name}') AS "
                f"{case.ours};",
                streamsProperties={"auto.offset.reset": "earliest"},
            )
        for window in ("tumbling", "hopping", "session"):
            # A closed window shows that the watermark has passed it.
            wait(lambda: server.rows(f"SELECT k FROM {window};"), bool)  # noqa: B023
        topics.send("clicks", [(k, {"n": n}, at) for k, n, at in AFTER_WATERMARK])
        yield Results(server, _flinks(sql_bootstrap, prefix))
    finally:
        server.stop()


class _Topics:
    """Topics with one partition each, so that both read the records in one order."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._prefix = prefix
        for name in (*STREAMS, *TABLES):
            create_topic(bootstrap, prefix + name, 1, {"retention.ms": "-1"})

    def send(self, name: str, rows: Sequence[tuple[str | None, object, float]]) -> None:
        for key, value, seconds in rows:
            octets = None if value is None else json.dumps(value).encode()
            at = BASE_MS + round(seconds * 1000)
            self._producer.produce(self._prefix + name, octets, key, timestamp=at)
        assert self._producer.flush(60) == 0


def _declarations(prefix: str) -> str:
    formats = "value_format='json', key_format='kafka'"
    types = {"n": "BIGINT", "t": "VARCHAR"}
    found = [
        f"CREATE STREAM {name} (k VARCHAR KEY, {column} {types[column]}) WITH "
        f"(kafka_topic='{prefix}{name}', {formats});"
        for name, column in STREAMS.items()
    ]
    for name, columns in TABLES.items():
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        found.append(
            f"CREATE TABLE {name} (k VARCHAR PRIMARY KEY, {listed}) WITH "
            f"(kafka_topic='{prefix}{name}', {formats});"
        )
    return " ".join(found)


def _flinks(bootstrap: str, prefix: str) -> dict[str, list[Row]]:
    """The results of Flink, which reads the topics up to their ends."""
    time = (
        "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', WATERMARK FOR ts AS ts - INTERVAL '10' "
        "SECOND"
    )
    options = (
        "'topic' = '{}', 'key.format' = 'raw', 'value.format' = 'json', 'value.fields-include' = "
        f"'EXCEPT_KEY', 'properties.bootstrap.servers' = '{bootstrap}', 'scan.bounded.mode' = "
        "'latest-offset', 'scan.watermark.emit.strategy' = 'on-event'"
    )
    types = {"n": "BIGINT", "t": "STRING", "VARCHAR": "STRING", "BIGINT": "BIGINT"}
    settings = {"table.local-time-zone": "UTC", "parallelism.default": "1"}
    with flink.FlinkSql(settings, ["-XX:TieredStopAtLevel=1"]) as session:
        for name, column in STREAMS.items():
            session.run(
                f"CREATE TABLE {name} (k STRING, {column} {types[column]}, {time}) WITH "
                f"('connector' = 'kafka', 'key.fields' = 'k', 'scan.startup.mode' = "
                f"'earliest-offset', {options.format(prefix + name)})"
            )
        for name, columns in TABLES.items():
            listed = ", ".join(f"{column} {types[kind]}" for column, kind in columns.items())
            session.run(
                f"CREATE TABLE {name} (k STRING, {listed}, {time}, PRIMARY KEY (k) NOT ENFORCED) "
                f"WITH ('connector' = 'upsert-kafka', {options.format(prefix + name)})"
            )
        return {
            case.name: _sorted([_as_ours(row, case) for row in session.run(case.flinks).rows()])
            for case in CASES
        }


def _as_ours(row: Row, case: Case) -> Row:
    if "WINDOWSTART" not in case.columns:
        return row
    start = datetime.fromisoformat(row[1]).replace(tzinfo=UTC)
    return (row[0], str(round(start.timestamp() * 1000)), *row[2:])


def _text(value: object) -> str:
    return "null" if value is None else str(value)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(row for row in rows if END not in row)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_flink(results: Results, case: Case) -> None:
    flinks = Counter(results.flinks[case.name])
    assert flinks

    def difference() -> tuple[list[Row], list[Row]]:
        ours = Counter(results.ours(case))
        return sorted((flinks - ours).elements()), sorted((ours - flinks).elements())

    expected = DIFFERENT.get(case.name, ([], []))
    assert wait(difference, lambda found: found == expected) == expected
