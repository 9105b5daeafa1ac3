"""A broker that starts or stops while its metadata store does not answer."""

import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.broker.starting import StoppedWhileStarting, StoreCalls
from headrace.cluster.sqlite_store import SqliteStore
from headrace.cluster.store import StoreError, StoreUnreachable
from headrace.cluster.zookeeper_store import ZookeeperStore
from headrace.errors import ErrorCode, KafkaError
from tests.support import zookeeper
from tests.support.link import Link
from tests.support.ports import free_port
from tests.support.stores import eventually, python_process
from tests.support.zookeeper import Server, ZooKeeper

STOP_WITHIN_S = 60

END_THE_SESSION_BEFORE_RUNNING = """
import sys, time
from kazoo.client import KazooClient
from headrace.broker.server import Server
from headrace.settings import Settings
address, folder = sys.argv[1:]
given = {"headrace.metadata": address, "listeners": "PLAINTEXT://127.0.0.1:0"}
server = Server(Settings.parse(given), (folder,), 1)
store = server.parts.store
other = KazooClient(store._client.hosts[0][0] + ":" + str(store._client.hosts[0][1]),
                    client_id=store._client.client_id)
other.start(60)
other.stop()
while store.get("/live/1") is not None or store._session.is_suspended:
    time.sleep(0.02)
print("ended", flush=True)
server.run()
"""


class StartingBroker:
    """`headrace serve` as a process, of which nothing is awaited."""

    def __init__(self, folder: Path, metadata: str, **settings: str) -> None:
        self.data = folder / "data"
        self._log = folder / "broker.log"
        command = [sys.executable, "-m", "headrace.cli", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(self.data), "--metadata", metadata]
        for name, value in {"zookeeper_session_timeout_ms": "2000", **settings}.items():
            command += ["--set", f"{name.replace('_', '.')}={value}"]
        folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def log(self) -> str:
        return self._log.read_text()

    def wait_for_log(self, text: str) -> None:
        eventually(lambda: text in self.log() or self.process.poll() is not None, text)
        assert text in self.log(), self.log()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_WITHIN_S)


@contextmanager
def starting(folder: Path, metadata: str, **settings: str) -> Iterator[StartingBroker]:
    broker = StartingBroker(folder, metadata, **settings)
    try:
        yield broker
    finally:
        broker.process.kill()
        broker.process.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble.servers[0]


@pytest.fixture
def chroot() -> str:
    return f"/{uuid.uuid4().hex}"


def is_clean(broker: StartingBroker) -> bool:
    return (broker.data / ".kafka_cleanshutdown").exists()


@pytest.mark.java
@pytest.mark.parametrize("moment", [b"/live", b"/changes", b"/top/cluster", b"/live/1"])
def test_a_broker_waits_for_a_zookeeper_that_stalls_while_it_starts(
    running: Server, tmp_path: Path, chroot: str, moment: bytes
) -> None:
    with Link(running.port) as link:
        link.cut_before(chroot.encode() + moment)
        where = f"zookeeper://127.0.0.1:{link.port}{chroot}"
        with starting(tmp_path, where) as broker:
            broker.wait_for_log("retrying")
            link.hang_up()
            link.heal()
            broker.wait_for_log("Headrace is ready on")
            store = ZookeeperStore(f"zookeeper://127.0.0.1:{running.port}{chroot}")
            try:
                eventually(lambda: store.get("/live/1") is not None, "it is registered")
            finally:
                store.close()
            assert broker.stop() == 0


@pytest.mark.java
def test_a_broker_waits_for_a_zookeeper_that_is_stopped_and_goes_on(
    running: Server, tmp_path: Path, chroot: str
) -> None:
    running.send(signal.SIGSTOP)
    try:
        with starting(tmp_path, f"zookeeper://127.0.0.1:{running.port}{chroot}") as broker:
            broker.wait_for_log("no ZooKeeper has answered for")
            running.send(signal.SIGCONT)
            broker.wait_for_log("Headrace is ready on")
            assert broker.stop() == 0
    finally:
        running.send(signal.SIGCONT)


@pytest.mark.java
def test_a_broker_stops_cleanly_while_zookeeper_does_not_answer(
    running: Server, tmp_path: Path, chroot: str
) -> None:
    try:
        with starting(tmp_path, f"zookeeper://127.0.0.1:{running.port}{chroot}") as broker:
            broker.wait_for_log("Headrace is ready on")
            running.send(signal.SIGSTOP)
            assert broker.stop() == 0
            assert "Traceback" not in broker.log()
            assert is_clean(broker)
    finally:
        running.send(signal.SIGCONT)


@pytest.mark.java
def test_a_session_that_expires_before_the_listener_is_registered_again(
    running: Server, tmp_path: Path, chroot: str
) -> None:
    where = f"zookeeper://127.0.0.1:{running.port}{chroot}"
    store = ZookeeperStore(where)
    script = END_THE_SESSION_BEFORE_RUNNING
    try:
        with python_process(script, where, str(tmp_path)) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ended\n"
            assert "ready on" in process.stdout.readline()
            eventually(lambda: store.get("/live/1") is not None, "it is registered again")
            process.terminate()
            assert process.wait(STOP_WITHIN_S) == 0
    finally:
        store.close()


def test_a_broker_without_a_zookeeper_waits_and_a_stop_leaves_its_data_as_they_were(
    tmp_path: Path,
) -> None:
    nowhere = f"zookeeper://127.0.0.1:{free_port()}/headrace"
    with starting(tmp_path, f"sqlite:{tmp_path}") as broker:
        broker.wait_for_log("Headrace is ready on")
        assert broker.stop() == 0
        assert is_clean(broker)
    with starting(tmp_path, nowhere, zookeeper_connection_timeout_ms="100") as broker:
        broker.wait_for_log("no ZooKeeper has answered for")
        assert nowhere in broker.log()
        assert broker.stop() == 0
        assert is_clean(broker), "nothing was touched, so nothing has to be recovered"
        assert broker.log().count("\n") < 10, "the log is not flooded"


def test_a_start_that_fails_leaves_a_clean_folder_clean(tmp_path: Path) -> None:
    with starting(tmp_path, f"sqlite:{tmp_path}") as broker:
        broker.wait_for_log("Headrace is ready on")
        assert broker.stop() == 0
    with starting(tmp_path, "zookeeper://127.0.0.1:port") as broker:
        assert broker.process.wait(STOP_WITHIN_S) == 1
        assert "HOST:PORT,HOST:PORT/PATH" in broker.log()
        assert is_clean(broker)


def test_a_host_name_that_cannot_be_resolved_ends_the_start_with_its_name(tmp_path: Path) -> None:
    where = "zookeeper://no-such-host.invalid:2181/headrace"
    with starting(tmp_path, where, zookeeper_connection_timeout_ms="300") as broker:
        assert broker.process.wait(STOP_WITHIN_S) == 1
        assert "no-such-host.invalid cannot be resolved" in broker.log()


def test_a_locked_metadata_file_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    other = SqliteStore(str(tmp_path))
    other._connection.execute("begin immediate")
    try:
        with starting(tmp_path, f"sqlite:{tmp_path}") as broker:
            broker.wait_for_log("retrying")
            other._connection.execute("rollback")
            broker.wait_for_log("Headrace is ready on")
            assert broker.stop() == 0
    finally:
        other.close()


# ------------------------------------------------------------------------------ the calls alone


def failing(*errors: Exception) -> Callable[[], str]:
    remaining = list(errors)

    def call() -> str:
        if remaining:
            raise remaining.pop(0)
        return "done"

    return call


def test_a_call_is_repeated_while_the_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.broker.starting._RETRY_S", 0.0)
    wrapped = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no answer")
    wrapped.__cause__ = StoreUnreachable("no answer")
    contended = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "others were faster")
    call = failing(StoreUnreachable("no answer"), wrapped, contended)
    assert StoreCalls().make("try", call) == "done"


@pytest.mark.parametrize(
    "error",
    [
        StoreError("these are not the metadata that were there before"),
        KafkaError(ErrorCode.INVALID_CONFIG, "this will never be right"),
    ],
)
def test_an_error_that_does_not_pass_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        StoreCalls().make("try", failing(error))


def test_a_signal_during_a_call_ends_the_start_even_if_the_call_succeeds() -> None:
    with pytest.raises(StoppedWhileStarting):
        StoreCalls().make("try", lambda: signal.raise_signal(signal.SIGTERM))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
