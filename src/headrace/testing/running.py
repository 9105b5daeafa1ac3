"""A real broker as a child process, and the object with which tests control it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.testing.broker_security import BrokerSecurity

_READY_WITHIN_S = 60
_STOP_WITHIN_S = 60


class BrokerDied(RuntimeError):
    """The broker did not start or stopped by itself; contains its output."""


class RunningBroker:
    """A broker on a free port of this machine, with its data in a temporary folder.

    Faults apply to the next requests of an API, given by Kafka's name ("Produce", "Fetch", ...);
    requests that already wait in the broker are not affected.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        folders: int = 1,
        *,
        home: Path | None = None,
        host: str = "127.0.0.1",
        under: Sequence[str] = (),
        secure: bool = False,
    ) -> None:
        """`home` is the folder of its files, by default a temporary one; `host` its address.

        `secure` starts a broker with TLS, logins and ACLs, whose user `admin` has all permissions;
        `security` has the configuration of clients. `under` is a command that runs the broker, such
        as `nsenter --net=FILE`; a change takes effect at the next start.
        """
        self._home = home or Path(tempfile.mkdtemp(prefix="headrace-"))
        self._host = host
        self.under = under
        # By default a new group waits three seconds for more members.
        self._settings = {"group.initial.rebalance.delay.ms": "0", **(settings or {})}
        self._node_id = node_id
        self._port = 0
        self._process: subprocess.Popen[str] | None = None
        self._paused = False
        self.data_dirs = [self._home / f"data{number or ''}" for number in range(folders)]
        self.data_dir = self.data_dirs[0]
        self.log_file = self._home / "broker.log"
        self._security = _make_security(self._home / "security", host) if secure else None
        self.start()

    @property
    def bootstrap_servers(self) -> str:
        """The value of clients' `bootstrap.servers`."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._running().pid

    # -------------------------------------------------------------------------------- life

    def start(self, disk_faults: Sequence[Mapping[str, object]] = ()) -> None:
        """Start the broker, on the same port and the same data as before.

        `disk_faults` take effect during the start; each has the arguments of `spoil_disk`.
        """
        assert self._process is None, "the broker is running already"
        self._paused = False
        command = [
            *self.under, sys.executable, "-m", "headrace.cli", "serve",
            "--listen", f"{self._host}:{self._port}",
            "--node-id", str(self._node_id),
        ]  # fmt: skip
        if self._security is not None:
            command += ["--config", str(self._security.config)]
        for folder in self.data_dirs:
            command += ["--data-dir", str(folder)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        fault_port = self._home / "faults"
        fault_port.unlink(missing_ok=True)
        with self.log_file.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={
                    **os.environ,
                    "HEADRACE_FAULT_PORT": str(fault_port),
                    "HEADRACE_FAILPOINTS": json.dumps(disk_faults),
                    **(self._security.environment if self._security is not None else {}),
                },
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready on" not in line:
            self._process.wait(_READY_WITHIN_S)
            self._process = None
            raise BrokerDied(f"the broker did not start:\n{line}{self.log_file.read_text()}")
        self._port = int(line.split("ready on ")[1].split(",")[0].rpartition(":")[2])
        if self._security is not None:
            self._security.started(self.bootstrap_servers)

    @property
    def security(self) -> "BrokerSecurity":
        """The configuration of clients, for a broker with `secure`."""
        assert self._security is not None, "the broker was not started with secure=True"
        return self._security

    def stop(self) -> None:
        """Stop cleanly, as SIGTERM does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop at once, as in a crash; nothing is flushed or closed."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend the process with SIGSTOP until `go_on`."""
        self._running().send_signal(signal.SIGSTOP)
        self._paused = True

    def go_on(self) -> None:
        """Resume the process after `pause`."""
        self._running().send_signal(signal.SIGCONT)
        self._paused = False

    def wait_until_dead(self) -> int:
        """Wait until the broker has ended by itself; its exit code, below 0 for a signal."""
        process = self._running()
        code = process.wait(_STOP_WITHIN_S)
        assert process.stdout is not None
        process.stdout.close()
        self._process = None
        return code

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End the broker and remove its data."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        process = self._running()
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_WITHIN_S)
        if process.poll() is None:
            process.kill()
            process.wait()
            raise BrokerDied(f"the broker did not stop in {_STOP_WITHIN_S} s")
        assert process.stdout is not None
        process.stdout.close()
        self._process = None

    @property
    def is_running(self) -> bool:
        """Whether the broker was started and not stopped; it may have crashed."""
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        """Whether the broker is paused."""
        return self._paused

    def _running(self) -> "subprocess.Popen[str]":
        assert self._process is not None, "the broker is not running"
        return self._process

    # ------------------------------------------------------------------------------ faults

    def fail(self, api: str, error: ErrorCode | int, count: int = 1) -> None:
        """Respond to the next `count` requests of `api` with an error, without handling them."""
        self._ask({"do": "error", "api": api, "code": int(error), "count": count})

    def delay(self, api: str, seconds: float, count: int = 1) -> None:
        """Delay the handling of the next `count` requests of `api`."""
        self._ask({"do": "delay", "api": api, "seconds": seconds, "count": count})

    def cut(self, api: str, count: int = 1, *, after: bool = False) -> None:
        """Close the connection on the next `count` requests of `api`.

        Before the request is handled, or `after` it, so that only the response is lost.
        """
        self._ask({"do": "drop" if after else "cut", "api": api, "count": count})

    def move_clock(self, ms: int) -> None:
        """Set the difference of the broker's wall clock from the machine's."""
        self._ask({"do": "clock", "skew_ms": ms})

    def spoil_disk(self, point: str, **fault: int | str) -> None:
        """Let a disk call fail, write only a part, or kill the broker.

        Points and faults are those of `headrace.disk.failpoints`: `code=errno.ENOSPC`,
        `written=10`, `kill=True`, `after=True`, `skip=2`, `count=-1`, `under=folder`.
        """
        self._ask({"do": "disk", "point": point, **fault})

    def trace_disk(self) -> list[str]:
        """The points that the broker's disk calls have passed since the last call."""
        points = self._ask({"do": "trace"})["points"]
        assert isinstance(points, list)
        return points

    def faults_left(self) -> int:
        """The number of faults for requests that have not taken effect yet."""
        left = self._ask({"do": "count"})["waiting"]
        assert isinstance(left, int)
        return left

    def clear_faults(self) -> None:
        """Remove pending faults, and reset the clock."""
        self._ask({"do": "clear"})

    def _ask(self, command: Mapping[str, object]) -> dict[str, object]:
        with socket.socket(socket.AF_UNIX) as port:
            port.settimeout(60)
            port.connect(str(self._home / "faults"))
            port.sendall(json.dumps(command).encode() + b"\n")
            answer: dict[str, object] = json.loads(port.makefile().readline())
        if not answer["ok"]:
            raise ValueError(answer["error"])
        return answer


def _make_security(folder: Path, host: str) -> "BrokerSecurity":
    # Imported here, because certificates need a package that most tests do not.
    from headrace.testing.broker_security import BrokerSecurity

    return BrokerSecurity(folder, host)
