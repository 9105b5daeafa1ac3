"""A rolling upgrade from the previous release, and back, while clients produce and commit."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import PATIENCE_S, RunningCluster
from tests.support.traffic import Writer, check

ROOT = Path(__file__).resolve().parents[2]
PREVIOUS = "6131af17e0ea"
"""The last commit of the previous release."""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The command under which the package of the previous release is used."""
    folder = tmp_path_factory.mktemp("previous")
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", PREVIOUS, "src"], capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"the commit {PREVIOUS} is not in this clone")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    command = ["env", f"PYTHONPATH={folder / 'src'}"]
    used = subprocess.run(
        [*command, sys.executable, "-c", "import headrace; print(headrace.__file__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert used.stdout.startswith(str(folder))
    return command


class Commits:
    """A group that commits rising offsets; knows the last one that was acknowledged."""

    def __init__(self, cluster: RunningCluster, topic: str) -> None:
        self.group = "upgraded"
        self.acknowledged = 0
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": self.group,
                "enable.auto.commit": False,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            following = self.acknowledged + 1
            offset = TopicPartition(self._topic, 0, following)
            try:
                answers = self._consumer.commit(offsets=[offset], asynchronous=False)
            except Exception:  # a coordinator that moves is asked again
                continue
            if answers and answers[0].error is None:
                self.acknowledged = following

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def committed(self) -> int:
        """What the cluster has."""
        (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], PATIENCE_S)
        return found.offset


@pytest.mark.slow
def test_a_rolling_upgrade_from_the_previous_release_and_back_loses_nothing(
    tmp_path: Path, previous: Sequence[str]
) -> None:
    # A broker of the previous release gives up if another one is creating the metadata file.
    with RunningCluster(tmp_path / "metadata", under=previous, together=False) as cluster:
        cluster.create("t", 3, min_insync_replicas="2")
        writer, commits = Writer(cluster, "t"), Commits(cluster, "t")
        writer.wait_for_more()
        for command in ((), previous):
            for broker in cluster.brokers.values():
                broker.stop()
                broker.under = command
                broker.start()
                cluster.wait_for("t", lambda found: all(
                    len(one.isrs) == 3 for one in found.partitions.values()
                ))  # fmt: skip
                writer.wait_for_more()
        writer.stop()
        commits.stop()
        check(cluster, "t", writer)
        assert commits.acknowledged > 0
        assert commits.committed() >= commits.acknowledged
