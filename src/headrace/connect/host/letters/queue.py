"""The dead letters of one connector that wait: those after the committed offsets of its group."""

import base64
import json
import re
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.groups import Committed, commit_offsets, committed_offsets
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.connect.error_handling import ErrorHandling
from headrace.connect.host.dead_letters import PREFIX
from headrace.connect.host.letters.run_state import FoundLetter, LetterRunState, Offsets, planned
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.work import ConnectorWork
from headrace.connect.letter_orders import (
    MOST_RECORDS,
    LetterOrder,
    LettersRefused,
    LetterView,
    letter_group,
)
from headrace.types import TopicPartition

AT, PLACE = "_letter_partition", "_letter_offset"
"""Columns: where a dead letter is itself."""
COLUMNS = ("topic", "partition", "offset", "stage", "exception", "message", "attempt", "timestamp")
"""What a condition can use."""
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_REFUSED = re.compile(r"\b(select|reflect|java_method|try_reflect)\b", re.IGNORECASE)
"""Words of subqueries, which could read any table or file, and of calls of Java methods."""


@dataclass(frozen=True, slots=True)
class LetterQueue:
    """The topic and the group of one connector."""

    spark: SparkSession
    settings: DriverSettings
    work: ConnectorWork

    @property
    def topic(self) -> str:
        found = ErrorHandling.of(self.work.config).topic
        if found is None:
            raise LettersRefused(
                f"Connector {self.work.name} keeps no dead letters: set errors.tolerance=all and "
                "errors.deadletterqueue.topic.name"
            )
        return found

    @property
    def group(self) -> str:
        return letter_group(self.work.name)

    # ------------------------------------------------------------------------------------ offsets

    def waiting(self) -> tuple[Offsets, Offsets]:
        """Where the letters that wait begin and end, by partition."""
        with self._cluster() as cluster:
            known = cluster.retry("asking about topics", lambda: cluster.topics([self.topic]))
            if self.topic not in known:
                raise LettersRefused(f"The topic {self.topic} of dead letters does not exist", 404)
            places = [TopicPartition(self.topic, n) for n in range(len(known[self.topic].leaders))]
            first = list_offsets(cluster, dict.fromkeys(places, EARLIEST), COMMITTED)
            last = list_offsets(cluster, dict.fromkeys(places, LATEST), COMMITTED)
            done = committed_offsets(cluster, self.group, places)
        start = {
            at.partition: min(max(done[at].offset if at in done else 0, first[at]), last[at])
            for at in places
        }
        return start, {at.partition: last[at] for at in places}

    def commit(self, position: Offsets) -> None:
        """Move the group; letters before it no longer wait."""
        offsets = {TopicPartition(self.topic, at): Committed(to) for at, to in position.items()}
        with self._cluster() as cluster:
            commit_offsets(cluster, self.group, offsets)

    def _cluster(self) -> Cluster:
        return Cluster(client_config(dict(self.settings.client)))

    # ------------------------------------------------------------------------------------ letters

    def rows(self, start: Offsets, end: Offsets, **options: str) -> DataFrame:
        """The records of the topic in a range, with their place in columns of their own."""
        places = {
            name: json.dumps({self.topic: {str(at): offset for at, offset in offsets.items()}})
            for name, offsets in (("startingOffsets", start), ("endingOffsets", end))
        }
        given = {
            **self.settings.kafka_options(),
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            # A run knows the partitions of its beginning; later ones are for the next run.
            "assign": json.dumps({self.topic: sorted(start)}),
            **places,
            **options,
        }
        source = self.spark.read.format("headrace").options(**given)
        return source.load().withColumnsRenamed({"partition": AT, "offset": PLACE})

    def letters(self, start: Offsets, end: Offsets) -> DataFrame:
        """The letters of this connector in a range, with the columns of a condition."""
        rows = self.rows(start, end)
        of_connector = F.coalesce(header("connector.name"), F.lit(self.work.name))
        return rows.where(of_connector == self.work.name).select(
            F.coalesce(header("topic"), F.lit(self.default_topic)).alias("topic"),
            header("partition").try_cast("int").alias("partition"),
            header("offset").try_cast("bigint").alias("offset"),
            header("stage").alias("stage"),
            header("exception.class.name").alias("exception"),
            header("exception.message").alias("message"),
            header("attempt").try_cast("int").alias("attempt"),
            "timestamp",
            header("id").alias("id"),
            "key",
            "value",
            "headers",
            AT,
            PLACE,
        )

    @property
    def default_topic(self) -> str | None:
        """The topic of letters whose headers do not name one."""
        topics = [word.strip() for word in self.work.config.get("topics", "").split(",")]
        return topics[0] if len(topics) == 1 and topics[0] else None

    def condition(self, letters: DataFrame, where: str) -> Column:
        """A condition as a column; LettersRefused if it is not one."""
        if not where.strip():
            return F.lit(True)
        if found := _REFUSED.search(_QUOTED.sub("''", where)):
            raise LettersRefused(f"where: {found[0]} is not allowed in a condition")
        try:
            kind = letters.select(*COLUMNS).select(F.expr(where).alias("it")).schema["it"].dataType
        except PySparkException as error:
            columns = ", ".join(COLUMNS)
            raise LettersRefused(
                f"where: {str(error).splitlines()[0]} (the columns are {columns})"
            ) from None
        if not isinstance(kind, BooleanType):
            raise LettersRefused(f"where: {where} is {kind.simpleString()}, not a condition")
        return F.coalesce(F.expr(where), F.lit(False))

    # --------------------------------------------------------------------------------------- uses

    def view(self, view: LetterView) -> dict[str, object]:
        """The letters that wait, by error or one by one."""
        start, end = self.waiting()
        letters = self.letters(start, end)
        matching = letters.where(self.condition(letters, view.where))
        limit = max(1, min(view.limit, MOST_RECORDS))
        shown = _groups(matching, limit) if view.what == "groups" else _records(matching, limit)
        return {
            "topic": self.topic,
            "group": self.group,
            "waiting": letters.count(),
            view.what: shown,
        }

    def plan(self, order: LetterOrder) -> LetterRunState:
        """The run for an order, from the letters that wait now."""
        start, end = self.waiting()
        letters = self.letters(start, end)
        matches = self.condition(letters, order.where).alias("matches")
        try:
            rows = letters.select(AT, PLACE, matches, "id").collect()
        except PySparkException as error:
            raise LettersRefused(f"where: {str(error).splitlines()[0]}") from None
        found = [FoundLetter(row[AT], row[PLACE], row["matches"], row["id"]) for row in rows]
        return planned(order, start, end, found)


def header(name: str) -> Column:
    """A header of a dead letter, as text."""
    found = F.filter("headers", lambda each: each["key"] == f"{PREFIX}{name}")
    return F.make_valid_utf8(F.get(found, F.lit(0))["value"].cast("string"))


def _groups(letters: DataFrame, limit: int) -> list[dict[str, object]]:
    by_error = letters.groupBy("exception", "stage", "topic").agg(
        F.count("*").alias("count"),
        F.unix_millis(F.min("timestamp")).alias("first"),
        F.unix_millis(F.max("timestamp")).alias("last"),
        F.max("attempt").alias("attempts"),
        F.max_by("message", "timestamp").alias("message"),
    )
    rows = by_error.orderBy(F.desc("count"), "topic", "stage").limit(limit).collect()
    return [row.asDict() for row in rows]


def _records(letters: DataFrame, limit: int) -> list[dict[str, object]]:
    times = letters.withColumn("timestamp", F.unix_millis("timestamp"))
    found = []
    for row in times.orderBy(AT, PLACE).limit(limit).collect():
        about = {name: row[name] for name in (*COLUMNS, "id")}
        own = [each for each in row["headers"] or () if not each["key"].startswith(PREFIX)]
        found.append(
            {
                "letter": {"partition": row[AT], "offset": row[PLACE]},
                **about,
                "key": _shown(row["key"]),
                "value": _shown(row["value"]),
                "headers": [[each["key"], _shown(each["value"])] for each in own],
            }
        )
    return found


def _shown(octets: bytearray | None) -> object:
    """Bytes for JSON: as text if they are UTF-8."""
    if octets is None:
        return None
    try:
        return bytes(octets).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(octets).decode()}
