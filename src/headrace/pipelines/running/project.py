"""The template of a Spark Declarative Pipelines project with our source and sink, for `init`.

Spark's own template has no source. This one reads a topic, counts in a materialized view and writes
to another topic. Its catalog is a Derby database in the project's folder, because with a catalog in
memory a second run finds tables that are not in its catalog.
"""

from collections.abc import Mapping
from pathlib import Path

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")

SPEC = """\
# Spark Declarative Pipelines. Run it with: headrace spark pipelines run
name: {name}
# Checkpoints of the streaming tables.
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
# Runtime settings only, all as text. Static ones, such as spark.driver.memory, are refused here:
# set them with `headrace spark pipelines run --conf NAME=VALUE`.
configuration:
  headrace.topic: {topic}
"""

PYTHON = '''\
"""A streaming table from a topic, and a topic from that table."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

# Which cluster: --bootstrap of `headrace spark pipelines`, else localhost:9092.
BOOTSTRAP = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
spark = SparkSession.active()
TOPIC = spark.conf.get("headrace.topic")


@dp.table
def events() -> DataFrame:
    """Every record of the topic, once."""
    records = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "timestamp"
    )


dp.create_sink(
    "copy",
    format="headrace",
    options={"kafka.bootstrap.servers": BOOTSTRAP, "topic": f"{TOPIC}-copy"},
)


@dp.append_flow(target="copy")
def copied() -> DataFrame:
    return spark.readStream.table("events").select("key", "value")
'''

SQL = """\
-- Recomputed from the streaming table at every run.
CREATE MATERIALIZED VIEW events_by_key AS
SELECT key, count(*) AS events, max(timestamp) AS last_seen
FROM events
GROUP BY key
"""


class ProjectExists(Exception):
    """The folder exists already."""


def create(folder: Path, topic: str) -> list[Path]:
    """Write a project into a new folder; returns the files."""
    if folder.exists():
        raise ProjectExists(str(folder))
    texts = {
        SPEC_NAMES[0]: SPEC.format(name=folder.name, folder=folder.resolve(), topic=topic),
        "transformations/events.py": PYTHON,
        "transformations/events_by_key.sql": SQL,
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return [folder / name for name in texts]


def find_spec(named: Path | None, start: Path) -> Path | None:
    """The project's file: the given one, else the nearest in the folders above."""
    if named is not None:
        return named if named.is_file() else None
    for folder in (start, *start.parents):
        for name in SPEC_NAMES:
            if (folder / name).is_file():
                return folder / name
    return None


def catalog_settings(folder: Path) -> Mapping[str, str]:
    """Spark settings for a persistent catalog."""
    home = folder.resolve()
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"file://{home}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={home}/catalog;create=true"
        ),
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={home}/derby.log",
    }
