"""The tiny service as a child process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]


class RunningService:
    """One process, and an HTTP client for it."""

    def __init__(self, options: dict[str, object]) -> None:
        command = [sys.executable, "-m", "tests.service.tiny_service", json.dumps(options)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ready = self.line()
        address = self.ready.partition("ready on ")[2].partition(",")[0]
        host, _, port = address.rpartition(":")
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.http = httpx.Client(base_url=url if address else "", timeout=60)

    def line(self) -> str:
        """The next line of its standard output; empty when it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str, str]:
        """Exit code, the rest of standard output, and the log."""
        self.http.close()
        output, log = self.process.communicate(timeout=60)
        return self.process.returncode, output, log


@contextmanager
def running(**options: object) -> Iterator[RunningService]:
    service = RunningService(options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.end()
