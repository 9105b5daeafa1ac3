"""Functions for Spark's `foreachBatch` that write every epoch to a topic exactly once.

    totals.writeStream.outputMode("update").foreachBatch(write_epochs("totals")).start()

The function names its query and its epoch to the sink, whose ledger then recognises an epoch that
Spark repeats. Spark's own sinks for streams do not need this; `foreachBatch` is for `update` mode,
which Spark refuses for sinks in Python, and for writing an epoch to several topics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.pipelines.sink.epoch import QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class EpochFunction:
    """Writes the rows of an epoch. Picklable: Spark Connect sends it to its server."""

    # They may have passwords.
    options: Mapping[str, str] = field(repr=False)
    query: str | None = None
    part: str | None = None

    def __call__(self, rows: "DataFrame", epoch: int) -> None:
        """Write the rows; returns when they are committed, or were by an earlier run."""
        query = self.query or _query_id(rows)
        if self.part is not None:
            query = f"{query}-{self.part}"
        writer = rows.write.format("headrace").options(**self.options)
        writer.option("query", query).option("epoch", str(epoch)).mode("append").save()


def write_epochs(
    topic: str | None = None,
    *,
    bootstrap: str | None = None,
    options: Mapping[str, str] | None = None,
    query: str | None = None,
    part: str | None = None,
) -> EpochFunction:
    """A function for `foreachBatch` that writes each epoch to `topic` exactly once.

    `options` are those of the sink. Without `bootstrap` the cluster of `headrace spark run` is
    used. `query` is a name that stays the same when the query is restarted; the default is the id
    in the query's checkpoint, which is unknown under Spark Connect and in threads of the program.
    `part` distinguishes several writes of one query to the same topic.
    """
    given = {"delivery": "exactly-once", **(options or {})}
    if topic is not None:
        given["topic"] = topic
    if bootstrap is not None:
        given["kafka.bootstrap.servers"] = bootstrap
    return EpochFunction(given, query, part)


def _query_id(rows: "DataFrame") -> str:
    """The id of the streaming query that calls `foreachBatch` in this thread."""
    # A session of Spark Connect has no context.
    context = getattr(rows.sparkSession, "sparkContext", None)
    query = context.getLocalProperty(QUERY_ID) if context is not None else None
    if not query:
        raise RuntimeError(
            "the id of the streaming query is unknown here: Spark tells it only to the thread "
            "that calls the function of foreachBatch, and not under Spark Connect. Give the query "
            'a name that stays the same when it is restarted: write_epochs(..., query="totals")'
        )
    return str(query)
