"""Statements over REST: what they make, what they answer, and what they refuse."""

import json
import uuid

import pytest

from headrace.sql.hosting import HostedState, QueryStatus
from tests.sql.running import RunningSql
from tests.support.committed import committed_values
from tests.support.topics import create_topic


def _name(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:8]}"


def _orders(running: RunningSql, partitions: int = 3) -> str:
    """A new stream of orders, over a topic of the same name."""
    name = _name("orders")
    running.sql(
        f"CREATE STREAM {name} (id INT KEY, customer VARCHAR, total DOUBLE) WITH "
        f"(kafka_topic='{name}', value_format='json', partitions={partitions});"
    )
    return name


def test_a_stream_is_created_with_its_topic_and_described(running: RunningSql) -> None:
    name = _name("orders")
    (answer,) = running.sql(
        f"CREATE STREAM {name} (id INT KEY, total DECIMAL(10,2), tags ARRAY<VARCHAR>) WITH "
        f"(kafka_topic='{name}', value_format='json', partitions=3);"
    )
    assert answer["@type"] == "currentStatus"
    assert answer["commandId"] == f"stream/{name}/create"
    assert answer["commandStatus"] == {
        "status": "SUCCESS", "message": "Stream created", "queryId": None
    }  # fmt: skip
    assert answer["commandSequenceNumber"] >= 0
    (listed,) = running.sql("LIST STREAMS;")
    assert {
        "type": "STREAM", "name": name, "topic": name, "keyFormat": "KAFKA", "valueFormat": "JSON",
        "isWindowed": False,
    } in listed["streams"]  # fmt: skip
    (described,) = running.sql(f"DESCRIBE {name.upper()} EXTENDED;")
    found = described["sourceDescription"]
    assert found["partitions"] == 3
    assert found["fields"] == [
        {
            "name": "id",
            "schema": {"type": "INTEGER", "fields": None, "memberSchema": None},
            "type": "KEY",
        },
        {
            "name": "total",
            "schema": {
                "type": "DECIMAL", "fields": None, "memberSchema": None,
                "parameters": {"precision": 10, "scale": 2},
            },
        },
        {
            "name": "tags",
            "schema": {
                "type": "ARRAY", "fields": None,
                "memberSchema": {"type": "STRING", "fields": None, "memberSchema": None},
            },
        },
    ]  # fmt: skip
    status = running.http.get(f"/status/stream/{name}/create").json()
    assert status["status"] == "SUCCESS"


def test_errors_have_ksqldbs_body(running: RunningSql) -> None:
    failed = running.refused("CREATE STREAM s (a INT) WITH (kafka_topic='missing-topic', "
                             "value_format='json');")  # fmt: skip
    assert failed["@type"] == "statement_error"
    assert failed["error_code"] == 40001
    assert "missing-topic does not exist" in failed["message"]
    assert "PARTITIONS" in failed["message"]
    assert failed["entities"] == []
    assert failed["statementText"].startswith("CREATE STREAM s")
    wrong = running.refused("CREATE STRAEM s;")
    assert wrong["error_code"] == 40001
    assert "line 1" in wrong["message"]
    assert running.refused("SELECT 1;")["error_code"] in (40001, 40002)
    assert running.refused("LIST STREAMS;", streamsProperties={"no.such": "x"}) == {
        "@type": "generic_error",
        "error_code": 40000,
        "message": "Unknown property no.such. LIST PROPERTIES shows what SET can change",
    }


def test_results_before_an_error_are_in_the_response_and_syntax_errors_change_nothing(
    running: RunningSql,
) -> None:
    name = _name("s")
    create = f"CREATE STREAM {name} (a INT) WITH (kafka_topic='{name}', value_format='json', "
    failed = running.refused(f"{create} partitions=1); DROP STREAM nothing_there;")
    assert failed["statementText"] == "DROP STREAM nothing_there"
    assert [each["commandId"] for each in failed["entities"]] == [f"stream/{name}/create"]
    other = _name("s")
    running.refused(f"{create.replace(name, other)} partitions=1); DROPP STREAM x;")
    (listed,) = running.sql("SHOW STREAMS;")
    assert other not in [each["name"] for each in listed["streams"]]


def test_a_query_is_analysed_stored_and_started(running: RunningSql) -> None:
    orders, big = _orders(running), _name("big")
    (answer,) = running.sql(
        f"CREATE STREAM {big} AS SELECT id, total FROM {orders} WHERE total > 10 EMIT CHANGES;"
    )
    query = answer["commandStatus"]["queryId"]
    assert query.startswith(f"CSAS_{big}_")
    assert answer["commandStatus"]["message"] == f"Created query with ID {query}"
    spec = running.host.specs[query]
    assert spec.target.topic == big
    assert [each.name for each in spec.sources] == [orders]
    # The records that follow the statement are in the result, whenever Spark starts.
    assert json.loads(spec.properties["start"]) == {orders: {"0": 0, "1": 0, "2": 0}}
    (listed,) = running.sql("LIST QUERIES;")
    (row,) = [each for each in listed["queries"] if each["id"] == query]
    assert row["state"] == "RUNNING"
    assert row["statusCount"] == {"RUNNING": 1}
    assert row["sinkKafkaTopics"] == [big]
    assert row["headrace"]["group"] == f"sql-{query}"
    (described,) = running.sql(f"DESCRIBE {big} EXTENDED;")
    assert described["sourceDescription"]["partitions"] == 3
    assert [each["id"] for each in described["sourceDescription"]["writeQueries"]] == [query]
    (summary,) = described["sourceDescription"]["queryOffsetSummaries"]
    assert summary["groupId"] == f"sql-{query}"
    assert [each["partition"] for each in summary["topicSummaries"][0]["offsets"]] == [0, 1, 2]
    (explained,) = running.sql(f"EXPLAIN {query};")
    assert explained["queryDescription"]["topology"] == "== Physical Plan =="
    (early,) = running.sql(
        f"CREATE STREAM {big}_2 AS SELECT id, total FROM {orders};",
        streamsProperties={"ksql.streams.auto.offset.reset": "earliest"},
    )
    spec = running.host.specs[early["commandStatus"]["queryId"]]
    assert spec.properties["start"] == "earliest"


def test_what_spark_refuses_is_neither_stored_nor_created(running: RunningSql) -> None:
    orders, name = _orders(running), _name("wrong")
    running.host.refusal = "cannot resolve the column x"
    try:
        failed = running.refused(f"CREATE STREAM {name} AS SELECT id, total FROM {orders};")
    finally:
        running.host.refusal = None
    assert failed["message"] == "cannot resolve the column x"
    running.host.unavailable = "Spark is starting"
    try:
        failed = running.refused(f"CREATE STREAM {name} AS SELECT id FROM {orders};", 503)
    finally:
        running.host.unavailable = None
    assert failed["error_code"] == 50302
    (topics,) = running.sql("LIST TOPICS;")
    assert name not in [each["name"] for each in topics["topics"]]
    assert "no stream or table" in running.refused(f"DESCRIBE {name};")["message"]


def test_a_table_over_groups_has_a_compacted_topic(running: RunningSql) -> None:
    orders, totals = _orders(running), _name("totals")
    (answer,) = running.sql(
        f"CREATE TABLE {totals} AS SELECT customer, COUNT(*) AS orders FROM {orders} "
        "GROUP BY customer EMIT CHANGES;"
    )
    query = answer["commandStatus"]["queryId"]
    assert query.startswith(f"CTAS_{totals}_")
    running.sql(f"ASSERT TOPIC '{totals}' WITH (partitions=3, 'cleanup.policy'='compact');")
    failed = running.refused(f"ASSERT TOPIC '{totals}' WITH (partitions=4) TIMEOUT 0 SECONDS;", 417)
    assert failed["error_code"] == 41700
    assert f"Topic {totals} has partitions 3, and not 4" in failed["message"]


def test_a_source_is_not_dropped_while_queries_use_it(running: RunningSql) -> None:
    orders, copy, third = _orders(running), _name("copy"), _name("third")
    (made,) = running.sql(f"CREATE STREAM {copy} AS SELECT id, total FROM {orders};")
    query = made["commandStatus"]["queryId"]
    running.sql(
        f"CREATE STREAM {third} (id INT KEY, total DOUBLE) WITH (kafka_topic='{third}', "
        "partitions=1, value_format='json');"
    )
    (made,) = running.sql(f"INSERT INTO {third} SELECT id, total FROM {copy};")
    insert = made["commandStatus"]["queryId"]
    assert insert.startswith("INSERTQUERY_")
    assert query in running.refused(f"DROP STREAM {orders};")["message"]
    assert insert in running.refused(f"DROP STREAM {copy};")["message"]
    assert insert in running.refused(f"DROP STREAM {third};")["message"]
    assert "is a stream, not a table" in running.refused(f"DROP TABLE {copy};")["message"]
    running.sql(f"TERMINATE {insert};")
    assert insert not in running.host.specs
    # Its own query goes with it.
    running.sql(f"DROP STREAM {copy} DELETE TOPIC;")
    assert ("delete", query) in running.host.calls
    running.sql(f"ASSERT NOT EXISTS TOPIC '{copy}' TIMEOUT 10 SECONDS;")
    running.sql(f"DROP STREAM {third}; DROP STREAM {orders}; DROP STREAM IF EXISTS {orders};")


def test_a_query_is_paused_resumed_and_terminated(running: RunningSql) -> None:
    orders, copy = _orders(running), _name("copy")
    (made,) = running.sql(f"CREATE STREAM {copy} AS SELECT id, total FROM {orders};")
    query = made["commandStatus"]["queryId"]
    (paused,) = running.sql(f"PAUSE {query};")
    assert paused["commandStatus"]["message"] == "Query paused."
    assert query not in running.host.specs
    assert ("delete", query) not in running.host.calls
    (listed,) = running.sql("LIST QUERIES;")
    (row,) = [each for each in listed["queries"] if each["id"] == query]
    assert (row["state"], row["statusCount"]) == ("PAUSED", {"PAUSED": 1})
    running.sql(f"RESUME {query};")
    assert query in running.host.specs
    running.host.answers[query] = QueryStatus(
        HostedState.FAILED, "The topic is gone", restarts=2, late_rows=5
    )
    (listed,) = running.sql("LIST QUERIES;")
    (row,) = [each for each in listed["queries"] if each["id"] == query]
    assert (row["state"], row["statusCount"]) == ("FAILED", {"ERROR": 1})
    assert row["headrace"]["error"] == "The topic is gone"
    assert (row["headrace"]["restarts"], row["headrace"]["lateRows"]) == (2, 5)
    running.sql(f"TERMINATE {query};")
    (described,) = running.sql(f"DESCRIBE {copy};")
    assert described["sourceDescription"]["writeQueries"] == []
    assert "There is no query" in running.refused(f"PAUSE {query};")["message"]


def test_or_replace_keeps_the_checkpoint_or_refuses_with_the_ways_out(
    running: RunningSql,
) -> None:
    orders, totals = _orders(running), _name("totals")
    select = f"AS SELECT customer, COUNT(*) AS orders FROM {orders} GROUP BY customer"
    (made,) = running.sql(f"CREATE TABLE {totals} {select};")
    query = made["commandStatus"]["queryId"]
    assert "already exists" in running.refused(f"CREATE TABLE {totals} {select};")["message"]
    (warned,) = running.sql(f"CREATE TABLE IF NOT EXISTS {totals} {select};")
    assert warned["@type"] == "warning_entity"
    changed = select.replace("GROUP", "WHERE total > 1 GROUP")
    running.sql(f"CREATE OR REPLACE TABLE {totals} {changed};")
    assert ("check replace", query) in running.host.calls
    assert running.host.specs[query].generation == 0
    assert "total" in running.host.specs[query].plan.sql
    running.host.replace_refusal = "the value of the state has another schema"
    try:
        failed = running.refused(f"CREATE OR REPLACE TABLE {totals} {select};")
    finally:
        running.host.replace_refusal = None
    assert "the value of the state has another schema" in failed["message"]
    assert "WITH (start='earliest')" in failed["message"]
    assert f"CREATE REPLAY {totals}_v2 OF {totals}" in failed["message"]
    assert "total" in running.host.specs[query].plan.sql, "the old query runs"
    running.sql(f"CREATE OR REPLACE TABLE {totals} WITH (start='earliest') {select};")
    assert running.host.specs[query].generation == 1
    assert running.host.specs[query].properties["start"] == "earliest"
    other = f"AS SELECT total, COUNT(*) AS orders FROM {orders} GROUP BY total"
    failed = running.refused(f"CREATE OR REPLACE TABLE {totals} {other};")
    assert "The key of" in failed["message"]


def test_rows_are_inserted(running: RunningSql, sql_bootstrap: str) -> None:
    name = _orders(running, partitions=1)
    assert running.sql(
        f"INSERT INTO {name} (id, customer, total) VALUES (1, 'ann', 2.5);"
        f"INSERT INTO {name} VALUES (2, 'bob', 3);"
        f"INSERT INTO {name} (rowtime, id) VALUES (1000, 3);"
    ) == []  # fmt: skip
    assert [json.loads(each) for each in committed_values(sql_bootstrap, name)] == [
        {"customer": "ann", "total": 2.5},
        {"customer": "bob", "total": 3.0},
        {"customer": None, "total": None},
    ]
    assert "has 3 columns" in running.refused(f"INSERT INTO {name} VALUES (1);")["message"]
    assert "no column x" in running.refused(f"INSERT INTO {name} (x) VALUES (1);")["message"]
    assert "no stream or table" in running.refused("INSERT INTO nowhere VALUES (1);")["message"]


def test_inserts_of_a_select_fit_the_target(running: RunningSql) -> None:
    orders, target = _orders(running), _name("t")
    running.sql(
        f"CREATE STREAM {target} (id BIGINT KEY, total DOUBLE, note VARCHAR) WITH "
        f"(kafka_topic='{target}', value_format='json', partitions=1);"
    )
    (made,) = running.sql(f"INSERT INTO {target} SELECT id, total FROM {orders};")
    spec = running.host.specs[made["commandStatus"]["queryId"]]
    assert spec.plan.columns == ("id", "total", "note")
    assert spec.plan.keys == ("id",)
    assert "CAST(`id` AS bigint) AS `id`" in spec.plan.sql
    assert "CAST(NULL AS string) AS `note`" in spec.plan.sql
    failed = running.refused(f"INSERT INTO {target} SELECT id, customer FROM {orders};")
    assert "has no column customer" in failed["message"]


def test_variables_and_properties_hold_for_the_request(running: RunningSql) -> None:
    name = _name("s")
    create = (
        "CREATE STREAM ${name} (a INT) WITH (kafka_topic='${name}', value_format='json', "
        "partitions=1);"
    )
    running.sql(f"DEFINE name = '{name}'; {create} DROP STREAM ${{name}};")
    running.sql(create, sessionVariables={"name": f"{name}_2"})
    assert "not defined" in running.refused(create)["message"]
    (listed,) = running.sql("DEFINE a = 'b'; LIST VARIABLES;")
    assert listed["variables"] == [{"name": "a", "value": "b"}]
    (listed,) = running.sql("SET 'auto.offset.reset'='earliest'; LIST PROPERTIES;")
    values = {each["name"]: each["value"] for each in listed["properties"]}
    assert values["ksql.streams.auto.offset.reset"] == "earliest"
    assert values["ksql.service.id"] == running.service
    assert running.http.get("/is_valid_property/auto.offset.reset").json() is True
    assert running.http.get("/is_valid_property/ksql.service.id").status_code == 400


def test_types_stand_for_what_they_name(running: RunningSql) -> None:
    kind, name = _name("address"), _name("people")
    running.sql(f"CREATE TYPE {kind} AS STRUCT<street VARCHAR, number INT>;")
    running.sql(
        f"CREATE STREAM {name} (id INT KEY, home {kind}) WITH (kafka_topic='{name}', "
        "partitions=1, value_format='json');"
    )
    (listed,) = running.sql("LIST TYPES;")
    assert listed["types"][kind]["type"] == "STRUCT"
    assert "already" in running.refused(f"CREATE TYPE {kind} AS INT;")["message"]
    running.sql(f"DROP TYPE {kind}; DROP TYPE IF EXISTS {kind};")
    (described,) = running.sql(f"DESCRIBE {name};")
    assert described["sourceDescription"]["fields"][1]["schema"]["type"] == "STRUCT"


def test_functions_need_the_operators_permission(running: RunningSql) -> None:
    failed = running.refused(
        "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x + 1 $$;"
    )
    assert "headrace.sql.functions.enable" in failed["message"]


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_columns_are_added(running: RunningSql, kind: str) -> None:
    name = _name("wide")
    key = "KEY" if kind == "STREAM" else "PRIMARY KEY"
    running.sql(
        f"CREATE {kind} {name} (id INT {key}, a INT) WITH (kafka_topic='{name}', partitions=1, "
        "value_format='json');"
    )
    running.sql(f"ALTER {kind} {name} ADD COLUMN b VARCHAR;")
    (described,) = running.sql(f"DESCRIBE {name};")
    fields = [each["name"] for each in described["sourceDescription"]["fields"]]
    assert fields == ["id", "a", "b"]
    assert "already" in running.refused(f"ALTER {kind} {name} ADD COLUMN B INT;")["message"]


def test_an_existing_topic_needs_no_partitions_and_must_have_those_that_are_named(
    running: RunningSql, sql_bootstrap: str
) -> None:
    topic = _name("there")
    create_topic(sql_bootstrap, topic, 2)
    create = f"(a INT) WITH (kafka_topic='{topic}', value_format='json'"
    running.sql(f"CREATE STREAM {topic}_1 {create});")
    failed = running.refused(f"CREATE STREAM {topic}_2 {create}, partitions=3);")
    assert "exists with 2 partitions" in failed["message"]


def test_sequence_numbers_are_waited_for(running: RunningSql) -> None:
    name = _name("s")
    (made,) = running.sql(
        f"CREATE STREAM {name} (a INT) WITH (kafka_topic='{name}', partitions=1, "
        "value_format='json');"
    )
    number = made["commandSequenceNumber"]
    (listed,) = running.sql("LIST STREAMS;", commandSequenceNumber=number)
    assert name in [each["name"] for each in listed["streams"]]
