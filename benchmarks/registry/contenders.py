"""The two registries as processes, both keeping their data in topics of the same broker."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

from tests.support.ports import free_port

APICURIO = "3.0.9"
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".tools" / "apicurio" / APICURIO
JAR = FOLDER / f"apicurio-registry-app-{APICURIO}-runner.jar"


class Contender:
    """A registry that is running."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], prefix: str) -> None:
        self.name = name
        self.port = free_port()
        self.prefix = prefix
        self._command = [word.format(port=self.port) for word in command]
        self._env = {key: value.format(port=self.port) for key, value in env.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, log: Path) -> float:
        """Seconds from exec to the first answer that is a success."""
        self._log = log.open("ab")
        began = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._env},
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        url = f"http://127.0.0.1:{self.port}{self.prefix}/subjects"
        while time.monotonic() - began < 120:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return time.monotonic() - began
            except (OSError, urllib.error.URLError):
                time.sleep(0.01)
        raise RuntimeError(f"{self.name} did not start; see {log}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._log is not None:
            self._log.close()


def headrace(bootstrap: str) -> Contender:
    command = [
        sys.executable, "-m", "headrace.cli", "registry", "serve",
        "--bootstrap", bootstrap, "--listen", "127.0.0.1:{port}",
    ]  # fmt: skip
    return Contender("Headrace", command, {}, "")


def apicurio(bootstrap: str) -> Contender:
    """Apicurio with its KafkaSQL storage, without a line of log for every request."""
    env = {
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": "{port}",
        "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
    }
    command = ["java", "-Xmx1g", "-jar", str(JAR)]
    return Contender("Apicurio", command, env, "/apis/ccompat/v7")


def fetch_apicurio() -> None:
    """Brings Apicurio from Maven Central, once."""
    if JAR.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            "mvn", "--batch-mode", "--quiet", "dependency:copy",
            f"-Dartifact=io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all",
            f"-DoutputDirectory={FOLDER}",
        ],
        check=True,
        cwd=FOLDER,
    )  # fmt: skip
    (archive,) = FOLDER.glob("*.tar.gz")
    subprocess.run(["tar", "xzf", str(archive)], check=True, cwd=FOLDER)
    archive.unlink()
