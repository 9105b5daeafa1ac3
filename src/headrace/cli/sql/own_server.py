"""A SQL server for one session of the prompt, if none responds."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.cli.failures import ExitCode, Failure
from headrace.portable import PARENT

STARTS_WITHIN_S = 120.0
STOPS_WITHIN_S = 60.0
LOG_FILE = "server.log"
REASON = "cannot start: "
"""Before the reason in the log of a service that does not start."""
_READY = re.compile(r"is ready on (\S+?),")


@contextlib.contextmanager
def own_server(folder: Path, options: Sequence[str]) -> Iterator[str]:
    """The address of a server that runs until the block ends; its log is in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_FILE
    words = [sys.executable, "-m", "headrace.cli", "sql", "serve", "--listen", "127.0.0.1:0"]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*words, "--folder", str(folder), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # Ctrl-C at the prompt is not for the server.
            start_new_session=True,
            env={**os.environ, PARENT: str(os.getpid())},
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    timer = threading.Timer(STARTS_WITHIN_S, process.kill)
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    found = _READY.search(line)
    if found is None:
        process.wait()
        lines = [each for each in log.read_text(encoding="utf-8").splitlines() if each.strip()]
        told = [each for each in lines if REASON in each] or lines
        is_unreachable = process.returncode == ExitCode.UNREACHABLE
        raise Failure(
            "a SQL server for this command could not be started: "
            + (told[-1].partition(REASON)[2] or told[-1] if told else str(process.returncode)),
            exit_code=ExitCode.UNREACHABLE if is_unreachable else ExitCode.FAILED,
            code="UNREACHABLE" if is_unreachable else "FAILED",
            hint=f"Its log is {log}. `headrace serve` starts a broker, and --server URL names a "
            "server that runs.",
        )
    return f"http://{found[1]}"


def options_of(bootstrap: str, client_config: str | None, service: str | None) -> list[str]:
    """The command line of the server, without its address and folder."""
    options = ["--bootstrap", bootstrap]
    if client_config is not None:
        options += ["--client-config", os.path.abspath(client_config)]
    if service is not None:
        options += ["--service", service]
    return options
