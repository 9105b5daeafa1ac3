"""The real `headrace serve` as a process of its own, with the same shape as ApacheKafka."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.ports import free_port, wait_for_metadata

HEADRACE = Path(sys.executable).with_name("headrace")


class HeadraceBroker:
    """One broker process on a free port; a context manager that stops it."""

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port or free_port()
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout_s: float = 60) -> float:
        """Starts the process; returns the seconds from exec to the first Metadata answer."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(HEADRACE), "serve", "--data-dir", str(self.data)]
        if "listeners" not in self._settings:
            command += ["--listen", self.bootstrap]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._output = (self.folder / "output.txt").open("ab")
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        self._process = process
        try:
            wait_for_metadata(self.port, lambda: process.poll() is None, timeout_s)
        except (RuntimeError, TimeoutError) as error:
            self.kill()
            raise RuntimeError(f"headrace serve did not start: {error}\n{self.output()}") from error
        return time.monotonic() - began

    def stop(self, timeout_s: float = 60) -> int | None:
        """SIGTERM, and by force when that takes too long; returns the exit code."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int | None:
        """SIGKILL: what a crash looks like."""
        return self._end(signal.SIGKILL, 10)

    def output(self) -> str:
        """What the process printed, or the end of it."""
        return (self.folder / "output.txt").read_text()[-4000:]

    def partition_folder(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"

    def _end(self, how: signal.Signals, timeout_s: float) -> int | None:
        code = None
        if self._process is not None:
            self._process.send_signal(how)
            try:
                code = self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                code = self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None
        return code
