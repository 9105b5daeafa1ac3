"""A SQL server without HTTP: its parts, and the one way to change what it knows.

A statement that changes something writes records to the command topic. Replaying them changes the
catalog, and `runner.py` makes the host follow. Statements that change something take turns.
"""

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace import __version__
from headrace.admin.connect_client import ConnectRest
from headrace.client.committed_records import TopicRecord
from headrace.client.config import ClientConfig
from headrace.schemas.client import SchemaClient
from headrace.service.errors import StartFailure
from headrace.service.internal_topics import InternalTopic, KeyValue
from headrace.sql.catalog import Catalog
from headrace.sql.cluster_access import ClusterAccess
from headrace.sql.commands.command_topic import CommandTopic, WriterFenced
from headrace.sql.commands.records import (
    SERVER,
    ServerClaim,
    Stored,
    encode,
    key_of_record,
)
from headrace.sql.commands.service_folder import ServiceFolder
from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.hosting import START, SqlHosting
from headrace.sql.runner import QueryRunner
from headrace.sql.views.pulling import PullQueries
from headrace.sql.views.store import ViewStores

log = logging.getLogger("headrace.sql")

MOST_STATUSES = 1000
VIEWS = "views"
"""The folder of views, in that of the server."""


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """What the operator chooses for a server."""

    client: ClientConfig
    service: str
    folder: str
    command_topic: InternalTopic
    registry: SchemaClient | None = None
    connect: ConnectRest | None = None
    allows_functions: bool = False
    adopts_statements: bool = False
    """Whether queries may start without the checkpoints of the folder that they ran with."""
    replication_factor: int = -1
    """Of topics of statements that do not say it; -1: the default of the brokers."""
    topic_prefix: str = ""
    """Before the name of a stream or table, if its statement does not name a topic."""
    listen: tuple[str, int] = ("127.0.0.1", 8088)
    shown: Mapping[str, str] = field(default_factory=dict)
    """Settings that LIST PROPERTIES shows."""


class SqlServer:
    """One server of a service. Methods run in the event loop."""

    version = __version__

    def __init__(self, options: SqlOptions, host: SqlHosting) -> None:
        self.options = options
        self.host = host
        self.catalog = Catalog()
        self.commands = CommandTopic(options.client, options.command_topic, self._take)
        self.runner = QueryRunner(self.catalog, host)
        self.cluster = ClusterAccess(options.client)
        self.views = ViewStores(self.cluster, Path(options.folder) / VIEWS, options.registry)
        self.pulls = PullQueries(self.views)
        self.turn = asyncio.Lock()
        """Of statements that change something."""
        self.statuses: OrderedDict[str, Mapping[str, object]] = OrderedDict()
        """The status of the last statements by the id of their command."""
        self.problem = ""
        """Why the server cannot carry out statements; empty if it can."""
        self.address = "{}:{}".format(*options.listen)
        """Host and port of the HTTP interface."""
        self._instance = uuid.uuid4().hex
        self._folder: ServiceFolder | None = None
        self._stopping: asyncio.Task[None] | None = None

    def listening(self, port: int) -> None:
        """The process listens on this port."""
        self.address = f"{self.options.listen[0]}:{port}"

    async def start(self) -> None:
        """Reads the command topic, becomes its writer, and starts the queries; StartFailure."""
        self._folder = await asyncio.to_thread(ServiceFolder, self.options.folder)
        try:
            await self.commands.start()
            self._check_folder(self._folder)
            await self.commands.take_over()
            # An earlier server may have written until now.
            self._check_folder(self._folder)
            claim = ServerClaim(
                self._instance, self._folder.id, self._folder.place, int(time.time() * 1000)
            )
            restarted = self._restarted(self._folder)
            try:
                await self.commands.write([_record(each) for each in (claim, *restarted)])
            except WriterFenced:
                raise StartFailure(
                    f"another SQL server has started for the service {self.options.service} at the "
                    "same time. A service has one server; --service starts one of another name"
                ) from None
            self._folder.remember(self.commands.name)
        except BaseException:
            await self._close()
            raise
        await self.runner.start()

    def _check_folder(self, folder: ServiceFolder) -> None:
        """The queries need the checkpoints of the folder that they ran with."""
        claim = self.catalog.claim
        queries = [each.id for each in self.catalog.queries()]
        if folder.topic not in (None, self.commands.name):
            raise StartFailure(
                f"the folder {folder.path} belongs to the queries of topic {folder.topic}, and not "
                f"to those of {self.commands.name}. Use a folder for each service: --folder FOLDER"
            )
        if claim is None and folder.topic is not None:
            raise StartFailure(
                f"topic {self.commands.name} has no statements, but the folder {folder.path} has "
                "the checkpoints of its queries: the topic was deleted. Restore it, or start with "
                "another folder (--folder) and repeat the statements"
            )
        if claim is None or claim.folder == folder.id or not queries:
            return
        if self.options.adopts_statements:
            return
        raise StartFailure(
            f"the checkpoints of the queries of {self.commands.name} ({', '.join(queries)}) are in "
            f"the folder {claim.place}, and not in {folder.place}. Start the server with that "
            "folder (--folder), or with another service id (--service). If the folder is lost, "
            "headrace.sql.folder.lost=true starts the queries again from their beginning"
        )

    def _restarted(self, folder: ServiceFolder) -> list[Stored]:
        """The queries whose checkpoints are lost: each begins again, with a new generation."""
        claim = self.catalog.claim
        if claim is None or claim.folder == folder.id:
            return []
        found: list[Stored] = []
        for each in self.catalog.queries():
            log.warning("query %s starts again; its checkpoint is in %s", each.id, claim.place)
            spec = replace(
                each.query.spec,
                generation=each.query.spec.generation + 1,
                properties={**each.query.spec.properties, START: "earliest"},
            )
            found.append(replace(each.statement, query=replace(each.query, spec=spec)))
        for replay in self.catalog.replays():
            if replay.kept is not None and replay.kept.query is not None:
                old = replay.kept.query.spec
                spec = replace(
                    old,
                    generation=old.generation + 1,
                    properties={**old.properties, START: "earliest"},
                )
                query = replace(replay.kept.query, spec=spec)
                found.append(replace(replay, kept=replace(replay.kept, query=query)))
        return found

    async def stop(self) -> None:
        """Returns when nothing runs any more. The statements stay."""
        if self._stopping is not None:
            await self._stopping
        await self.runner.stop()
        await self._close()

    async def _close(self) -> None:
        await self.commands.stop()
        await asyncio.to_thread(self.pulls.close)
        await self.views.close()
        self.cluster.close()
        if self._folder is not None:
            self._folder.close()

    # ------------------------------------------------------------------------------- statements

    async def change(self, written: Sequence[Stored] = (), removed: Sequence[str] = ()) -> int:
        """Stores records and removes others by key, in one transaction.

        Returns the offset of the last one, when all of them are replayed.
        """
        self.check_ready()
        records = [_record(each) for each in written]
        records += [KeyValue(key.encode(), None) for key in removed]
        try:
            return await self.commands.write(records)
        except WriterFenced:
            self._lose("Another SQL server of this service has started and runs the queries now")
            self.check_ready()
            raise

    def check_ready(self) -> None:
        """StatementRefused if another server has taken over."""
        if self.problem:
            raise StatementRefused(self.problem, NOT_READY)

    def _take(self, record: TopicRecord) -> None:
        key = self.catalog.replay(record)
        claim = self.catalog.claim
        if key != SERVER:
            self.runner.changed(key)
        elif claim is not None and claim.instance != self._instance and self.runner.is_started:
            self._lose(
                f"Another SQL server of this service, with the folder {claim.place}, has started "
                "and runs the queries now"
            )

    def _lose(self, problem: str) -> None:
        """Another server runs the queries: stop them here."""
        if not self.problem:
            self.problem = f"{problem}. This server has stopped its queries; stop it"
            log.error(self.problem)
            self._stopping = asyncio.create_task(self.runner.stop())

    def remember_status(self, command: str, status: Mapping[str, object]) -> None:
        """For requests to `/status`."""
        self.statuses[command] = status
        self.statuses.move_to_end(command)
        if len(self.statuses) > MOST_STATUSES:
            self.statuses.popitem(last=False)


def _record(stored: Stored) -> KeyValue:
    return KeyValue(key_of_record(stored).encode(), encode(stored))
