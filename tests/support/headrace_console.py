"""The real `headrace console` as a process of its own, on a free port."""

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx


class HeadraceConsole:
    """One console process; a context manager that stops it."""

    def __init__(self, bootstrap: str, folder: Path, *options: str) -> None:
        self._command = [
            sys.executable, "-m", "headrace.cli", "console",
            "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", *options,
        ]  # fmt: skip
        self.bootstrap = bootstrap
        self.folder = folder
        self._log = folder / "console.log"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready on" not in line:
            self._process.wait(60)
            raise RuntimeError(f"the console did not start: {line}{self.log()}")
        self.url = "http://" + line.split("ready on ")[1].split(",")[0]
        self.http = httpx.Client(base_url=f"{self.url}/api", timeout=60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()
        self.stop()

    def stop(self) -> int:
        """Asks it to stop, waits for its end, and returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        return self._process.returncode

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return self._log.read_text()
