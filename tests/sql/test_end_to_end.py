"""A server with its Spark driver: the statements of ksqlDB's tutorial, and servers that die."""

import json
import uuid
from collections.abc import Iterator

import pytest

from tests.sql.sql_process import SqlProcess, wait
from tests.support.committed import committed_values

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

LOCATIONS = """
CREATE STREAM riderLocations (profileId VARCHAR, latitude DOUBLE, longitude DOUBLE)
  WITH (kafka_topic='{n}locations', value_format='json', partitions=1);
CREATE TABLE currentLocation AS
  SELECT profileId,
         LATEST_BY_OFFSET(latitude) AS la,
         LATEST_BY_OFFSET(longitude) AS lo
  FROM riderLocations
  GROUP BY profileId
  EMIT CHANGES;
"""
INSERTS = """
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('c2309eec', 37.7877, -122.4205);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('18f4ea86', 37.3903, -122.0643);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4ab5cbad', 37.3952, -122.0813);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('8b6eae59', 37.3944, -122.0813);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4a7c7b41', 37.4049, -122.0822);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('4ddad000', 37.7857, -122.4011);
"""


@pytest.fixture(scope="module")
def server(sql_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlProcess]:
    folder = tmp_path_factory.mktemp("sql")
    settings = {"headrace.sql.functions.enable": "true"}
    running = SqlProcess(sql_bootstrap, folder, f"e2e-{uuid.uuid4().hex[:8]}", settings)
    yield running
    running.stop()


def test_the_tutorial_runs_and_survives_kills_of_driver_and_server(
    server: SqlProcess, sql_bootstrap: str
) -> None:
    n = uuid.uuid4().hex[:8]
    server.sql(LOCATIONS.format(n=n))
    server.sql(INSERTS)
    select = "SELECT * FROM currentLocation WHERE profileId = '4ab5cbad';"
    wait(lambda: server.rows(select), bool)
    assert server.rows(select) == [["4ab5cbad", 37.3952, -122.0813]]
    query = next(each for each in server.states() if "currentLocation" in each)
    # A second query, over the records from the beginning on.
    server.sql(
        "CREATE STREAM north AS SELECT profileId, latitude FROM riderLocations "
        "WHERE latitude > 37.5;",
        streamsProperties={"auto.offset.reset": "earliest"},
    )
    server.kill_driver()
    insert = "INSERT INTO riderLocations VALUES ('{}', {}, -122.0);"
    server.sql(insert.format("4ab5cbad", 38.5))
    wait(lambda: server.rows(select), lambda rows: rows == [["4ab5cbad", 38.5, -122.0]])
    server.kill()
    server.start()
    assert set(server.states()) >= {query}
    server.sql(insert.format("4ab5cbad", 39.5) + insert.format("new", 40.5))
    wait(lambda: server.rows(select), lambda rows: rows == [["4ab5cbad", 39.5, -122.0]])
    assert sorted(row[0] for row in server.rows("SELECT profileId FROM currentLocation;")) == [
        "18f4ea86", "4a7c7b41", "4ab5cbad", "4ddad000", "8b6eae59", "c2309eec", "new",
    ]  # fmt: skip
    wait(lambda: len(committed_values(sql_bootstrap, "north")), lambda count: count >= 5)
    values = [json.loads(each) for each in committed_values(sql_bootstrap, "north")]
    found = sorted(each["latitude"] for each in values)
    assert found == [37.7857, 37.7877, 38.5, 39.5, 40.5], "each row once"
    (described,) = server.sql("DESCRIBE currentLocation EXTENDED;")
    (row,) = described["sourceDescription"]["writeQueries"]
    assert row["state"] == "RUNNING"


def test_a_query_is_replaced_with_its_state_or_not_at_all(server: SqlProcess) -> None:
    n = f"o{uuid.uuid4().hex[:8]}"
    totals = f"{n}_totals"
    server.sql(
        f"CREATE STREAM {n} (id INT KEY, customer VARCHAR, total DOUBLE) WITH "
        f"(kafka_topic='{n}', value_format='json', partitions=2);"
    )
    server.sql(
        f"CREATE TABLE {totals} AS SELECT customer, COUNT(*) AS orders FROM {n} GROUP BY customer;"
    )
    insert = f"INSERT INTO {n} VALUES ({{}}, '{{}}', {{}});"

    def count(customer: str) -> list[list[object]]:
        return server.rows(f"SELECT orders FROM {totals} WHERE customer = '{customer}';")

    server.sql(insert.format(1, "ann", 5) + insert.format(2, "ann", 50))
    wait(lambda: count("ann"), lambda rows: rows == [[2]])
    server.sql(
        f"CREATE OR REPLACE TABLE {totals} AS SELECT customer, COUNT(*) AS orders FROM {n} "
        "WHERE total > 10 GROUP BY customer;"
    )
    server.sql(insert.format(3, "ann", 5) + insert.format(4, "ann", 60))
    wait(lambda: count("ann"), lambda rows: rows == [[3]])
    other = f"AS SELECT customer, COUNT(*) AS orders, SUM(total) AS s FROM {n} GROUP BY customer;"
    message = server.refused(f"CREATE OR REPLACE TABLE {totals} {other}")
    assert "cannot continue with the state" in message
    server.sql(insert.format(5, "ann", 70))
    wait(lambda: count("ann"), lambda rows: rows == [[4]])
    server.sql(f"CREATE OR REPLACE TABLE {totals} WITH (start='earliest') {other}")
    wait(lambda: count("ann"), lambda rows: rows == [[5]])
    sums = server.rows(f"SELECT s FROM {totals} WHERE customer = 'ann';")
    assert sums == [[190.0]]
    # Spark has the last word, and nothing is stored that it refuses.
    message = server.refused(
        f"CREATE STREAM {n}_wrong AS SELECT id, no_such_function(total) AS x FROM {n};"
    )
    assert "no_such_function" in message
    (topics,) = server.sql("LIST TOPICS;")
    assert f"{n}_wrong" not in [each["name"] for each in topics["topics"]]


def test_functions_inserts_and_push_queries_run_with_spark(
    server: SqlProcess, sql_bootstrap: str
) -> None:
    n = f"f{uuid.uuid4().hex[:8]}"
    server.sql(
        f"CREATE STREAM {n} (id INT KEY, total DOUBLE) WITH (kafka_topic='{n}', "
        "value_format='json', partitions=1);"
        f"CREATE STREAM {n}_out (id INT KEY, total DOUBLE, note VARCHAR) WITH "
        f"(kafka_topic='{n}_out', value_format='json', partitions=1);"
        f"CREATE FUNCTION {n}_twice(x DOUBLE) RETURNS DOUBLE LANGUAGE PYTHON AS $$\n"
        "return 2 * x\n$$;"
    )
    server.sql(f"INSERT INTO {n}_out SELECT id, {n}_twice(total) AS total FROM {n};")
    server.sql(f"INSERT INTO {n} VALUES (1, 1.5);")
    body = {
        "sql": f"SELECT id, SUM(total) AS s FROM {n} GROUP BY id EMIT CHANGES LIMIT 1;",
        "properties": {"auto.offset.reset": "earliest"},
    }
    with server.http.stream("POST", "/query-stream", json=body) as response:
        lines = list(response.iter_lines())
    assert lines[1:] == ["[1,1.5]"]
    wait(lambda: committed_values(sql_bootstrap, f"{n}_out"), bool)
    values = [json.loads(each) for each in committed_values(sql_bootstrap, f"{n}_out")]
    assert values == [{"total": 3.0, "note": None}]
    (explained,) = server.sql(
        f"EXPLAIN SELECT id, COUNT(*) AS c FROM {n} GROUP BY id EMIT CHANGES;"
    )
    assert "Aggregate" in explained["queryDescription"]["topology"]
