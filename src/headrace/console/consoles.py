"""Opens the console's state after the process listens.

Importing the clients and views takes longer than starting the HTTP server, so pages are served
first, and requests of the API wait until the state is there.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.console.lazy_handlers import load_handlers
from headrace.console.options import ConsoleOptions
from headrace.security.audit import Audit

if TYPE_CHECKING:
    from headrace.console.cluster_login import ClusterLogin
    from headrace.console.console import Console


class Consoles:
    """The console of the operator, and those of users who log in to the cluster as themselves."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Raises SettingError if the options do not fit together."""
        self.options = options
        self.audit = Audit(service="console", path=options.audit_file)
        self.login = _make_login(options, self.audit)
        self._has_shared = self.login is None or options.exports_metrics
        if self._has_shared:
            options.check_client()
        self._loading: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._shared: Console | None = None

    async def start(self, read_pages: Callable[[], None]) -> None:
        """The console starts without its cluster, too; the pages then tell what is wrong."""
        self._loading = asyncio.create_task(self._load(read_pages))

    async def get(self, principal: str) -> "Console":
        """The console that serves the requests of a user."""
        assert self._loading is not None, "requests come after the start"
        await asyncio.shield(self._loading)
        if self.login is not None:
            return self.login.console(principal)
        assert self._shared is not None
        return self._shared

    def metrics_page(self) -> str:
        """Prometheus text with kafka_exporter's names; empty until the cluster was observed."""
        return "" if self._shared is None else self._shared.observer.metrics_page

    async def stop(self) -> None:
        if self._loading is not None:
            await self._loading
        if self._shared is not None:
            await self._shared.stop()
        if self.login is not None:
            await self.login.stop()
        self.audit.close()

    async def _load(self, read_pages: Callable[[], None]) -> None:
        if self._has_shared:
            self._shared = await asyncio.to_thread(_make_console, self.options)
            self._shared.start()
        await asyncio.to_thread(load_handlers)
        self._reading = asyncio.create_task(asyncio.to_thread(read_pages))


def _make_console(options: ConsoleOptions) -> "Console":
    from headrace.console.console import Console

    return Console(options)


def _make_login(options: ConsoleOptions, audit: Audit) -> "ClusterLogin | None":
    if options.cluster_login_role is None:
        return None
    from headrace.console.cluster_login import ClusterLogin

    return ClusterLogin(options, options.cluster_login_role, audit)
