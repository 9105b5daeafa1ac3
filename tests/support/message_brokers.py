"""Servers of messages for tests, each with a folder and ports of its own."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.databases import DatabaseServer, new_folder
from tests.support.ports import free_port

SYSTEM_PROGRAMS = "/usr/sbin"


def mosquitto_program() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")


class MosquittoServer(DatabaseServer):
    """An MQTT server that stores sessions. Its user `sensor` has the password `secret`; clients
    without a login are allowed as well."""

    def __init__(self) -> None:
        super().__init__(new_folder("mosquitto"), free_port())
        self.address = f"tcp://127.0.0.1:{self.port}"
        passwords = self.folder / "passwords"
        passwords.write_text("sensor:secret\n")
        subprocess.run(["mosquitto_passwd", "-U", passwords], check=True, capture_output=True)
        passwords.chmod(0o644)
        (self.folder / "config").write_text(
            f"listener {self.port} 127.0.0.1\n"
            "allow_anonymous true\n"
            f"password_file {passwords}\n"
            "persistence true\n"
            f"persistence_location {self.folder}/\n"
            "autosave_interval 1\n"
            "max_queued_messages 0\n"
        )

    def command(self) -> Sequence[str | Path]:
        program = mosquitto_program()
        assert program is not None
        return [program, "-c", self.folder / "config"]

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
