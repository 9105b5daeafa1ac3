"""Exactly-once writes of a query's records to the topic of its target."""

from pathlib import Path

from pyspark.sql import DataFrame

from headrace.pipelines.running.checkpoints import last_epoch
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.writing import sink_options
from headrace.sql.sources import SqlSource

QUERY_ID = "sql.streaming.queryId"


def append_options(
    target: SqlSource, settings: SqlDriverSettings, checkpoint: Path
) -> dict[str, str]:
    """The options of the sink of a query whose rows do not change."""
    return {**sink_options(target, settings), "ledger": _ledger(checkpoint)}


class EpochWriter:
    """Writes an epoch of a query whose rows change, in `foreachBatch`."""

    def __init__(self, target: SqlSource, settings: SqlDriverSettings, checkpoint: Path) -> None:
        self._options = {**sink_options(target, settings), "ledger": _ledger(checkpoint)}

    def __call__(self, rows: DataFrame, epoch: int) -> None:
        # The id in the checkpoint, which all runs of the query share.
        query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query is not None, "foreachBatch runs in the thread of the query"
        options = {**self._options, "query": query, "epoch": str(epoch)}
        rows.write.format("headrace").options(**options).mode("append").save()


def _ledger(checkpoint: Path) -> str:
    """Brokers delete the ledger of a query that has been idle for a week.

    Without an unfinished epoch no epoch is repeated, so that a new ledger is as good.
    """
    return "keep" if has_unfinished_epoch(checkpoint) else "new"


def has_unfinished_epoch(checkpoint: Path) -> bool:
    """Whether the next run of the query begins with an epoch that the last one has begun."""
    begun, ended = last_epoch(checkpoint / "offsets"), last_epoch(checkpoint / "commits")
    return begun is not None and begun != ended
