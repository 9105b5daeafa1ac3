"""A real Hive metastore with a Derby database, from the jars of PySpark."""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import QUICK_START
from tests.support.ports import free_port

PATIENCE_S = 180


class HiveMetastore:
    """A metastore that Spark and others reach by Thrift."""

    def __init__(self) -> None:
        self.port = free_port()
        self.uri = f"thrift://127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-hive-"))
        settings = {
            "javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={self._folder}/metastore;create=true"
            ),
            "hive.metastore.warehouse.dir": f"{self._folder}/warehouse",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # It needs a jar that PySpark does not have.
            "hive.async.log.enabled": "false",
        }
        rows = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        (self._folder / "hive-site.xml").write_text(f"<configuration>{rows}</configuration>")
        found = importlib.util.find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        jars = Path(found.origin).parent / "jars"
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *QUICK_START,
                    *("-cp", os.pathsep.join([str(self._folder), f"{jars}/*"])),
                    "org.apache.hadoop.hive.metastore.HiveMetaStore",
                    *("-p", str(self.port)),
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            text = (self._folder / "log").read_text()[-3000:]
            assert self._process.poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 2).close()
        except OSError:
            return False
        return True

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
