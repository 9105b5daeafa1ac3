"""A real HDFS: a NameNode and a DataNode, from the jars that scripts/fetch-java-tools brings."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import QUICK_START, ROOT
from tests.support.ports import free_port

POM = ROOT / "scripts" / "java" / "hadoop.pom.xml"
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
PATIENCE_S = 180
LOGGING = """\
log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%p %c: %m%n
"""


def jars() -> Path:
    found = re.search(r"<hadoop\.version>(.*)</hadoop\.version>", POM.read_text())
    assert found is not None
    return ROOT / ".tools" / "hadoop" / found[1]


@cache
def missing() -> str | None:
    """None when HDFS can be started, else a sentence with what is missing."""
    if shutil.which("java") is None:
        return "no Java runtime: install the Debian package openjdk-17-jre-headless"
    if not (jars() / ".complete").exists():
        return "no Hadoop jars: run `make tools` (needs the Debian package maven)"
    return None


class HdfsServer:
    """A file system with one replica of each block. Everybody may write."""

    def __init__(self) -> None:
        self.port, self.http_port = free_port(), free_port()
        self.url = f"hdfs://127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-hdfs-"))
        settings = {
            "fs.defaultFS": self.url,
            "dfs.namenode.http-address": f"127.0.0.1:{self.http_port}",
            "dfs.namenode.name.dir": f"file://{self._folder}/name",
            "dfs.datanode.data.dir": f"file://{self._folder}/data",
            "dfs.datanode.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.http.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{free_port()}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.datanode.du.reserved": "0",
            "dfs.namenode.resource.du.reserved": "0",
            "hadoop.tmp.dir": f"{self._folder}/tmp",
        }
        rows = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>"
            for name, value in settings.items()
        )
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._folder / name).write_text(f"<configuration>{rows}</configuration>")
        (self._folder / "log4j.properties").write_text(LOGGING)
        # Maven's jars lack the pages of the web interfaces, and the servers look for their folders.
        for name in ("hdfs", "datanode", "static"):
            (self._folder / "webapps" / name).mkdir(parents=True)
        subprocess.run(
            [*self._java(), NAME_NODE, "-format", "-nonInteractive"],
            check=True,
            capture_output=True,
            cwd=self._folder,
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        for main in (NAME_NODE, DATA_NODE):
            with (self._folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    [*self._java(), main], stdout=log, stderr=log, cwd=self._folder
                )
            self._processes.append(process)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self._answers():
            text = (self._folder / "log").read_text()[-3000:]
            assert all(process.poll() is None for process in self._processes), text
            assert time.monotonic() < end, text
            time.sleep(0.2)

    def _java(self) -> list[str]:
        path = os.pathsep.join([str(self._folder), f"{jars()}/*"])
        return ["java", *QUICK_START, "-Xmx256m", "-cp", path]

    def _answers(self) -> bool:
        """Whether the DataNode is there and files can be written."""
        query = "qry=Hadoop:service=NameNode,name=NameNodeInfo"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/jmx?{query}") as page:
                (found,) = json.load(page)["beans"]
        except (OSError, ValueError):
            return False
        return not found["Safemode"] and len(json.loads(found["LiveNodes"])) == 1

    def close(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
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
