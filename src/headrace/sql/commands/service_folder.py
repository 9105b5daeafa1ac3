"""The folder of a server: checkpoints and view stores, for one server at a time."""

import fcntl
import os
import socket
import time
from pathlib import Path

from headrace.connect.checkpoint_folder import folder_id
from headrace.service.errors import StartFailure

LOCK_FILE = ".headrace-sql-lock"
TOPIC_FILE = ".headrace-sql-topic"
LOCK_WAIT_S = 5.0


class ServiceFolder:
    """The folder, locked until it is closed."""

    def __init__(self, path: str) -> None:
        """StartFailure if it cannot be written, or if another server has it."""
        self.path = Path(path).absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.id = folder_id(str(self.path))
            self._lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StartFailure(
                f"the folder {self.path} (headrace.sql.folder) cannot be written: {error.strerror}"
            ) from error
        if not self._take():
            owner = os.read(self._lock, 100).decode(errors="replace").strip()
            os.close(self._lock)
            raise StartFailure(
                f"another SQL server, process {owner or 'unknown'}, uses the folder {self.path}. "
                "Stop it, or start this server with another service id and folder: "
                "--service NAME --folder FOLDER"
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _take(self) -> bool:
        """Whether the lock was free, now or when a server that is stopping has ended."""
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() > deadline:
                    return False
            time.sleep(0.1)

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{socket.gethostname()}:{self.path}"

    @property
    def topic(self) -> str | None:
        """The command topic whose queries have their checkpoints here; None: the folder is new."""
        found = self.path / TOPIC_FILE
        return found.read_text() if found.exists() else None

    def remember(self, topic: str) -> None:
        """The folder belongs to the queries of this command topic from now on."""
        (self.path / TOPIC_FILE).write_text(topic)

    def close(self) -> None:
        os.close(self._lock)
