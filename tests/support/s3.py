"""A server with the interface of S3: moto, from .tools, where scripts/fetch-moto puts it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow.fs as pafs

from tests.support.java import ROOT
from tests.support.ports import free_port

PATIENCE_S = 120
KEY, SECRET = "AKIAHEADRACETEST0000", "s3-secret-of-the-tests/xyz+1"
REGION = "eu-central-1"


def moto_folder() -> Path:
    (line,) = (
        line
        for line in (ROOT / "scripts" / "moto-requirements.txt").read_text().splitlines()
        if line.startswith("moto")
    )
    return ROOT / ".tools" / "moto" / line.partition("==")[2]


@cache
def missing() -> str | None:
    """None when the server can be started, else a sentence with what is missing."""
    if not (moto_folder() / ".complete").exists():
        return "no moto: run `make tools`"
    return None


class S3Server:
    """A server with buckets; it forgets everything when it ends."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-s3-"))
        self._log = self._folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, str(moto_folder()), str(self.port)],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "MOTO_ALLOW_NONEXISTENT_REGION": "true"},
            )
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()[-2000:]
            assert time.monotonic() < end, self._log.read_text()[-2000:]
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            self.filesystem().get_file_info("none")
        except OSError:
            return False
        return True

    def filesystem(self) -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
            request_timeout=60,
            connect_timeout=5,
        )

    def create_bucket(self, name: str) -> None:
        self.filesystem().create_dir(name)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# Isolated from the environment of the tests, whose versions of some packages differ.
_START = """
import sys
folder, port = sys.argv[1:]
sys.path.insert(0, folder)
from moto.server import main
main(["-H", "127.0.0.1", "-p", port])
"""
