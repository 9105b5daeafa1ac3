"""A host that runs nothing and remembers. Tests say what it answers."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from headrace.pipelines.running.checkpoints import QueryPosition
from headrace.sql.hosting import (
    Analysis,
    BatchRows,
    ComparedTopic,
    FunctionSpec,
    HostedState,
    HostUnavailable,
    QueryRefused,
    QuerySpec,
    QueryStatus,
    ResultColumn,
    RowCopy,
)
from headrace.sql.plans import QueryPlan
from headrace.sql.sources import SqlSource

RUNNING = QueryStatus(HostedState.RUNNING, rows=3, rate=1.5, lag=0, watermark=1000, epoch=7)


class StandInPush:
    """A push query whose rows a test sends."""

    def __init__(self, columns: tuple[ResultColumn, ...]) -> None:
        self.columns = columns
        self.queue: asyncio.Queue[Sequence[Sequence[object]] | Exception | None] = asyncio.Queue()
        self.is_closed = False

    async def rows(self) -> AsyncIterator[Sequence[Sequence[object]]]:
        while True:
            found = await self.queue.get()
            if found is None:
                return
            if isinstance(found, Exception):
                raise found
            yield found

    async def close(self) -> None:
        self.is_closed = True


class StandInHost:
    """Columns of results have the types of `types`, or those of the source columns."""

    def __init__(self) -> None:
        self.specs: dict[str, QuerySpec] = {}
        self.calls: list[tuple[str, str]] = []
        self.kept: list[str] = []
        self.answers: dict[str, QueryStatus] = {}
        self.types: dict[str, str] = {}
        self.refusal: str | None = None
        self.replace_refusal: str | None = None
        self.unavailable: str | None = None
        self.unstartable: set[str] = set()
        self.pushes: list[StandInPush] = []
        self.push_properties: list[Mapping[str, str]] = []
        self.batches: list[Sequence[Sequence[object]]] = []
        self.positions: dict[str, QueryPosition] = {}
        self.compared: list[tuple[ComparedTopic, ComparedTopic]] = []
        self.copies: list[RowCopy] = []

    def prepare(self) -> None:
        self.calls.append(("prepare", ""))

    async def start(self, spec: QuerySpec) -> None:
        self.calls.append(("start", spec.id))
        if spec.id in self.unstartable:
            raise RuntimeError("no room")
        self.specs[spec.id] = spec

    async def stop(self, query: str) -> None:
        self.calls.append(("stop", query))
        self.specs.pop(query, None)

    async def delete(self, query: str) -> None:
        self.calls.append(("delete", query))
        self.specs.pop(query, None)

    async def keep(self, queries: Collection[str]) -> None:
        self.kept = list(queries)

    async def status(self, query: str) -> QueryStatus:
        if query in self.answers:
            return self.answers[query]
        return RUNNING if query in self.specs else QueryStatus(HostedState.UNKNOWN)

    def _columns(self, plan: QueryPlan, sources: Sequence[SqlSource]) -> tuple[ResultColumn, ...]:
        known = {column.name.casefold(): column.type for each in sources for column in each.columns}
        return tuple(
            ResultColumn(name, self.types.get(name, known.get(name.casefold(), "bigint")))
            for name in plan.columns
        )

    def _check(self) -> None:
        if self.unavailable is not None:
            raise HostUnavailable(self.unavailable)
        if self.refusal is not None:
            raise QueryRefused(self.refusal)

    async def analyse(
        self, plan: QueryPlan, sources: Sequence[SqlSource], functions: Sequence[FunctionSpec] = ()
    ) -> Analysis:
        self._check()
        return Analysis(self._columns(plan, sources), "== Physical Plan ==")

    async def check_replace(self, spec: QuerySpec) -> None:
        self.calls.append(("check replace", spec.id))
        if self.replace_refusal is not None:
            raise QueryRefused(self.replace_refusal)

    async def push(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        properties: Mapping[str, str],
        functions: Sequence[FunctionSpec] = (),
    ) -> StandInPush:
        self._check()
        self.push_properties.append(properties)
        found = StandInPush(self._columns(plan, sources))
        self.pushes.append(found)
        return found

    async def batch(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        functions: Sequence[FunctionSpec] = (),
        limit: int | None = None,
    ) -> BatchRows:
        self._check()
        return BatchRows(self._columns(plan, sources), self.batches.pop(0))

    async def position(self, spec: QuerySpec) -> QueryPosition | None:
        return self.positions.get(spec.id)

    async def compare(
        self,
        left: ComparedTopic,
        right: ComparedTopic,
        ignore: Sequence[str] = (),
        tolerance: Mapping[str, float] | None = None,
    ) -> Mapping[str, Any]:
        self._check()
        self.compared.append((left, right))
        return {"equal": True}

    async def copy(self, copy: RowCopy) -> None:
        self._check()
        self.copies.append(copy)

    async def close(self) -> None:
        self.calls.append(("close", ""))
        self.specs.clear()
