"""Statements that need a schema registry, Kafka Connect, functions, or a role."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.admin.connect_client import ConnectRest
from headrace.schemas.client import SchemaClient
from headrace.security.http_users import verifier_text, write_user
from tests.connect.running import running_connect
from tests.sql.running import RunningSql, running_sql
from tests.support.headrace_registry import HeadraceRegistry
from tests.support.topics import create_topic

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "long"}},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "street", "type": "string"}],
            },
        },
    ],
}


@pytest.fixture(scope="module")
def registry(
    sql_bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchemaClient]:
    topic = f"_schemas_{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("registry")
    with HeadraceRegistry(sql_bootstrap, folder, topic=topic) as running:
        yield SchemaClient((running.url,))


@pytest.fixture(scope="module")
def sql(
    sql_bootstrap: str, registry: SchemaClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSql]:
    settings = {"headrace.sql.functions.enable": "true"}
    with running_connect(sql_bootstrap) as connect:
        rest = ConnectRest(str(connect.http.base_url).rstrip("/"))
        folder = tmp_path_factory.mktemp("server")
        with running_sql(sql_bootstrap, folder, None, settings, registry, rest) as running:
            yield running


@pytest.fixture
def name() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def test_columns_that_are_left_out_are_those_of_the_registry(
    sql: RunningSql, registry: SchemaClient, sql_bootstrap: str, name: str
) -> None:
    create_topic(sql_bootstrap, name, 1)
    create = f"CREATE STREAM {name} WITH (kafka_topic='{name}', value_format='avro');"
    failed = sql.refused(create)
    assert f"subject {name}-value" in failed["message"]
    registry.register(f"{name}-value", "AVRO", json.dumps(ORDER))
    registry.register(f"{name}-key", "AVRO", '"long"')
    sql.sql(create)
    (found,) = sql.sql(f"DESCRIBE {name};")
    fields = found["sourceDescription"]["fields"]
    assert [(each["name"], each["schema"]["type"]) for each in fields] == [
        ("customer", "STRING"), ("lines", "ARRAY"), ("address", "STRUCT"),
    ]  # fmt: skip
    sql.sql(f"CREATE TABLE {name}_t WITH (kafka_topic='{name}', format='avro');")
    (found,) = sql.sql(f"DESCRIBE {name}_t;")
    first = found["sourceDescription"]["fields"][0]
    assert (first["name"], first["schema"]["type"], first["type"]) == ("ROWKEY", "BIGINT", "KEY")
    wrong = sql.refused(f"CREATE STREAM w WITH (kafka_topic='{name}', value_format='protobuf');")
    assert "not of the format PROTOBUF" in wrong["message"]


def test_rows_are_inserted_with_their_schema(
    sql: RunningSql, registry: SchemaClient, name: str
) -> None:
    sql.sql(
        f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, town VARCHAR) WITH (kafka_topic='{name}', "
        "format='avro', partitions=1);"
    )
    sql.sql(f"INSERT INTO {name} VALUES (7, 'oslo');")
    sql.sql(f"ASSERT SCHEMA SUBJECT '{name}-value' TIMEOUT 5 SECONDS;")
    failed = sql.refused(f"ASSERT NOT EXISTS SCHEMA SUBJECT '{name}-value';", 417)
    assert failed["error_code"] == 41700
    response = sql.http.post("/query-stream", json={"sql": f"SELECT * FROM {name};"})
    assert response.text.splitlines()[1:] == ['[7,"oslo"]']
    printed = sql.http.post("/query", json={"ksql": f"PRINT '{name}' FROM BEGINNING LIMIT 1;"})
    assert 'value: {"town": "oslo"}' in printed.text


def test_formats_with_schemas_need_a_registry(running: RunningSql) -> None:
    failed = running.refused("CREATE STREAM a WITH (kafka_topic='a', value_format='avro');", 428)
    assert failed["error_code"] == 42801
    assert "--registry" in failed["message"]


def test_connectors_are_those_of_connect(sql: RunningSql, running: RunningSql, name: str) -> None:
    create = (
        f"CREATE SOURCE CONNECTOR {name} WITH ('connector.class'='FileStreamSource', "
        "'topic'='lines', 'file'='/dev/null');"
    )
    (made,) = sql.sql(create)
    assert made["info"]["config"]["topic"] == "lines"
    (listed,) = sql.sql("LIST SOURCE CONNECTORS;")
    assert name in [each["name"] for each in listed["connectors"]]
    (described,) = sql.sql(f"DESCRIBE CONNECTOR {name};")
    assert described["connectorClass"] == "FileStreamSource"
    assert "already exists" in sql.refused(create)["message"]
    (warned,) = sql.sql(create.replace("CONNECTOR", "CONNECTOR IF NOT EXISTS"))
    assert warned["@type"] == "warning_entity"
    sql.sql(f"DROP CONNECTOR {name}; DROP CONNECTOR IF EXISTS {name};")
    assert "--connect" in running.refused("LIST CONNECTORS;")["message"]


def test_functions_are_stored_and_given_to_the_queries_that_use_them(
    sql: RunningSql, name: str
) -> None:
    sql.sql(
        f"CREATE FUNCTION {name}_f(x INT) RETURNS INT LANGUAGE PYTHON AS $$\n    y = x + 1\n"
        "    return y\n$$;"
    )
    wrong = f"CREATE FUNCTION {name}_g(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return ( $$;"
    assert "is not Python" in sql.refused(wrong)["message"]
    (described,) = sql.sql(f"DESCRIBE FUNCTION {name}_f;")
    assert described["functions"][0]["returnType"] == "INTEGER"
    sql.sql(
        f"CREATE STREAM {name} (a INT) WITH (kafka_topic='{name}', value_format='json', "
        "partitions=1);"
    )
    (made,) = sql.sql(f"CREATE STREAM {name}_2 AS SELECT {name}_f(a) AS b FROM {name};")
    (other,) = sql.sql(f"CREATE STREAM {name}_3 AS SELECT a FROM {name};")
    specs = [sql.host.specs[each["commandStatus"]["queryId"]] for each in (made, other)]
    assert [each.name for each in specs[0].functions] == [f"{name}_f"]
    assert specs[1].functions == ()
    sql.sql(f"DROP FUNCTION {name}_f;")


def test_statements_need_a_role(sql_bootstrap: str, tmp_path: Path, name: str) -> None:
    users = tmp_path / "users"
    for role in ("read", "write", "admin"):
        write_user(users, role, f"{verifier_text('secret')},{role}")
    settings = {
        "authentication.method": "BASIC",
        "headrace.authentication.users.file": str(users),
        "headrace.sql.functions.enable": "true",
    }
    create = (
        f"CREATE STREAM {name} (a INT) WITH (kafka_topic='{name}', value_format='json', "
        "partitions=1);"
    )
    function = "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$;"
    with running_sql(sql_bootstrap, tmp_path / "sql", None, settings) as running:

        def ask(user: str, text: str) -> httpx.Response:
            body = {"ksql": text}
            return running.http.post("/ksql", json=body, auth=(user, "secret"))

        assert running.http.get("/info").status_code == 401
        assert ask("read", "LIST STREAMS;").status_code == 200
        refused = ask("read", f"LIST STREAMS; {create}")
        assert (refused.status_code, refused.json()["error_code"]) == (403, 40300)
        assert ask("write", create).status_code == 200
        assert ask("write", function).status_code == 403
        assert ask("admin", function).status_code == 200
        terminate = running.http.post("/ksql/terminate", json={}, auth=("write", "secret"))
        assert terminate.status_code == 403
        everything = {"deleteTopicList": [".*"]}
        terminate = running.http.post("/ksql/terminate", json=everything, auth=("admin", "secret"))
        assert (terminate.status_code, terminate.json()) == (200, [])
        assert ask("read", "LIST STREAMS;").json()[0]["streams"] == []
        assert running.http.get("/health/live").status_code == 200
