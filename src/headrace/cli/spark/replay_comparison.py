"""The comparison of two versions of a program: `python -m headrace.cli.spark.replay_comparison`.

The command prepares what is compared, and replaces itself by this process, which starts Spark.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from headrace.cli.failures import Failure, bad_usage
from headrace.client.cluster import Cluster
from headrace.client.configs import topic_config
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.topics import describe_topics
from headrace.pipelines.replay_bounds import versioned
from headrace.types import TopicPartition


def compared_pairs(
    cluster: Cluster,
    topics: Sequence[str],
    version: str,
    columns: str | None,
    value_format: str,
    within_s: float,
) -> list[list[object]]:
    """For each topic both versions of it: the source as JSON, and its ends by partition."""
    found: list[list[object]] = []
    policies = topic_config(cluster, topics, "cleanup.policy")
    for topic in topics:
        is_table = "compact" in (policies.get(topic) or "")
        pair: list[object] = []
        for name in (versioned(topic, version), topic):
            source = _source(name, is_table, columns, value_format)
            pair.append([source, _ends(cluster, name, within_s)])
        found.append(pair)
    return found


def _source(topic: str, is_table: bool, columns: str | None, value_format: str) -> dict[str, Any]:
    from headrace.sql.language.declaring import FormatDefaults, declared_source
    from headrace.sql.language.errors import SqlError
    from headrace.sql.language.parsing import parse
    from headrace.sql.language.statements import CreateSource
    from headrace.sql.sources import source_to_json

    kind, key = ("TABLE", "PRIMARY KEY") if is_table else ("STREAM", "KEY")
    given, encoding = columns or f"key STRING {key}, value STRING", value_format
    if columns is None:
        encoding = "kafka"
    properties = f"kafka_topic='{topic}', key_format='kafka', value_format='{encoding}'"
    try:
        statement = parse(f"CREATE {kind} `{topic}` ({given}) WITH ({properties})")
        assert isinstance(statement, CreateSource)
        return source_to_json(declared_source(statement, [], FormatDefaults()))
    except SqlError as error:
        raise bad_usage(f"--columns {columns}: {error}") from None


def _ends(cluster: Cluster, topic: str, within_s: float) -> dict[str, int]:
    """The ends of a topic in which no transaction is open."""
    partitions = [
        TopicPartition(topic, number)
        for number in describe_topics(cluster, [topic])[topic].partitions
    ]
    wanted = dict.fromkeys(partitions, LATEST)
    deadline = time.monotonic() + within_s
    while (found := list_offsets(cluster, wanted, COMMITTED)) != list_offsets(cluster, wanted):
        if time.monotonic() > deadline:
            raise Failure(f"a transaction is open in topic {topic}; repeat it later")
        time.sleep(0.2)
    return {str(at.partition): end for at, end in found.items()}


def main(request: dict[str, Any]) -> int:
    """Compare, print the reports, and return the exit code: 0 only if all are equal."""
    from pyspark.sql import SparkSession

    from headrace.cli import output
    from headrace.cli.sql.rendering import comparison_report
    from headrace.pipelines.cluster_client import BOOTSTRAP_VARIABLE
    from headrace.pipelines.running.session import CLIENT_CONFIG_VARIABLE
    from headrace.sql.host.comparing import comparison
    from headrace.sql.host.settings import SqlDriverSettings
    from headrace.sql.hosting import ComparedTopic, QueryRefused
    from headrace.sql.sources import source_from_json

    bootstrap = os.environ[BOOTSTRAP_VARIABLE]
    client = {"bootstrap.servers": bootstrap}
    if path := os.environ.get(CLIENT_CONFIG_VARIABLE):
        from headrace.cli.client import read_properties_file

        client = {**read_properties_file(path), **client}
    settings = SqlDriverSettings(bootstrap, client, "", "")
    spark = SparkSession.builder.getOrCreate()
    reports = []
    for pair in request["pairs"]:
        new, old = (ComparedTopic(source_from_json(source), ends) for source, ends in pair)
        try:
            found = comparison(spark, settings, new, old, request["ignore"], request["tolerance"])
        except QueryRefused as error:
            print(f"{new.source.name} and {old.source.name} cannot be compared: {error}",
                  file=sys.stderr)  # fmt: skip
            return 2
        names = {"left": new.source.name, "right": old.source.name}
        offsets = {"inputOffsets": request["inputOffsets"], "ignored": request["ignore"]}
        reports.append({**names, **offsets, **found, "tolerance": request["tolerance"]})
    spark.stop()
    if request["asJson"]:
        output.print_json(reports)
    else:
        for report in reports:
            output.console().print(comparison_report(report))
    return 0 if all(each["equal"] for each in reports) else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
