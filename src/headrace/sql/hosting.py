"""The boundary between the SQL server, which knows what should run, and the host, which runs it.

The host runs queries with Spark in a child process. It restarts them after failures, and its
answers are about the moment of asking. Nothing here imports Spark.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from headrace.pipelines.running.checkpoints import QueryPosition
from headrace.sql.plans import QueryPlan, plan_from_json, plan_to_json
from headrace.sql.sources import SqlSource, source_from_json, source_to_json

START = "start"
"""The property of a query with the position of its first epoch: `earliest`, or offsets as JSON by
topic and partition as Spark has them, `{"orders": {"0": 5, "1": -2}}`, where -2 is the beginning.
The server writes offsets for `latest`, so that records after the statement are in the result
whenever the query starts. Tables are always read from their beginning. A query with a checkpoint
ignores the property."""
MAX_OFFSETS = "max.offsets.per.trigger"
END = "end"
"""The property with the offsets before which a query reads its inputs, as JSON like those of
`start`: it reaches them and waits. Only the runner sets it."""
EPOCHS = "write.epochs"
"""The property of a query that writes each epoch as a batch with its number, whatever its output
mode is: the ledger of such writes knows the topic, which may then be changed."""


class QueryRefused(Exception):
    """Spark does not accept a query. The message says why, and what to change."""


class HostUnavailable(Exception):
    """The host cannot answer now: Spark starts, or does not respond."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A Python function of CREATE FUNCTION."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """Names and types, Spark's DDL in lower case."""
    returns: str
    body: str
    """The body of the function, as it was written between the dollar signs."""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """A query that should run: rows of its plan are written to the topic of its target."""

    id: str
    """Such as `CTAS_totals_3`; its consumer group is `sql-<id>`."""
    target: SqlSource
    plan: QueryPlan
    sources: tuple[SqlSource, ...]
    """Those that the plan reads, and nothing else."""
    generation: int = 0
    """The number of the checkpoint. A new one starts at the property `start`."""
    properties: Mapping[str, str] = field(default_factory=dict)
    functions: tuple[FunctionSpec, ...] = ()


class HostedState(StrEnum):
    """The states of a query in the host."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    """It has failed, and is tried again soon."""
    FAILED = "failed"
    """It has failed with an error that will probably stay. It is tried again after ten minutes."""
    UNKNOWN = "unknown"
    """It was not started, or was stopped."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """What is true of a query at the moment of asking. Times are milliseconds since 1970."""

    state: HostedState
    error: str | None = None
    """The last error, or the reason why nothing is known."""
    rows: int = 0
    """Rows that were read since the query was started in the current driver."""
    rate: float = 0.0
    """Rows per second of the last epochs."""
    lag: int | None = None
    """Records of all inputs that are not read yet."""
    watermark: int | None = None
    late_rows: int = 0
    """Rows that were dropped because the watermark had passed them."""
    bad_records: int = 0
    """Records that were written to the processing log."""
    state_rows: int = 0
    state_bytes: int = 0
    epoch: int | None = None
    epoch_at: int | None = None
    last_row_at: int | None = None
    restarts: int = 0
    next_try_at: int | None = None


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a result."""

    name: str
    type: str
    """Spark's DDL in lower case."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """What Spark says of a plan."""

    columns: tuple[ResultColumn, ...]
    """Those of the plan, in its order, without `__deleted` and `__time`."""
    plan: str = ""
    """Spark's plan as text, for EXPLAIN."""


class PushedRows(Protocol):
    """The rows of a push query.

    Values are those of JSON: 64-bit integers as integers, decimals as text, binary as Base64,
    timestamps, dates and times as ISO 8601, arrays as lists, maps and structs as objects.
    """

    columns: tuple[ResultColumn, ...]

    def rows(self) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Batches of rows, until the limit of the plan; QueryRefused if the query fails."""

    async def close(self) -> None:
        """Ends the query. It may be called several times."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The whole result of a query over the records that are in the topics now."""

    columns: tuple[ResultColumn, ...]
    rows: Sequence[Sequence[object]]
    """As those of PushedRows."""


@dataclass(frozen=True, slots=True)
class ComparedTopic:
    """A stream or table, and up to where its topic is read."""

    source: SqlSource
    ends: Mapping[str, int]
    """By partition."""


@dataclass(frozen=True, slots=True)
class RowCopy:
    """Rows that make one topic equal to another, as one exactly-once write."""

    name: str
    """Of the write: one that is repeated with this name adds nothing."""
    origin: str
    origin_ends: Mapping[str, int]
    target: str
    target_ends: Mapping[str, int]
    keyed: bool
    """The latest record of each key, and tombstones for keys that the origin does not have; if
    not, no rows are written."""
    query: str
    """The query that writes to the target from now on, by the id in its checkpoint; empty if it
    has no epoch yet."""
    epoch: int = 0
    """Its last epoch, after which its ledger for the target begins."""


class SqlHosting(Protocol):
    """Runs queries with Spark. Methods run in the event loop of the server."""

    def prepare(self) -> None:
        """Queries will probably be started soon."""

    async def start(self, spec: QuerySpec) -> None:
        """Runs the query, in place of one with this id; returns before it runs."""

    async def stop(self, query: str) -> None:
        """When it returns, the query writes nothing more. Its checkpoint stays."""

    async def delete(self, query: str) -> None:
        """Stops the query, and deletes the checkpoints of all its generations."""

    async def keep(self, queries: Collection[str]) -> None:
        """Deletes the checkpoints of all other queries. Called once, before the first start: they
        were dropped, and the server was killed before `delete`."""

    async def status(self, query: str) -> QueryStatus:
        """The state of a query; UNKNOWN if it was not started."""

    async def analyse(
        self, plan: QueryPlan, sources: Sequence[SqlSource], functions: Sequence[FunctionSpec] = ()
    ) -> Analysis:
        """Spark's analysis, nothing is run; QueryRefused, HostUnavailable."""

    async def check_replace(self, spec: QuerySpec) -> None:
        """QueryRefused if the query cannot continue with the checkpoint of `spec.generation`."""

    async def push(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        properties: Mapping[str, str],
        functions: Sequence[FunctionSpec] = (),
    ) -> PushedRows:
        """Runs the query for a client; QueryRefused, HostUnavailable."""

    async def batch(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        functions: Sequence[FunctionSpec] = (),
        limit: int | None = None,
    ) -> BatchRows:
        """Runs the query once over what is in the topics now; tables are read as their latest row
        by key. QueryRefused, HostUnavailable."""

    async def position(self, spec: QuerySpec) -> QueryPosition | None:
        """How far a query is; None if it has not begun an epoch. It need not run."""

    async def compare(
        self,
        left: ComparedTopic,
        right: ComparedTopic,
        ignore: Sequence[str] = (),
        tolerance: Mapping[str, float] | None = None,
    ) -> Mapping[str, Any]:
        """The differences between two topics; QueryRefused, HostUnavailable."""

    async def copy(self, copy: RowCopy) -> None:
        """Returns when the rows are written; QueryRefused, HostUnavailable."""

    async def close(self) -> None:
        """Stops all queries. They continue with the next server."""


def spec_to_json(spec: QuerySpec) -> dict[str, Any]:
    return {
        "id": spec.id,
        "target": source_to_json(spec.target),
        "plan": plan_to_json(spec.plan),
        "sources": [source_to_json(each) for each in spec.sources],
        "generation": spec.generation,
        "properties": dict(spec.properties),
        "functions": [asdict(each) for each in spec.functions],
    }


def spec_from_json(stored: Mapping[str, Any]) -> QuerySpec:
    return QuerySpec(
        id=stored["id"],
        target=source_from_json(stored["target"]),
        plan=plan_from_json(stored["plan"]),
        sources=tuple(source_from_json(each) for each in stored["sources"]),
        generation=stored["generation"],
        properties=dict(stored["properties"]),
        functions=tuple(function_from_json(each) for each in stored["functions"]),
    )


def function_from_json(stored: Mapping[str, Any]) -> FunctionSpec:
    parameters = tuple((name, type_) for name, type_ in stored["parameters"])
    return FunctionSpec(**{**stored, "parameters": parameters})
