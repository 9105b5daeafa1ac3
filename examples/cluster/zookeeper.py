"""A ZooKeeper for the demonstration: one server, from the jars that `make tools` downloads."""

import socket
import subprocess
import time
from pathlib import Path

TICK_MS = 250
PATIENCE_S = 60


class ZooKeeper:
    """A server on a free port of this machine."""

    def __init__(self, folder: Path, jars: Path) -> None:
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        config = folder / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK_MS}\ndataDir={data}\nclientPortAddress=127.0.0.1\n"
            f"clientPort={self.port}\nadmin.enableServer=false\n"
        )
        with (folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "java", "-Xmx256m", "-cp", f"{jars}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config),
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._wait()

    @property
    def address(self) -> str:
        """The value of a broker's `--metadata`."""
        return f"zookeeper://127.0.0.1:{self.port}/demo"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("ZooKeeper did not start; is Java installed?") from None
                time.sleep(0.05)
