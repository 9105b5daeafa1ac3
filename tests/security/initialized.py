"""A broker that `headrace security init` has set up."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.conftest import command
from tests.support.ports import free_port


class InitializedBroker:
    """A folder after `security init`, and its broker; a context manager that stops it."""

    def __init__(self, home: Path, *words: str, serve: Sequence[str] = ()) -> None:
        self.home, self.port = home, free_port()
        self.folder = home / "security"
        self._serve = serve
        given = ("--folder", str(self.folder), "--data", str(home / "data"))
        init = command("security", "init", "--port", str(self.port), *given, *words)
        self.shown = subprocess.run(init, check=True, capture_output=True, text=True).stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def admin(self) -> tuple[str, str]:
        return ("--client-config", str(self.folder / "admin.properties"))

    def __enter__(self) -> Self:
        with (self.home / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                command("serve", "--config", str(self.folder / "broker.properties"), *self._serve),
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert self._process.stdout is not None
        assert "ready on" in self._process.stdout.readline(), self.log()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def log(self) -> str:
        return (self.home / "log.txt").read_text()
