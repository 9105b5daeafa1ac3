"""Writes what is true of connectors into the status topic, for tools that read it.

Requests never read these states back: they ask the host.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from headrace.connect.hosting import HostedStatus, RunState
from headrace.connect.runner import ConnectorRunner, WorkerOptions
from headrace.connect.storage.records import StatusRecord, TopicUse
from headrace.connect.storage.store import ConnectStore

log = logging.getLogger("headrace.connect")

INTERVAL_S = 2.0


class StatusObserver:
    """Asks for the state of this worker's connectors from time to time, and records changes."""

    def __init__(
        self,
        store: ConnectStore,
        runner: ConnectorRunner,
        options: WorkerOptions,
        owns: Callable[[str], bool],
    ) -> None:
        self._owns = owns
        self._store = store
        self._runner = runner
        self._options = options
        self._written: dict[tuple[str, int | None], StatusRecord] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception:
                log.exception("the states of connectors could not be recorded")
            await asyncio.sleep(INTERVAL_S)

    async def _look(self) -> None:
        found: dict[tuple[str, int | None], StatusRecord] = {}
        topics: list[TopicUse] = []
        connectors = self._store.configs.connectors
        for name, connector in list(connectors.items()):
            if not self._owns(name):
                continue
            status = await self._runner.status(name)
            record = StatusRecord(status.state.value, self._options.address.worker_id, status.trace)
            found[name, None] = record
            if status.state is not RunState.STOPPED:
                found |= {(name, task): record for task in range(len(connector.tasks))}
            topics += self._new_topics(name, status)
            if status.tasks is not None:
                await self._runner.bound_tasks(name, status.tasks)
        # What has moved to another worker is recorded by that one.
        gone = [
            key
            for key in self._written
            if key not in found and (key[0] not in connectors or self._owns(key[0]))
        ]
        changed = [(*key, each) for key, each in found.items() if self._written.get(key) != each]
        await self._store.write_statuses([*changed, *((*key, None) for key in gone)])
        await self._store.write_topics(topics)
        self._written = found

    def _new_topics(self, name: str, status: HostedStatus) -> list[TopicUse]:
        if not self._options.tracks_topics:
            return []
        known = self._store.topics_in_use.of(name)
        now = int(time.time() * 1000)
        return [TopicUse(topic, name, 0, now) for topic in status.topics if topic not in known]
