"""SQL over the console's API: what each role may run, what the audit log has, and queries that run
until they are ended. The SQL server is real; its Spark is a stand-in."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.console.sql.statements import StatementKind, read_statement
from headrace.security.http_users import verifier_text, write_user
from headrace.security.roles import Role
from headrace.service.errors import HttpError
from headrace.testing.running import RunningBroker
from tests.sql.running import RunningSql, running_sql
from tests.support.headrace_console import HeadraceConsole
from tests.support.stores import eventually

PASSWORD = "correct horse"
JSON = "value_format='json', partitions=1"
ORDERS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR, total DECIMAL(20, 2)) "
    f"WITH (kafka_topic='orders', {JSON});"
)


@pytest.fixture(scope="module")
def sql(headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSql]:
    with running_sql(headrace.bootstrap_servers, tmp_path_factory.mktemp("sql")) as server:
        server.sql(ORDERS)
        server.sql("INSERT INTO orders VALUES (9007199254740993, 'ann', 12345678901234567.89);")
        yield server


@pytest.fixture(scope="module")
def with_sql(
    headrace: RunningBroker, sql: RunningSql, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console with a login, and a user for each role, who has the name of the role."""
    folder = tmp_path_factory.mktemp("console")
    for role in Role:
        name = role.name.lower()
        write_user(folder / "users", name, f"{verifier_text(PASSWORD)},{name}")
    with HeadraceConsole(
        headrace.bootstrap_servers, folder, "--sql", str(sql.http.base_url),
        "--set", "authentication.method=BASIC",
        "--set", f"headrace.authentication.users.file={folder}/users",
        "--set", f"headrace.audit.file={folder}/audit.log",
    ) as running:  # fmt: skip
        yield running


def api(console: HeadraceConsole, role: Role | None = Role.ADMIN) -> httpx.Client:
    auth = None if role is None else (role.name.lower(), PASSWORD)
    return httpx.Client(base_url=f"{console.url}/api/sql", auth=auth, timeout=60)


def audit(console: HeadraceConsole) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (console.folder / "audit.log").read_text().splitlines()]


def rows_of(client: httpx.Client, sql: str) -> list[list[str]]:
    """All rows of a pull query."""
    started = client.post("/rows", json={"sql": sql})
    assert started.status_code == 200, started.text
    rows: list[list[str]] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        taken = client.get(f"/rows/{started.json()['id']}").json()
        rows += taken["rows"]
        if taken["end"]:
            assert taken["end"] == "ended", taken
            return rows
    raise AssertionError("the query did not end")


def test_lists_have_streams_tables_columns_functions_and_queries(
    with_sql: HeadraceConsole, sql: RunningSql
) -> None:
    with api(with_sql, Role.VIEW) as client:
        assert client.get("").json()["service"] == sql.service
        assert {"COUNT", "SUM"} <= set(client.get("").json()["functions"])
        (table,) = client.get("/sources").json()["sources"]
        assert (table["name"], table["type"], table["topic"]) == ("orders", "TABLE", "orders")
        assert [each["name"] for each in table["fields"]] == ["id", "customer", "total"]
        described = client.get("/sources/orders").json()["sourceDescription"]
        assert (described["extended"], described["partitions"]) == (True, 1)
        assert client.get("/queries").json() == {"queries": [], "warnings": []}
        assert client.get("/sources/none").status_code == 400


def test_rows_have_all_digits(with_sql: HeadraceConsole) -> None:
    with api(with_sql, Role.READ) as client:
        rows = rows_of(client, "SELECT * FROM orders")
        assert rows == [["9007199254740993", '"ann"', "12345678901234567.89"]]
        found = client.post("/rows", json={"sql": "SELECT *\nFRM orders"})
        assert (found.status_code, found.json()["message"][:7]) == (400, "line 2,")
        printed = client.post("/rows", json={"sql": "PRINT orders FROM BEGINNING LIMIT 1;"}).json()
        assert printed["columns"] == [{"name": "record", "type": "TEXT"}]


def test_a_push_query_goes_on_until_it_is_ended(with_sql: HeadraceConsole, sql: RunningSql) -> None:
    with api(with_sql, Role.READ) as client:
        body = {"sql": "SELECT customer FROM orders EMIT CHANGES;",
                "properties": {"auto.offset.reset": "latest"}}  # fmt: skip
        started = client.post("/rows", json=body).json()
        assert started["is_push"]
        sql.sql("INSERT INTO orders VALUES (2, 'bob', 1);")
        found: list[list[str]] = []

        def taken() -> bool:
            found.extend(client.get(f"/rows/{started['id']}").json()["rows"])
            return ['"bob"'] in found

        eventually(taken, "the row comes")
        with api(with_sql, Role.ADMIN) as other:
            assert other.get(f"/rows/{started['id']}").status_code == 404, "it is another user's"
        assert client.delete(f"/rows/{started['id']}").status_code == 200
        assert client.get(f"/rows/{started['id']}").status_code == 404
        eventually(lambda: not sql.engine.queries.running, "the server has ended it, too")


def test_a_role_may_run_what_it_allows(with_sql: HeadraceConsole, sql: RunningSql) -> None:
    change = f"CREATE STREAM of_role (a INT) WITH (kafka_topic='of_role', {JSON})"
    code = "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x; $$"
    with api(with_sql, Role.VIEW) as client:
        assert client.post("/rows", json={"sql": "SELECT * FROM orders"}).status_code == 403
        assert client.post("/statements", json={"sql": "LIST STREAMS"}).status_code == 403
    with api(with_sql, Role.READ) as client:
        assert client.post("/statements", json={"sql": "LIST STREAMS"}).status_code == 200
        assert client.post("/changes", json={"sql": change}).status_code == 403
        for path in ("/statements", "/rows"):
            for hidden in (change, f"LIST STREAMS; {change}", f"SELECT 1; {change}"):
                assert client.post(path, json={"sql": hidden}).status_code == 400, (path, hidden)
        session = {"sql": "LIST STREAMS", "session": [change]}
        assert client.post("/statements", json=session).status_code == 400
    with api(with_sql, Role.WRITE) as client:
        found = client.post("/changes", json={"sql": code})
        assert (found.status_code, "needs the role admin" in found.text) == (403, True)
        found = client.post("/changes", json={"sql": change})
        assert found.status_code == 200, found.text
        drop = {"sql": "DROP STREAM of_role DELETE TOPIC"}
        assert client.post("/changes", json=drop).status_code == 200
    with api(with_sql, Role.ADMIN) as client:
        found = client.post("/changes", json={"sql": code})
        assert "does not allow CREATE FUNCTION" in found.json()["message"], "the server says it"


def test_the_server_refuses_what_the_role_of_a_request_does_not_allow(sql: RunningSql) -> None:
    """Also if the console took a statement for another one."""
    headers = {"x-headrace-role": "read"}
    found = sql.http.post("/ksql", json={"ksql": "DROP TABLE orders;"}, headers=headers)
    assert (found.status_code, "needs the role write" in found.text) == (403, True)
    found = sql.http.post("/ksql", json={"ksql": "LIST TABLES;"}, headers=headers)
    assert found.status_code == 200
    found = sql.http.post("/ksql", json={"ksql": "LIST TABLES;"}, headers={"x-headrace-role": "x"})
    assert found.status_code == 400


def test_queries_are_paused_resumed_and_terminated(
    with_sql: HeadraceConsole, sql: RunningSql
) -> None:
    sql.sql(f"CREATE STREAM clicks (a INT) WITH (kafka_topic='clicks', {JSON});")
    sql.sql("CREATE STREAM some AS SELECT a FROM clicks;")
    with api(with_sql, Role.WRITE) as client:
        (query,) = client.get("/queries").json()["queries"]
        assert (query["state"], query["headrace"]["lag"]) == ("RUNNING", 0)
        place = f"/queries/{query['id']}"
        assert client.get(place).json()["queryDescription"]["sinks"] == ["some"]
        with api(with_sql, Role.READ) as reader:
            assert reader.post(f"{place}/pause", json={}).status_code == 403
        assert client.post(f"{place}/pause", json={}).status_code == 200
        sql.host.answers.clear()
        assert client.post(f"{place}/resume", json={}).status_code == 200
        assert client.post(f"{place}/delete", json={}).status_code == 404
        assert client.post(f"{place}/terminate", json={}).status_code == 200
        assert client.get("/queries").json()["queries"] == []
        assert client.post("/queries/none/pause", json={}).status_code == 400
    changes = [each for each in audit(with_sql) if each["event"] == "console_change"]
    assert [(each["query"], each["action"]) for each in changes if "action" in each][:2] == [
        (query["id"], "pause"), (query["id"], "resume"),
    ]  # fmt: skip


def test_the_audit_log_has_statements_without_values_and_secrets(
    with_sql: HeadraceConsole,
) -> None:
    with api(with_sql) as client:
        client.post("/changes", json={"sql": "INSERT INTO orders VALUES (3, 'SECRET', 1)"})
        client.post(
            "/changes",
            json={"sql": "CREATE SINK CONNECTOR c WITH ('password'='SECRET')"},
        )
        client.post("/changes", json={"sql": "DROP STREAM 'SECRET"})
        rows_of(client, "SELECT customer FROM orders WHERE id = 2")
    lines = audit(with_sql)
    assert "SECRET" not in json.dumps(lines)
    statements = [each["request"]["sql"] for each in lines if "sql" in each.get("request", {})]
    assert statements[-4:] == [
        "INSERT INTO orders VALUES",
        "CREATE SINK CONNECTOR c WITH",
        "",
        "SELECT customer FROM orders WHERE id = 2",
    ]
    assert (lines[-1]["event"], lines[-1]["principal"]) == ("records_read", "User:admin")
    failed = next(each for each in lines if each.get("request", {}).get("sql", "").endswith("WITH"))
    assert failed["result"] == "failed"


def test_a_read_only_console_changes_nothing(
    headrace: RunningBroker, sql: RunningSql, tmp_path: Path
) -> None:
    url = str(sql.http.base_url)
    options = ("--sql", url, "--read-only")
    with (
        HeadraceConsole(headrace.bootstrap_servers, tmp_path, *options) as found,
        api(found, None) as client,
    ):
        assert client.post("/changes", json={"sql": "DROP TABLE orders"}).status_code == 404
        assert client.post("/queries/x/pause", json={}).status_code == 404
        assert rows_of(client, "SELECT customer FROM orders WHERE id = 2") == [['"bob"']]


def test_fields_that_are_masked_are_not_read_by_sql(
    headrace: RunningBroker, sql: RunningSql, tmp_path: Path
) -> None:
    url = str(sql.http.base_url)
    masks = "console.masks=orders:value.customer"
    options = ("--sql", url, "--set", masks)
    with (
        HeadraceConsole(headrace.bootstrap_servers, tmp_path, *options) as found,
        api(found, None) as client,
    ):
        for sent, path in (
            ("SELECT * FROM orders", "/rows"),
            ("PRINT orders FROM BEGINNING", "/rows"),
            ("CREATE STREAM copy AS SELECT * FROM orders", "/changes"),
        ):
            answer = client.post(path, json={"sql": sent})
            assert (answer.status_code, "console.masks" in answer.text) == (403, True), sent
        assert client.post("/statements", json={"sql": "LIST TABLES"}).status_code == 200


def test_without_a_server_the_reason_is_told(console: HeadraceConsole, tmp_path: Path) -> None:
    found = console.http.get("/sql")
    assert (found.status_code, found.json()["message"]) == (
        501, "the console was started without --sql",
    )  # fmt: skip
    with HeadraceConsole(console.bootstrap, tmp_path, "--sql", "http://127.0.0.1:1") as other:
        found = other.http.get("/sql")
        assert (found.status_code, "does not answer" in found.json()["message"]) == (502, True)


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("select 1;", "query", "select 1"),
        ("-- note\n(SELECT a FROM b)", "query", "(SELECT a FROM b)"),
        ("DESCRIBE `a;b` EXTENDED;", "read", "DESCRIBE `a;b` EXTENDED"),
        ("/* ; */ SET 'a'='b'", "session", "SET 'a'='b'"),
        ("'x' LIST STREAMS", "change", "'x' LIST STREAMS"),
        (
            "create or replace function f() as $$ a; $$",
            "code",
            "create or replace function f() as ",
        ),
        ("INSERT INTO a SELECT b FROM c", "change", "INSERT INTO a SELECT b FROM c"),
        ("ALTER SYSTEM 'a'='b'", "code", "ALTER SYSTEM 'a'='b'"),
    ],
)
def test_statements_are_known_by_their_first_words(text: str, kind: str, shown: str) -> None:
    found = read_statement(text)
    assert (found.kind, found.shown) == (StatementKind(kind), shown)


@pytest.mark.parametrize("text", ["", " ; ", "-- only", "a; b", "'open", "/* open", "x" * 100_001])
def test_a_text_without_one_statement_is_refused(text: str) -> None:
    with pytest.raises(HttpError):
        read_statement(text)
