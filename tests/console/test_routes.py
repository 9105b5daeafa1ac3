"""The route table: its handlers exist, and are imported only after the console listens."""

import importlib
import inspect
import subprocess
import sys

from headrace.console import routes
from headrace.console.lazy_handlers import MODULES, LazyHandler

ROWS = [
    *routes._VIEWS,
    *routes._RECORDS,
    *routes._ACCESS,
    *routes._CHANGES,
    *routes._ADMINISTRATION,
]


def test_every_row_names_a_handler() -> None:
    used = set()
    for method, pattern, handler in ROWS:
        assert isinstance(handler, LazyHandler)
        module = importlib.import_module(f"headrace.console.{handler.module}")
        function = getattr(module, handler.function, None)
        assert inspect.iscoroutinefunction(function), f"{method} {pattern}"
        used.add(handler.module)
    assert used == set(MODULES)


def test_the_console_listens_before_it_imports_clients_views_and_typer() -> None:
    code = (
        "import sys\n"
        "from headrace.cli import console\n"
        "from headrace.console.http_service import console_service\n"
        "from headrace.console.consoles import Consoles\n"
        "from headrace.console.options import ConsoleOptions\n"
        "console_service(Consoles(ConsoleOptions('127.0.0.1:1')), '127.0.0.1')\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "headrace.console.routes" in loaded
    heavy = {"typer", "rich", "kio", "confluent_kafka", "headrace.client.cluster"}
    assert not loaded & {*heavy, "headrace.console.console", "headrace.console.topics_api"}
