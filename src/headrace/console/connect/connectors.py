"""The connectors of a Connect cluster, as pages and the lineage see them.

Connect is asked in threads. The list is shared by all pages for some seconds, because the lineage
asks for it every second.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.admin.connect_client import ConnectError, ConnectRest
from headrace.console.connect.hidden_configs import PASSWORD_TYPE, hidden
from headrace.service.errors import HttpError

LIST_S = 2.0
TOPICS_S = 30.0
"""How long the list and the topics of connectors are not asked for again."""
MOST_WITH_TOPICS = 200
"""Connectors whose topics are asked for; each is a request of its own."""
TOPIC_SETTINGS = ("kafka.topic", "topic", "topics")
FAILED = "FAILED"
SINK = "sink"


@dataclass(frozen=True, slots=True)
class ConnectorTask:
    """A task, or the connector itself, as its status has it."""

    id: int
    state: str
    worker: str
    trace: str


@dataclass(frozen=True, slots=True)
class ConnectorView:
    """A connector as it is now."""

    name: str
    type: str
    """`source`, `sink` or `unknown`."""
    plugin: str
    configs: Mapping[str, str] = field(repr=False)
    connector: ConnectorTask
    tasks: tuple[ConnectorTask, ...]
    progress: Mapping[str, object]
    """What Headrace's Connect adds to the status; empty on Apache Kafka's."""

    @property
    def configured_topics(self) -> dict[str, str]:
        """The topics that the settings name, each with the name of the setting."""
        return {
            topic.strip(): name
            for name in TOPIC_SETTINGS
            for topic in self.configs.get(name, "").split(",")
            if topic.strip()
        }

    @property
    def problem(self) -> str:
        """The first line of why something of it has failed; empty if nothing has."""
        for each in (self.connector, *self.tasks):
            if each.state == FAILED:
                return each.trace.partition("\n")[0] or "failed without a reason"
        return ""


class Connectors:
    """Asks Connect. Errors are HttpErrors for the browser."""

    def __init__(self, client: ConnectRest | None) -> None:
        self._client = client
        self._lock = asyncio.Lock()
        self._views: list[ConnectorView] = []
        self._listed_s = -LIST_S
        self._topics: dict[str, tuple[float, Sequence[str]]] = {}
        self._definitions: dict[str, list[Mapping[str, Any]]] = {}

    @property
    def is_configured(self) -> bool:
        return self._client is not None

    async def request(
        self,
        method: str,
        *path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
    ) -> object:
        """What Connect answers."""
        client = self._client
        if client is None:
            raise HttpError(501, "the console was started without --connect")
        try:
            answer = await asyncio.to_thread(client.request, method, *path, body=body, query=query)
        except ConnectError as error:
            raise HttpError(error.status or 502, str(error)) from None
        if method != "GET":
            self._listed_s = -LIST_S
        return answer

    async def views(self) -> Sequence[ConnectorView]:
        """All connectors, by name."""
        async with self._lock:
            if time.monotonic() - self._listed_s > LIST_S:
                found = await self.request(
                    "GET", "connectors", query={"expand": ["status", "info"]}
                )
                rows = found.items() if isinstance(found, dict) else ()
                self._views = [_view(name, row) for name, row in sorted(rows)]
                self._listed_s = time.monotonic()
            return self._views

    async def view(self, name: str) -> ConnectorView:
        """One connector, as it is now."""
        info = await self.request("GET", "connectors", name)
        status = await self.request("GET", "connectors", name, "status")
        return _view(name, {"info": info, "status": status})

    async def topics(self, view: ConnectorView) -> Sequence[str]:
        """The topics that the connector has used, as Connect recorded them."""
        known = self._topics.get(view.name)
        if known is not None and time.monotonic() - known[0] < TOPICS_S:
            return known[1]
        try:
            found = await self.request("GET", "connectors", view.name, "topics")
        except HttpError as error:
            if error.status not in (403, 404):
                raise
            found = None  # Tracking of topics is switched off.
        of_name = found.get(view.name) if isinstance(found, dict) else None
        topics = [str(each) for each in (of_name or {}).get("topics", ())]
        self._topics[view.name] = (time.monotonic(), topics)
        return topics

    async def used_topics(self) -> dict[str, Sequence[str]]:
        """The topics of the connectors, by connector."""
        views = (await self.views())[:MOST_WITH_TOPICS]
        return {each.name: await self.topics(each) for each in views}

    async def definitions(self, plugin: str) -> Sequence[Mapping[str, Any]]:
        """The settings that a plug-in has; empty if Connect cannot tell."""
        if plugin not in self._definitions:
            try:
                found = await self.request("GET", "connector-plugins", plugin, "config")
            except HttpError as error:
                if error.status in (0, 501, 502):
                    raise
                found = []
            self._definitions[plugin] = found if isinstance(found, list) else []
        return self._definitions[plugin]

    async def passwords(self, plugin: str) -> frozenset[str]:
        """The settings of a plug-in that are secrets."""
        return frozenset(
            str(each.get("name"))
            for each in await self.definitions(plugin)
            if each.get("type") == PASSWORD_TYPE
        )

    async def shown_configs(self, view: ConnectorView) -> dict[str, str]:
        """The settings of a connector without secrets."""
        return hidden(view.configs, await self.passwords(view.plugin))


def _view(name: str, row: Mapping[str, Any]) -> ConnectorView:
    info, status = row.get("info") or {}, row.get("status") or {}
    configs = {str(key): str(value) for key, value in (info.get("config") or {}).items()}
    return ConnectorView(
        name,
        str(status.get("type") or info.get("type") or "unknown"),
        configs.get("connector.class", ""),
        configs,
        _task(status.get("connector") or {}),
        tuple(_task(each) for each in status.get("tasks") or ()),
        dict(status.get("progress") or {}),
    )


def _task(found: Mapping[str, Any]) -> ConnectorTask:
    return ConnectorTask(
        int(found.get("id", -1)),
        str(found.get("state", "UNASSIGNED")),
        str(found.get("worker_id", "")),
        str(found.get("trace") or ""),
    )
