"""The streaming query of a sink connector: topics, converters, transforms, the plug-in's tasks."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.client.cluster import Cluster
from headrace.client.groups import committed_offsets
from headrace.client.offsets import EARLIEST, LATEST
from headrace.connect.converters.envelopes import KnownEnvelopes
from headrace.connect.converters.options import PARTS, converter_of
from headrace.connect.converters.reading import by_schema, read_records, source_options
from headrace.connect.error_handling import ErrorHandling
from headrace.connect.host.dead_letters import ReplayEpoch
from headrace.connect.host.outcomes import EpochOutcome, run
from headrace.connect.host.refusals import ATTEMPT, LETTER_ID
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.sink_task import RECORD_COLUMNS, SinkWork
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import Sink
from headrace.connect.transforms.applying import apply
from headrace.connect.transforms.headers import present_headers
from headrace.pipelines.source.options import parse_options
from headrace.pipelines.source.positions import find_partitions

RECORDS_AN_EPOCH = 200_000
EpochEnd: TypeAlias = Callable[[EpochOutcome], None]
"""Called with the result of each epoch, or of each part of one."""
OVERRIDE = "consumer.override."
NOT_FOR_US = frozenset({"auto.offset.reset", "group.id", "max.poll.records"})
"""Properties of the consumer that are not options of the source."""


def group_id(name: str, config: Mapping[str, str]) -> str:
    """The consumer group of a sink, with Kafka Connect's name."""
    return config.get(f"{OVERRIDE}group.id") or f"connect-{name}"


def topic_rows(
    spark: Any, work: ConnectorWork, settings: DriverSettings, *, from_group: bool
) -> Any:
    """The records of the sink's topics, as the source has them.

    `from_group`: there is no checkpoint, so the query begins at the offsets of its group.
    """
    options = topic_options(work, settings)
    if from_group:
        options["startingOffsets"] = _starting_offsets(work, options)
    return spark.readStream.format("headrace").options(**options).load()


def topic_options(work: ConnectorWork, settings: DriverSettings) -> dict[str, str]:
    """The options of the source that reads the sink's topics."""
    config = work.config
    options = {
        **settings.kafka_options(),
        **settings.tracing_options(),
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "group.id": group_id(work.name, config),
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": config.get(f"{OVERRIDE}max.poll.records", str(RECORDS_AN_EPOCH)),
        **{
            f"kafka.{name.removeprefix(OVERRIDE)}": value
            for name, value in config.items()
            if name.startswith(OVERRIDE) and name.removeprefix(OVERRIDE) not in NOT_FOR_US
        },
        **source_options(config),
    }
    if config.get("topics.regex"):
        options["subscribePattern"] = config["topics.regex"]
    else:
        options["subscribe"] = config["topics"]
    tasks = int(config.get("tasks.max") or 1)
    if tasks > 1:
        options["minPartitions"] = str(tasks)
    return options


def _starting_offsets(work: ConnectorWork, options: Mapping[str, str]) -> str:
    """The group's committed offsets; partitions without one begin by auto.offset.reset."""
    reset = work.config.get(f"{OVERRIDE}auto.offset.reset", "earliest")
    parsed = parse_options(options, streaming=True)
    with Cluster(parsed.client) as cluster:
        committed = committed_offsets(cluster, options["group.id"])
        if not committed:
            return reset
        found = find_partitions(cluster, parsed.selection, all_must_exist=True).partitions
    otherwise = EARLIEST if reset == "earliest" else LATEST
    offsets: dict[str, dict[str, int]] = {}
    for at in found:
        offset = committed[at].offset if at in committed else otherwise
        offsets.setdefault(at.topic, {})[str(at.partition)] = offset
    return json.dumps(offsets)


def epoch_writer(
    rows: Any,
    work: ConnectorWork,
    settings: DriverSettings,
    generation: int,
    ended: EpochEnd,
    replay: str | None = None,
) -> tuple[Any, Callable[[Any, int], None]]:
    """The rows of the query, and the function that writes an epoch of them.

    `replay` is the id of a run over dead letters.
    """
    sink = work.connector()
    assert isinstance(sink, Sink)
    kafka = settings.kafka_options()

    def task(epoch: int, part: int = 0) -> SinkWork:
        again = None if replay is None else ReplayEpoch(f"{replay}-{part}", epoch)
        return SinkWork(work, epoch, generation, kafka, part, again)

    if any(converter_of(work.config, part).has_declared_schemas for part in PARTS):
        # Each record has its schema, so the plan depends on the records of the epoch.
        known = KnownEnvelopes()

        def write_by_schema(batch: Any, epoch: int) -> None:
            batch.persist()
            try:
                for part, (declared, some) in enumerate(by_schema(batch, work.config, known)):
                    records = read_records(some, work.config, sink.columns, declared)
                    ended(run(changed(records, work), task(epoch, part)))
            finally:
                batch.unpersist()

        return rows, write_by_schema

    def write(batch: Any, epoch: int) -> None:
        ended(run(batch, task(epoch)))

    return changed(read_records(rows, work.config, sink.columns), work), write


def changed(records: Any, work: ConnectorWork) -> Any:
    """The records after the transforms; with their original bytes, if dead letters need them."""
    found = apply(records, work.config)
    wanted = [*RECORD_COLUMNS, "_error", "_stage", ATTEMPT, LETTER_ID]
    if ErrorHandling.of(work.config).topic is not None:
        wanted.append("_raw")
    return found.select(
        *[
            present_headers().alias(name) if name == "headers" else name
            for name in wanted
            if name in found.columns
        ]
    )
