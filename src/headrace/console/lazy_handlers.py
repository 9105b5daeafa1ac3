"""Handlers that are imported when they are first called, so that the console is ready sooner."""

import importlib
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.console_request import ConsoleRequest

MODULES = (
    "access_api",
    "brokers_api",
    "client_metrics_api",
    "connectors_api",
    "dead_letters_api",
    "groups_api",
    "lineage_api",
    "overview_api",
    "produce_api",
    "queries_api",
    "records_api",
    "retention_api",
    "schemas_api",
    "sql_api",
    "topics_api",
    "transactions_api",
)
"""The modules of `headrace.console` with handlers."""


class LazyModule:
    """Stands for a module of handlers in the route table; its attributes are handlers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, function: str) -> "Callable[[ConsoleRequest], Awaitable[object]]":
        return LazyHandler(self.name, function)


class LazyHandler:
    """Opens the state of the console for a request, and calls the handler."""

    def __init__(self, module: str, function: str) -> None:
        self.module = module
        self.function = function

    async def __call__(self, request: "ConsoleRequest") -> object:
        await request.open_console()
        answer: object = await getattr(_module(self.module), self.function)(request)
        return answer


def load_handlers() -> None:
    """Imports all modules of handlers."""
    for name in MODULES:
        _module(name)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"headrace.console.{name}")
