"""Three brokers for the demonstration, each a process that can be killed and started again."""

import subprocess
import sys
from pathlib import Path


class Brokers:
    """Brokers 1 to 3."""

    def __init__(self, folder: Path, metadata: str, first_port: int, count: int = 3) -> None:
        self._folder = folder
        self._metadata = metadata
        self._first_port = first_port
        self._running: dict[int, subprocess.Popen[str]] = {}
        self.numbers = range(1, count + 1)
        for number in self.numbers:
            self.start(number)

    @property
    def bootstrap(self) -> str:
        return ",".join(self._address(number) for number in self.numbers)

    def is_up(self, number: int) -> bool:
        return number in self._running and self._running[number].poll() is None

    def start(self, number: int) -> None:
        """Start one, and wait until it is ready."""
        folder = self._folder / f"broker{number}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "broker.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "headrace.cli", "serve",
                    "--data-dir", str(folder / "data"), "--node-id", str(number),
                    "--listen", self._address(number), "--metadata", self._metadata,
                ],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        assert process.stdout is not None
        if "ready" not in process.stdout.readline():
            raise SystemExit(f"broker {number} did not start; see {folder / 'broker.log'}")
        self._running[number] = process

    def kill(self, number: int) -> None:
        """Kill the process as in a crash: nothing is flushed, closed or handed over."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()

    def _address(self, number: int) -> str:
        return f"127.0.0.1:{self._first_port + number - 1}"
