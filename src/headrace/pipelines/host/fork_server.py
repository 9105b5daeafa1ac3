"""A process from which Spark's Python workers are forked.

Spark starts one Python process for every streaming source, and one or two for every kind of work.
Each imports PySpark, Arrow and our package: 60 MB and a second of CPU. Forked from a process that
has imported them already, a worker shares these pages and is ready within milliseconds.

The driver starts the server (`ForkServer`) and sets PYSPARK_PYTHON to a script that calls
`worker_launcher.py` in its place. The server ends with its driver.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from headrace.pipelines.host.worker_launcher import PYTHON_VARIABLE, SOCKET_VARIABLE
from headrace.wire import codec

PRELOADED = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pandas",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark_headrace",
    "pyspark_headrace_delta",
    "headrace.pipelines.source.readers",
    "headrace.pipelines.sink.sink",
)


MESSAGES = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22, 24, 25, 26, 28)
"""The API keys that source and sink use."""


class ForkServer:
    """The server as the driver sees it."""

    def __init__(self, folder: Path) -> None:
        """The folder is private to this driver, and short enough for the name of a socket."""
        self._socket = folder / "fork-server"
        script = folder / "python"
        launcher = Path(__file__).with_name("worker_launcher.py")
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -ISs "{launcher}" "$@"\n')
        script.chmod(0o700)
        self._script = script
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(self._socket))
        listening.listen(64)
        ours, theirs = socket.socketpair()
        self._alive = ours
        """Closed by the kernel if the driver dies."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(listening.fileno()), str(theirs.fileno())],
            pass_fds=(listening.fileno(), theirs.fileno()),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        listening.close()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def environment(self) -> Mapping[str, str]:
        """What Spark's Java needs to use the server."""
        return {
            # Of tasks, and of what Spark does in the driver.
            "PYSPARK_PYTHON": str(self._script),
            "PYSPARK_DRIVER_PYTHON": str(self._script),
            SOCKET_VARIABLE: str(self._socket),
            PYTHON_VARIABLE: sys.executable,
        }

    def close(self) -> None:
        self._alive.close()
        self._process.wait()


class _Workers:
    """The server's loop: connections of launchers and the worker of each."""

    def __init__(self, listening: socket.socket, driver: socket.socket) -> None:
        self._listening = listening
        self._driver = driver
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)
        self._selector.register(driver, selectors.EVENT_READ)
        self._workers: dict[int, socket.socket] = {}
        wake_read, self._wake = socket.socketpair()
        wake_read.setblocking(False)
        self._wake.setblocking(False)
        self._woken = wake_read
        self._selector.register(wake_read, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                found = key.fileobj
                if found is self._driver:
                    self._end_all()
                    return
                if found is self._listening:
                    connection, _ = self._listening.accept()
                    self._start(connection)
                elif found is self._woken:
                    with contextlib.suppress(BlockingIOError):
                        self._woken.recv(4096)
                    self._reap()
                else:
                    assert isinstance(found, socket.socket)
                    self._launcher_ended(found)

    def _start(self, connection: socket.socket) -> None:
        try:
            request, files = _receive(connection)
        except (OSError, ValueError):
            connection.close()
            return
        process = os.fork()
        if process == 0:
            self._become_worker(connection, request, files)
        for file in files:
            os.close(file)
        self._workers[process] = connection
        self._selector.register(connection, selectors.EVENT_READ, process)

    def _become_worker(
        self, connection: socket.socket, request: Mapping[str, object], files: list[int]
    ) -> NoReturn:
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._selector.close()
            for each in (self._listening, self._driver, self._wake, self._woken, connection):
                each.close()
            for other in self._workers.values():
                other.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            _run(request)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        while True:
            try:
                process, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            connection = self._workers.pop(process, None)
            if connection is not None:
                self._forget(connection)
                connection.close()

    def _launcher_ended(self, connection: socket.socket) -> None:
        process = self._selector.get_key(connection).data
        # A daemon of Spark ends its own workers on SIGTERM.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)

    def _end_all(self) -> None:
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)


def _receive(connection: socket.socket) -> tuple[Mapping[str, object], list[int]]:
    files = array.array("i")
    length, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * files.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data)
    wanted, pieces = int.from_bytes(length, "big"), b""
    while len(pieces) < wanted:
        piece = connection.recv(wanted - len(pieces))
        if not piece:
            raise ValueError("the launcher ended")
        pieces += piece
    return json.loads(pieces), list(files)


def _run(request: Mapping[str, object]) -> None:
    """What `python -m MODULE ARGUMENTS` does."""
    arguments, environment = request["arguments"], request["environment"]
    assert isinstance(arguments, list)
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    known = set(sys.path)
    path = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:0] = [each for each in path if each not in known]
    module = arguments[1]
    sys.argv = arguments[1:]
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    driver = socket.socket(fileno=int(sys.argv[2]))
    for name in PRELOADED:
        importlib.import_module(name)
    for key in MESSAGES:
        codec.request_class(key)
        codec.response_class(key)
    gc.collect()
    gc.freeze()
    _Workers(listening, driver).run()


if __name__ == "__main__":
    main()
