"""A server that is started again, a second server, and records that cannot be read."""

import asyncio
import json
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.config import client_config
from headrace.service.errors import StartFailure
from headrace.service.internal_topics import KeyValue, TopicWriter
from headrace.sql.commands.records import ServerClaim, encode
from tests.sql.running import WAIT_S, RunningSql, running_sql
from tests.support.topics import recreate_topic

COLUMNS = "(id INT KEY, customer VARCHAR, total DOUBLE)"


def _name() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def _create(running: RunningSql, name: str) -> str:
    """A stream and a query over it; the id of the query."""
    running.sql(
        f"CREATE STREAM {name} {COLUMNS} WITH (kafka_topic='{name}', partitions=1, "
        "value_format='json');"
    )
    (made,) = running.sql(f"CREATE STREAM {name}_copy AS SELECT id, total FROM {name};")
    query: str = made["commandStatus"]["queryId"]
    return query


def _write(bootstrap: str, topic: str, key: str, value: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, key, 0)
    assert producer.flush(WAIT_S) == 0


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_statement_is_back_after_a_restart(sql_bootstrap: str, tmp_path: Path) -> None:
    service, name = _name(), _name()
    with running_sql(sql_bootstrap, tmp_path, service) as first:
        query = _create(first, name)
        (made,) = first.sql(f"INSERT INTO {name}_copy SELECT id, total FROM {name};")
        insert = made["commandStatus"]["queryId"]
        first.sql(f"CREATE TYPE {name}_type AS STRUCT<a INT>; PAUSE {insert};")
        first.sql(f"CREATE STREAM {name}_gone AS SELECT id, total FROM {name}_copy;")
        first.sql(f"DROP STREAM {name}_gone;")
        spec = first.host.specs[query]
    with running_sql(sql_bootstrap, tmp_path, service) as second:
        assert second.host.specs == {query: spec}
        assert second.host.kept == [query, insert]
        (listed,) = second.sql("LIST QUERIES;")
        states = {each["id"]: each["state"] for each in listed["queries"]}
        assert states == {query: "RUNNING", insert: "PAUSED"}
        (types,) = second.sql("LIST TYPES;")
        assert list(types["types"]) == [f"{name}_type"]
        # New ids are new, also after a drop.
        (made,) = second.sql(f"CREATE STREAM {name}_gone AS SELECT id, total FROM {name}_copy;")
        assert made["commandStatus"]["queryId"] not in states
        second.sql(f"RESUME {insert};")
        assert set(second.host.specs) == {*states, made["commandStatus"]["queryId"]}


def test_a_record_that_cannot_be_read_leaves_the_others_alone(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    service, name = _name(), _name()
    topic = f"_headrace_sql_{service}"
    with running_sql(sql_bootstrap, tmp_path, service) as first:
        query = _create(first, name)
    _write(sql_bootstrap, topic, "source/broken", b"{not json")
    newer = json.dumps({"version": 2, "kind": "source", "name": "newer"}).encode()
    _write(sql_bootstrap, topic, "source/newer", newer)
    with running_sql(sql_bootstrap, tmp_path, service) as second:
        assert set(second.host.specs) == {query}
        (listed,) = second.sql("LIST STREAMS;")
        assert [each["name"] for each in listed["streams"]] == [name, f"{name}_copy"]
        first_warning, second_warning = (each["message"] for each in listed["warnings"])
        assert "source/broken" in first_warning
        assert "a newer server has written it" in second_warning
        assert second.http.get("/health").json()["failed_statements"] == 2
        second.sql("DROP STREAM broken; DROP STREAM newer;")
        (listed,) = second.sql("LIST STREAMS;")
        assert listed["warnings"] == []


def test_a_query_that_cannot_be_started_leaves_the_others_alone(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    name = _name()
    with running_sql(sql_bootstrap, tmp_path) as running:
        good = _create(running, name)
        bad = "bad_one"
        running.host.unstartable.add(bad)
        create = f"CREATE STREAM {name}_2 WITH (query_id='{bad}') AS SELECT id, total FROM {name};"
        running.sql(create)
        (listed,) = running.sql("LIST QUERIES;")
        found = {each["id"]: each for each in listed["queries"]}
        assert found[good]["state"] == "RUNNING"
        assert found[bad]["state"] == "FAILED"
        assert found[bad]["headrace"]["error"] == "RuntimeError: no room"
        running.sql(f"DROP STREAM {name}_2;")
        (listed,) = running.sql("LIST QUERIES;")
        assert [each["id"] for each in listed["queries"]] == [good]


def test_a_second_server_with_the_same_folder_is_refused(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    service = _name()
    with (
        running_sql(sql_bootstrap, tmp_path, service) as first,
        pytest.raises(StartFailure, match=r"another SQL server, process [0-9]+, uses the folder"),
        running_sql(sql_bootstrap, tmp_path, service),
    ):
        pass
    assert first.engine.server.problem == ""


def test_a_server_without_the_checkpoints_is_refused_unless_they_are_lost(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    service, name = _name(), _name()
    with running_sql(sql_bootstrap, tmp_path / "one", service) as first:
        query = _create(first, name)
    with (
        pytest.raises(StartFailure, match=f"({query}).*are in the folder .*one"),
        running_sql(sql_bootstrap, tmp_path / "two", service),
    ):
        pass
    lost = {"headrace.sql.folder.lost": "true"}
    with running_sql(sql_bootstrap, tmp_path / "three", service, lost) as third:
        spec = third.host.specs[query]
        assert (spec.generation, spec.properties["start"]) == (1, "earliest")
    with running_sql(sql_bootstrap, tmp_path / "three", service) as again:
        assert again.host.specs[query] == spec


def test_a_deleted_command_topic_and_the_folder_of_another_service_are_refused(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    service = _name()
    with running_sql(sql_bootstrap, tmp_path, service) as first:
        _create(first, _name())
    with (
        pytest.raises(StartFailure, match="belongs to the queries of topic"),
        running_sql(sql_bootstrap, tmp_path, _name()),
    ):
        pass
    recreate_topic(sql_bootstrap, f"_headrace_sql_{service}")
    with (
        pytest.raises(StartFailure, match=r"has no statements.*the topic was deleted"),
        running_sql(sql_bootstrap, tmp_path, service),
    ):
        pass


def test_a_server_stops_its_queries_when_another_one_takes_over(
    sql_bootstrap: str, tmp_path: Path
) -> None:
    service = _name()
    topic = f"_headrace_sql_{service}"
    config = client_config({"bootstrap.servers": sql_bootstrap})
    with running_sql(sql_bootstrap, tmp_path, service) as first:
        query = _create(first, _name())
        assert query in first.host.specs

        async def take_over(claims: bool) -> None:
            writer = TopicWriter(config, {topic: 1}, f"{topic}-writer")
            await writer.take_over()
            if claims:
                claim = ServerClaim("other", "other", "elsewhere:/data", 1)
                await writer.write(topic, [KeyValue(b"server", encode(claim))])
            writer.close()

        asyncio.run(take_over(claims=True))
        _until(lambda: first.host.specs == {})
        failed = first.refused(f"TERMINATE {query};", 503)
        assert "with the folder elsewhere:/data, has started" in failed["message"]
        assert failed["error_code"] == 50302
        assert first.http.get("/health/ready").status_code == 503
        assert first.http.get("/healthcheck").json()["isHealthy"] is False
    # A server that is fenced before it reads the claim finds out when it writes.
    with running_sql(
        sql_bootstrap, tmp_path, service, {"headrace.sql.folder.lost": "true"}
    ) as second:
        asyncio.run(take_over(claims=False))
        failed = second.refused(f"PAUSE {query};", 503)
        assert "Another SQL server of this service has started" in failed["message"]
        _until(lambda: second.host.specs == {})
