"""Scripts as tutorials of ksqlDB have them: every statement is read, every SELECT is planned."""

import pytest

from headrace.sql.language.declaring import declared_source, derived_source
from headrace.sql.language.parsing import parse
from headrace.sql.language.planning import plan
from headrace.sql.language.script import split
from headrace.sql.language.statements import (
    CreateAs,
    CreateSource,
    InsertSelect,
    InsertValues,
    SelectStatement,
)
from headrace.sql.plans import PlanKind
from headrace.sql.sources import SqlSource

RIDERS = """
-- Where riders are
CREATE STREAM riderLocations (profileId VARCHAR, latitude DOUBLE, longitude DOUBLE)
  WITH (kafka_topic='locations', value_format='json', partitions=1);

CREATE TABLE currentLocation AS
  SELECT profileId,
         LATEST_BY_OFFSET(latitude) AS la,
         LATEST_BY_OFFSET(longitude) AS lo
  FROM riderlocations
  GROUP BY profileId
  EMIT CHANGES;

-- Mountain View lat, long: 37.4133, -122.1162
SELECT * FROM riderLocations
  WHERE GEO_DISTANCE(latitude, longitude, 37.4133, -122.1162) <= 5 EMIT CHANGES;

INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('c1', 37.79, -122.42);
INSERT INTO riderLocations (profileId, latitude, longitude) VALUES ('c2', 37.39, -122.08);

-- Riders near Mountain View: in ksqlDB this is CREATE TABLE ... AS SELECT
SELECT ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1) AS distanceInMiles,
       COLLECT_LIST(profileId) AS riders,
       COUNT(*) AS count
  FROM currentLocation
  GROUP BY ROUND(GEO_DISTANCE(la, lo, 37.4133, -122.1162), -1);
SELECT profileId, la, lo FROM currentLocation WHERE profileId = 'c1';
"""

MOVIES = """
CREATE STREAM ratings (id INT KEY, title VARCHAR, release_year INT, rating DOUBLE, at_time VARCHAR)
    WITH (kafka_topic='ratings', partitions=2, value_format='avro', timestamp='at_time',
          timestamp_format='yyyy-MM-dd HH:mm:ss');
CREATE TABLE movies (id INT PRIMARY KEY, title VARCHAR, lead_actor STRUCT<name VARCHAR, born INT>)
    WITH (kafka_topic='movies', partitions=2, value_format='avro');
CREATE STREAM rated_movies WITH (kafka_topic='rated_movies', value_format='avro') AS
    SELECT ratings.id AS id, movies.title, rating, movies.lead_actor->name AS lead
    FROM ratings LEFT JOIN movies ON ratings.id = movies.id;
CREATE TABLE rating_counts AS
    SELECT title, COUNT(*) AS rating_count, WINDOWSTART AS window_start, WINDOWEND AS window_end
    FROM ratings WINDOW TUMBLING (SIZE 6 HOURS) GROUP BY title EMIT CHANGES;
CREATE TABLE top AS
    SELECT release_year, MAX(rating) AS best, TOPK(rating, 3) AS three, COUNT_DISTINCT(title) AS n
    FROM ratings GROUP BY release_year HAVING COUNT(*) > 1 EMIT CHANGES;
CREATE STREAM by_title AS SELECT title, id, rating FROM ratings PARTITION BY title EMIT CHANGES;
CREATE STREAM all_ratings AS SELECT * FROM ratings EMIT CHANGES;
INSERT INTO all_ratings SELECT * FROM ratings WHERE rating > 4 EMIT CHANGES;
INSERT INTO ratings (id, title, release_year, rating, at_time)
    VALUES (1, 'A Title', 1998, 8.2, '2026-01-02 03:04:05');
SELECT title, COUNT(*) FROM ratings GROUP BY title EMIT CHANGES LIMIT 2;
"""

PAYMENTS = """
CREATE TYPE address AS STRUCT<city VARCHAR, zip INT>;
CREATE STREAM transactions (
    tx_id VARCHAR KEY, email VARCHAR, card VARCHAR, tx_time VARCHAR, amount DECIMAL(12, 2),
    home address
  ) WITH (kafka_topic = 'transactions', partitions = 8, value_format = 'avro',
          timestamp = 'tx_time', timestamp_format = 'yyyy-MM-dd''T''HH:mm:ss');
CREATE TABLE possible_anomalies WITH (kafka_topic = 'possible_anomalies', value_format = 'avro') AS
    SELECT card AS `card_key`,
           AS_VALUE(card) AS `card`,
           LATEST_BY_OFFSET(email) AS `email`,
           LATEST_BY_OFFSET(tx_time) AS `time`,
           SUM(amount) AS `total`,
           COLLECT_LIST(tx_id) AS `ids`,
           WINDOWSTART AS `start`, WINDOWEND AS `end`
    FROM transactions
    WINDOW TUMBLING (SIZE 30 SECONDS, RETENTION 1000 DAYS)
    GROUP BY card
    HAVING COUNT(*) >= 3
    EMIT CHANGES;
CREATE STREAM shipped (id VARCHAR KEY, tx VARCHAR) WITH (kafka_topic='s', value_format='json');
CREATE STREAM shipped_transactions AS
    SELECT t.tx_id AS tx_id, t.home->city AS city, TIMESTAMPTOSTRING(t.ROWTIME, 'HH:mm') AS at
    FROM transactions t INNER JOIN shipped s WITHIN 7 DAYS ON t.tx_id = s.tx EMIT CHANGES;
"""

TYPES = {
    "la": "double", "lo": "double", "KSQL_COL_0": "bigint", "rating_count": "bigint",
}  # fmt: skip


class Session:
    """Statements one after the other, with a catalog."""

    def __init__(self) -> None:
        self.catalog: dict[str, SqlSource] = {}
        self.types: dict[str, str] = {}
        self.kinds: list[str] = []

    def find(self, name: str) -> SqlSource | None:
        return self.catalog.get(name.casefold())

    def run(self, text: str) -> None:
        statement = parse(text, self.types)
        match statement:
            case CreateSource():
                self.catalog[statement.name.casefold()] = declared_source(statement)
            case CreateAs():
                planned = plan(statement.select, self.find, into_table=statement.is_table)
                types = [TYPES.get(name, "string") for name in planned.columns]
                first = self.find(planned.inputs[0].source)
                assert first is not None
                self.catalog[statement.name.casefold()] = derived_source(
                    statement, planned, types, first
                )
                self.kinds.append(planned.kind)
            case InsertSelect():
                self.kinds.append(plan(statement.select, self.find, into_table=False).kind)
            case SelectStatement() if statement.select.emit:
                self.kinds.append(plan(statement.select, self.find, into_table=None).kind)
            case SelectStatement():
                self.kinds.append("pull")
            case InsertValues():
                target = self.find(statement.target)
                assert target is not None
                assert all(target.column(name) for name in statement.columns)
                self.kinds.append("values")
            case _:
                self.types["address"] = "struct<city: string, zip: int>"


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        (RIDERS, ["aggregate", "stateless", "values", "values", "pull", "pull"]),
        (
            MOVIES,
            [
                "state-join",
                *["aggregate"] * 2,
                *["stateless"] * 3,
                "values",
                PlanKind.AGGREGATE,
            ],
        ),
        (PAYMENTS, ["aggregate", "stream-join"]),
    ],
    ids=["riders", "movies", "payments"],
)
def test_scripts_of_tutorials_are_read_and_planned(script: str, kinds: list[str]) -> None:
    session = Session()
    for text in split(script):
        session.run(text)
    assert session.kinds == kinds
