"""Opens the console's state after the process listens.

Importing the clients and views takes longer than starting the HTTP server, so pages are served
first, and requests of the API wait until the state is there.
"""

import asyncio
from typing import TYPE_CHECKING

from headrace.console.lazy_handlers import load_handlers
from headrace.console.options import ConsoleOptions
from headrace.security.audit import Audit

if TYPE_CHECKING:
    from headrace.console.console import Console


class Consoles:
    """The console of one process, opened in the background."""

    def __init__(self, options: ConsoleOptions) -> None:
        """Raises SettingError if the audit file cannot be written."""
        self.options = options
        self.audit = Audit(service="console", path=options.audit_file)
        self._opening: asyncio.Task[Console] | None = None
        self._open: Console | None = None

    async def start(self) -> None:
        """The console starts without its cluster, too; the pages then tell what is wrong."""
        self._opening = asyncio.create_task(self._open_shared())

    async def get(self) -> "Console":
        assert self._opening is not None, "requests come after the start"
        return await asyncio.shield(self._opening)

    def metrics_page(self) -> str:
        """Prometheus text with kafka_exporter's names; empty until the cluster was observed."""
        return "" if self._open is None else self._open.observer.metrics_page

    async def stop(self) -> None:
        if self._opening is not None:
            await (await self._opening).stop()
        self.audit.close()

    async def _open_shared(self) -> "Console":
        self._open = await asyncio.to_thread(_make_console, self.options, self.audit)
        self._open.start()
        await asyncio.to_thread(load_handlers)
        return self._open


def _make_console(options: ConsoleOptions, audit: Audit) -> "Console":
    from headrace.console.console import Console

    return Console(options, audit)
