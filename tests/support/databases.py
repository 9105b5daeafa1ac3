"""Servers of databases for tests, each with a folder and a port of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.ports import free_port

PATIENCE_S = 60
# Servers of databases refuse to run as root.
USER, GROUP = ("nobody", "nogroup") if os.geteuid() == 0 else (None, None)


def postgresql_programs() -> Path | None:
    """The folder with PostgreSQL's programs, the newest if there are several."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


def mariadb_program() -> str | None:
    return shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class DatabaseServer:
    """A server that can be killed and started again."""

    quick = signal.SIGKILL
    """The signal that ends it at once, as nothing of it is needed any more."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def answers(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.environment(),
                user=USER,
                group=GROUP,
                # A server may be started by a script, with which it must end.
                start_new_session=True,
            )
        end = time.monotonic() + PATIENCE_S
        while not self.answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def kill(self) -> None:
        """As if the machine lost power, but for what the system still writes."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(self.quick)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(self._process, number)
            self._process.wait(PATIENCE_S)
            self._process = None

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        process.send_signal(number)

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


class PostgresqlServer(DatabaseServer):
    """PostgreSQL with logical decoding; its user is `postgres`, with any password."""

    quick = signal.SIGQUIT  # also ends the processes of its connections

    def __init__(self) -> None:
        programs = postgresql_programs()
        assert programs is not None
        super().__init__(new_folder("postgresql"), free_port())
        self._programs = programs
        subprocess.run(
            [str(programs / "initdb"), "-D", self.folder / "data", "-U", "postgres", "--no-sync",
             "-A", "trust", "--encoding=UTF8", "--no-locale"],
            check=True,
            capture_output=True,
            user=USER, group=GROUP,
        )  # fmt: skip

    def command(self) -> Sequence[str | Path]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "wal_level": "logical",
            "max_wal_senders": "4",
            "max_replication_slots": "8",
            "shared_buffers": "16MB",
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [
            self._programs / "postgres", "-D", self.folder / "data", "-p", str(self.port), *given
        ]  # fmt: skip

    def answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def kill(self) -> None:
        """Also the processes of its connections, which would otherwise finish their work."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids = [int(word) for word in children.read_text().split()]
        super().kill()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # The next server waits until all processes of this one have left the shared memory.
        while any(_is_running(pid) for pid in pids):
            time.sleep(0.01)


class MariadbServer(DatabaseServer):
    """MariaDB with a binary log of rows; its user is `root`, without a password."""

    def __init__(self) -> None:
        program = mariadb_program()
        assert program is not None
        super().__init__(new_folder("mariadb"), free_port())
        self._program = program
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}",
             "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"],
            check=True,
            capture_output=True,
            cwd=self.folder,
            user=USER, group=GROUP,
        )  # fmt: skip

    def command(self) -> Sequence[str | Path]:
        return [
            self._program,
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            f"--socket={self.folder / 'socket'}",
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=32M",
            "--server-id=1",
            "--log-bin=binlog",
            "--binlog-format=ROW",
            "--binlog-row-metadata=FULL",
        ]

    def answers(self) -> bool:
        import pymysql

        try:
            pymysql.connect(host="127.0.0.1", port=self.port, user="root").close()
        except pymysql.err.OperationalError:
            return False
        return True


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def new_folder(name: str) -> Path:
    """A folder for the user that runs the server, who may not enter the folders of pytest."""
    folder = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-"))
    if USER is not None:
        user = pwd.getpwnam(USER)
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


@contextlib.contextmanager
def killed(server: DatabaseServer) -> Iterator[None]:
    """The server is dead within the block, and runs again after it."""
    server.kill()
    try:
        yield
    finally:
        server.start()
