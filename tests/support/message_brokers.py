"""Servers of messages for tests, each with a folder and ports of its own."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.security.certificates import CertificateAuthority
from tests.support.databases import GROUP, USER, DatabaseServer, new_folder
from tests.support.ports import free_port

SYSTEM_PROGRAMS = "/usr/sbin"


def write_certificates(folder: Path) -> None:
    """`authority.pem`, and with keys `server.pem` for 127.0.0.1 and `client.pem`."""
    authority = CertificateAuthority.make("authority of a test")
    (folder / "authority.pem").write_text(authority.pem)
    for name in ("server", "client"):
        (folder / f"{name}.pem").write_text(authority.issue(name, ["127.0.0.1"]))


def mosquitto_program() -> str | None:
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")


class MosquittoServer(DatabaseServer):
    """An MQTT server that stores sessions. Its user `sensor` has the password `secret`; clients
    without a login are allowed as well. Over TLS it asks for a certificate."""

    def __init__(self) -> None:
        super().__init__(new_folder("mosquitto"), free_port())
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.tls_port = free_port()
        write_certificates(self.folder)
        passwords = self.folder / "passwords"
        passwords.write_text("sensor:secret\n")
        subprocess.run(["mosquitto_passwd", "-U", passwords], check=True, capture_output=True)
        passwords.chmod(0o644)
        (self.folder / "config").write_text(
            f"listener {self.port} 127.0.0.1\n"
            f"listener {self.tls_port} 127.0.0.1\n"
            f"cafile {self.folder}/authority.pem\n"
            f"certfile {self.folder}/server.pem\n"
            f"keyfile {self.folder}/server.pem\n"
            "require_certificate true\n"
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


def rabbitmq_program() -> str | None:
    """The server itself: Debian's script in /usr/sbin changes the user and the folder."""
    return shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin")


class RabbitMqServer(DatabaseServer):
    """RabbitMQ with a node name of its own; its user is `guest`, with the password `guest`. Over
    TLS it asks for a certificate."""

    def __init__(self) -> None:
        super().__init__(new_folder("rabbitmq"), free_port())
        self.tls_port = free_port()
        write_certificates(self.folder)
        (self.folder / "config.conf").write_text(
            f"listeners.ssl.default = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.cacertfile = {self.folder}/authority.pem\n"
            f"ssl_options.certfile = {self.folder}/server.pem\n"
            f"ssl_options.keyfile = {self.folder}/server.pem\n"
            "ssl_options.verify = verify_peer\n"
            "ssl_options.fail_if_no_peer_cert = true\n"
        )
        self._names_port = free_port()
        self._cluster_port = free_port()
        self._names: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str | Path]:
        program = rabbitmq_program()
        assert program is not None
        return [program]

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "config"),
            "RABBITMQ_DIST_PORT": str(self._cluster_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_MNESIA_BASE": str(self.folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }

    def start(self) -> None:
        if self._names is None:
            # Otherwise the server starts one that outlives it.
            self._names = subprocess.Popen(
                ["epmd", "-address", "127.0.0.1", "-port", str(self._names_port)],
                cwd=self.folder, user=USER, group=GROUP,
            )  # fmt: skip
        super().start()

    def answers(self) -> bool:
        import pika

        try:
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.port)).close()
        except pika.exceptions.AMQPError:
            return False
        return True

    def stop(self) -> None:
        super().stop()
        if self._names is not None:
            self._names.kill()
            self._names.wait()

    def _signal(self, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Also to the server, which its script has started."""
        os.killpg(process.pid, number)
