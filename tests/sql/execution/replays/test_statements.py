"""Statements of replays without Spark: what they store, what runs, and what they refuse.

The host of these tests runs nothing. A test says how far queries are.
"""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipelines.running.checkpoints import QueryPosition
from tests.sql.running import RunningSql, running_sql

SELECT = "SELECT customer, COUNT(*) AS orders FROM {0} GROUP BY customer"


class Replayed:
    """A stream, a table over it, and a replay of the table."""

    def __init__(self, running: RunningSql, partitions: int = 2) -> None:
        self.running = running
        self.orders = f"o{uuid.uuid4().hex[:8]}"
        self.totals, self.replay = f"{self.orders}_totals", f"{self.orders}_v2"
        running.sql(
            f"CREATE STREAM {self.orders} (id INT KEY, customer VARCHAR, total DOUBLE) WITH "
            f"(kafka_topic='{self.orders}', value_format='json', partitions={partitions});"
        )
        select = SELECT.format(self.orders)
        (made,) = running.sql(f"CREATE TABLE {self.totals} AS {select};")
        self.old: str = made["commandStatus"]["queryId"]
        (made,) = running.sql(
            f"CREATE REPLAY {self.replay} OF {self.totals} AS "
            + select.replace(" GROUP", " WHERE total > 0 GROUP")
            + ";"
        )
        self.new: str = made["commandStatus"]["queryId"]

    def reaches(self, *offsets: int) -> None:
        """Both queries are at these offsets of the partitions of their input."""
        at = {self.orders: {str(number): offset for number, offset in enumerate(offsets)}}
        for query in (self.old, self.new):
            position = QueryPosition(f"spark-{query}", 7, at, is_finished=True, is_quiet=True)
            self.running.host.positions[query] = position

    def phase(self) -> str:
        (found,) = self.running.sql(f"DESCRIBE REPLAY {self.replay};")
        phase: str = found["replayDescription"]["phase"]
        return phase


@pytest.fixture
def replayed(running: RunningSql) -> Iterator[Replayed]:
    found = Replayed(running)
    yield found
    running.host.positions.clear()


def test_a_replay_has_a_query_and_a_topic_of_its_own(replayed: Replayed) -> None:
    running = replayed.running
    spec = running.host.specs[replayed.new]
    assert replayed.new.startswith(f"REPLAY_{replayed.replay}_")
    assert (spec.target.topic, spec.properties["start"]) == (replayed.replay, "earliest")
    assert running.host.specs[replayed.old].target.topic == replayed.totals
    running.sql(f"INSERT INTO {replayed.orders} VALUES (1, 'ann', 2.5);")
    replayed.reaches(0, 0)
    (found,) = running.sql(f"DESCRIBE REPLAY {replayed.replay};")
    described = found["replayDescription"]
    assert (described["of"], described["phase"]) == (replayed.totals, "running")
    assert [each["query"]["id"] for each in described["versions"]] == [replayed.old, replayed.new]
    assert [each["cut"] for each in described["partitions"]] == [0, 0]
    assert sum(each["end"] - each["position"] for each in described["partitions"]) == 1
    (listed,) = running.sql("LIST REPLAYS;")
    assert replayed.replay in [each["name"] for each in listed["replays"]]
    script = running.http.get("/headrace/export").text
    assert f"CREATE REPLAY {replayed.replay} OF {replayed.totals}" in script
    assert f"CREATE TABLE `{replayed.replay}`" not in script


def test_a_replay_begins_at_a_time_and_tells_what_is_gone(running: RunningSql) -> None:
    found = Replayed(running, partitions=1)
    running.sql(f"DROP REPLAY {found.replay};")
    running.sql(f"INSERT INTO {found.orders} VALUES (1, 'ann', 2.5);")
    (made,) = running.sql(f"CREATE REPLAY {found.replay} OF {found.totals} FROM '2100-01-01';")
    query = made["commandStatus"]["queryId"]
    assert json.loads(running.host.specs[query].properties["start"]) == {found.orders: {"0": 1}}
    running.sql(f"DROP REPLAY {found.replay};")
    (made,) = running.sql(f"CREATE REPLAY {found.replay} OF {found.totals} FROM '2000-01-01';")
    query = made["commandStatus"]["queryId"]
    assert json.loads(running.host.specs[query].properties["start"]) == {found.orders: {"0": 0}}
    running.sql(f"DROP REPLAY {found.replay};")
    message = running.refused(f"CREATE REPLAY {found.replay} OF {found.totals} FROM 'yesterday';")[
        "message"
    ]
    assert "no time" in message
    assert "2026-01-31" in message


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE REPLAY {t} OF {t};", "already"),
        ("CREATE REPLAY other OF {t};", "is a replay of {t} already"),
        ("CREATE REPLAY other OF {o};", "no query of CREATE ... AS SELECT"),
        ("CREATE REPLAY other OF {r};", "is a replay of {t} already"),
        ("DROP TABLE {t};", "DROP REPLAY {r} first"),
        ("DROP TABLE {r};", "DROP REPLAY {r} first"),
        (("CREATE OR REPLACE TABLE {r} AS SELECT customer, COUNT(*) AS orders FROM {o} GROUP BY "
         "customer;"), "DROP REPLAY {r} and create it again"),
        ("SWITCH {o} TO {r};", "is a replay of {t}, not of {o}"),
        ("SWITCH {t} TO {o};", "There is no replay {o}"),
        ("SWITCH {t} TO {r} WITH (mode='swap');", "alias or merge"),
        ("COMPARE {r} WITH nothing;", "There is no stream or table nothing"),
        ("ROLLBACK {o};", "There is no replay of {o}"),
    ],
)  # fmt: skip
def test_what_a_replay_cannot_do_is_refused(
    replayed: Replayed, statement: str, expected: str
) -> None:
    names = {"t": replayed.totals, "o": replayed.orders, "r": replayed.replay}
    message = replayed.running.refused(statement.format(**names))["message"]
    assert expected.format(**names) in message


def test_queries_run_up_to_the_same_offsets_while_results_are_compared(
    replayed: Replayed,
) -> None:
    running = replayed.running
    running.sql(f"INSERT INTO {replayed.orders} VALUES (1, 'ann', 2.5);")
    (listed,) = running.sql(f"DESCRIBE REPLAY {replayed.replay};")
    ends = [each["end"] for each in listed["replayDescription"]["partitions"]]
    replayed.reaches(*ends)
    running.host.calls.clear()
    (found,) = running.sql(f"COMPARE {replayed.replay} WITH {replayed.totals};")
    assert found["comparison"]["equal"] is True
    assert list(found["comparison"]["inputOffsets"][replayed.orders].values()) == ends
    (pair,) = running.host.compared[-1:]
    assert [each.source.name for each in pair] == [replayed.replay, replayed.totals]
    done = [call for call in running.host.calls if call[1] in (replayed.old, replayed.new)]
    # Each is stopped, runs up to the end, and runs on without one.
    for query in (replayed.old, replayed.new):
        assert [what for what, of in done if of == query] == ["stop", "start", "start"]
        assert "end" not in running.host.specs[query].properties


def test_an_alias_moves_the_name_and_back(replayed: Replayed) -> None:
    running, host = replayed.running, replayed.running.host
    replayed.reaches(0, 0)
    running.sql(f"SWITCH {replayed.totals} TO {replayed.replay};")
    assert replayed.phase() == "switched"
    (described,) = running.sql(f"DESCRIBE {replayed.totals};")
    assert described["sourceDescription"]["topic"] == replayed.replay
    (writer,) = described["sourceDescription"]["writeQueries"]
    assert writer["id"] == replayed.new
    assert set(host.specs) >= {replayed.new}
    assert replayed.old not in host.specs
    deleted = [query for what, query in host.calls if what == "delete"]
    assert not {replayed.old, replayed.new} & set(deleted), "both checkpoints are kept"
    assert (
        "There is no stream or table" in running.refused(f"DESCRIBE {replayed.replay};")["message"]
    )
    (again,) = running.sql(f"SWITCH {replayed.totals} TO {replayed.replay};")
    assert again["@type"] == "warning_entity"
    running.sql(f"ROLLBACK {replayed.totals};")
    assert replayed.phase() == "running"
    (described,) = running.sql(f"DESCRIBE {replayed.totals};")
    assert described["sourceDescription"]["topic"] == replayed.totals
    assert {replayed.old, replayed.new} <= set(host.specs)
    assert host.specs[replayed.new].target.topic == replayed.replay
    running.sql(f"SWITCH {replayed.totals} TO {replayed.replay}; DROP REPLAY {replayed.replay};")
    assert ("delete", replayed.old) in host.calls, "the old version is gone for good"
    assert replayed.new in host.specs


def test_an_alias_is_refused_while_queries_read_the_topic(replayed: Replayed) -> None:
    running = replayed.running
    replayed.reaches(0, 0)
    (made,) = running.sql(
        f"CREATE TABLE {replayed.totals}_big AS SELECT customer, orders FROM {replayed.totals} "
        "WHERE orders > 1;"
    )
    reader = made["commandStatus"]["queryId"]
    message = running.refused(f"SWITCH {replayed.totals} TO {replayed.replay};")["message"]
    assert reader in message
    assert "mode='merge'" in message
    assert replayed.phase() == "running"
    running.sql(f"SWITCH {replayed.totals} TO {replayed.replay} WITH (mode='merge');")
    assert replayed.phase() == "switched"


def test_a_merge_writes_the_rows_of_both_versions_and_keeps_the_topic(
    replayed: Replayed,
) -> None:
    running, host = replayed.running, replayed.running.host
    replayed.reaches(0, 0)
    host.copies.clear()
    running.sql(f"SWITCH {replayed.totals} TO {replayed.replay} WITH (mode='merge');")
    kept = f"{replayed.totals}.before_{replayed.replay}"
    ways = [(each.origin, each.target, each.query, each.epoch) for each in host.copies]
    assert ways == [
        (replayed.totals, kept, f"spark-{replayed.old}", 7),
        (replayed.replay, replayed.totals, f"spark-{replayed.new}", 7),
    ]
    assert host.specs[replayed.new].target.topic == replayed.totals
    assert "end" not in host.specs[replayed.new].properties
    assert replayed.old not in host.specs
    host.copies.clear()
    running.sql(f"ROLLBACK {replayed.totals};")
    ways = [(each.origin, each.target, each.query, each.epoch) for each in host.copies]
    assert ways == [
        (replayed.totals, replayed.replay, f"spark-{replayed.new}", 7),
        (kept, replayed.totals, f"spark-{replayed.old}", 7),
    ]
    names = {each.name for each in host.copies}
    assert len(names) == 2, "each write has a name of its own"
    assert host.specs[replayed.old].target.topic == replayed.totals
    assert host.specs[replayed.new].target.topic == replayed.replay


def test_a_merge_goes_on_with_the_next_server(sql_bootstrap: str, tmp_path: Path) -> None:
    """Spark fails while rows are written, and the server ends."""
    service = f"replay-{uuid.uuid4().hex[:8]}"
    with running_sql(sql_bootstrap, tmp_path, service) as first:
        found = Replayed(first)
        found.reaches(0, 0)
        first.host.unavailable = "Spark starts"
        with pytest.raises(Exception, match="timed out"):
            first.http.post(
                "/ksql",
                json={"ksql": f"SWITCH {found.totals} TO {found.replay} WITH (mode='merge');"},
                timeout=3,
            )
        assert found.phase() == "merging"
        for statement in (
            f"ROLLBACK {found.totals};",
            f"DROP REPLAY {found.replay};",
            f"PAUSE {found.old};",
            f"TERMINATE {found.new};",
        ):
            assert (
                "merg" in first.refused(statement)["message"]
                or "under way" in (first.refused(statement)["message"])
            )
        for query in (found.old, found.new):
            end = json.loads(first.host.specs[query].properties["end"])
            assert end == {found.orders: {"0": 0, "1": 0}}, "neither writes while rows are copied"
    with running_sql(sql_bootstrap, tmp_path, service) as second:
        found.running = second
        found.reaches(0, 0)
        (answer,) = second.sql(f"SWITCH {found.totals} TO {found.replay} WITH (mode='merge');")
        assert answer["@type"] in ("currentStatus", "warning_entity")
        assert found.phase() == "switched"
        assert len(second.host.copies) == 2
        assert second.host.specs[found.new].target.topic == found.totals
        assert set(second.host.kept) >= {found.old, found.new}


def test_a_version_that_is_far_behind_is_not_waited_for(replayed: Replayed) -> None:
    running = replayed.running
    running.sql(f"INSERT INTO {replayed.orders} VALUES (1, 'ann', 2.5);")
    replayed.reaches(0, 0)
    message = running.refused(f"SWITCH {replayed.totals} TO {replayed.replay} WITH (max_lag=0);")[
        "message"
    ]
    assert "is 1 records behind" in message
    assert replayed.old in running.host.specs
    assert replayed.new in running.host.specs
