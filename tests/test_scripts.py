"""What `make up` runs: the broker in the background, and the demo if it can run."""

import fcntl
import json
import os
import pty
import socket
import ssl
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.schemas.client import RequestRefused, SchemaClient
from tests.support import spark as support
from tests.support.ports import free_port, wait_for_metadata

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / ".venv" / "bin" / "headrace").exists(), reason="`make dev` has not made .venv"
)


def environment(**more: str) -> dict[str, str]:
    """As at a person's terminal: .venv's PySpark may be another than the one of these tests."""
    ours = {"SPARK_HOME", "PYSPARK_PYTHON"}
    return {name: value for name, value in os.environ.items() if name not in ours} | more


def script(name: str, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(ROOT / "scripts" / name), *words],
        capture_output=True,
        text=True,
        timeout=240,
        # The services would want ports of their own; the tests of these start them.
        env=environment(**{"REGISTRY": "", "CONNECT": "", "SQL": "", "CONSOLE": "", **env}),
        check=False,
    )


def script_on_a_terminal(
    name: str, *words: str, env: dict[str, str], interrupt_after: str | None = None
) -> tuple[int, str]:
    """Run a script as a person does at a terminal, who presses Ctrl-C once he has seen a text."""
    pid, terminal = pty.fork()
    if pid == 0:
        program = str(ROOT / "scripts" / name)
        os.execve(program, [program, *words], environment(**env))
    # Wide and high enough that nothing is cut off.
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
    said = ""
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk.decode(errors="replace")
            if interrupt_after is not None and interrupt_after in said:
                os.write(terminal, b"\x03")
                interrupt_after = None
    except OSError:
        # The last one who had the terminal open has closed it.
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A broker that `make up` has started: its folder and port."""
    port = free_port()
    done = script("up", f"127.0.0.1:{port}", str(tmp_path))
    assert done.returncode == 0, done.stderr
    yield str(tmp_path), port
    assert script("down", str(tmp_path)).returncode == 0


def test_without_java_the_broker_keeps_running_and_the_demo_says_what_is_missing(
    up: tuple[str, int],
) -> None:
    folder, port = up
    code, said = script_on_a_terminal(
        "show-demo", "yes", f"127.0.0.1:{port}", folder, env={"JAVA_HOME": "/nowhere"}
    )
    assert code == 0
    assert "JAVA_HOME is /nowhere" in said
    assert "Java 17 or 21" in said
    assert "The broker goes on running" in said
    wait_for_metadata(port, lambda: True, 10)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_is_shown_live_and_ctrl_c_stops_everything(tmp_path: Path) -> None:
    if reason := support.missing():
        pytest.skip(reason)
    current = subprocess.run(["make", "-q", ".venv/.installed-demo"], cwd=ROOT, check=False)
    if current.returncode != 0:
        pytest.skip("run `make dev`: .venv is older than pyproject.toml or the lock")
    port = free_port()
    address = f"127.0.0.1:{port}"
    assert script("up", address, str(tmp_path)).returncode == 0
    try:
        code, said = script_on_a_terminal(
            "show-demo", "yes", address, str(tmp_path), env={}, interrupt_after="too warm"
        )
    finally:
        script("down", str(tmp_path))
    assert code == 0, said[-3000:]
    assert "waiting for Spark" in said
    assert "the sensors have stopped" in said
    assert "exactly once: every reading counted once, topic and table the same" in said
    assert "Headrace has stopped." in said
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 50_000
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


def test_without_a_terminal_make_up_returns_with_the_broker_running(up: tuple[str, int]) -> None:
    folder, port = up
    done = script("show-demo", "yes", f"127.0.0.1:{port}", folder)
    assert done.returncode == 0
    assert "make demo" in done.stdout
    wait_for_metadata(port, lambda: True, 10)


def test_a_second_make_up_finds_the_broker_running_and_down_stops_it(tmp_path: Path) -> None:
    words = (f"127.0.0.1:{free_port()}", str(tmp_path))
    assert script("up", *words).returncode == 0
    assert "already running" in script("up", *words).stdout
    assert "has stopped" in script("down", str(tmp_path)).stdout
    assert "not running" in script("down", str(tmp_path)).stdout


def assert_services_use_their_own_users(audit_log: Path) -> None:
    """Each service has logged in as its own user, and could do what it tried."""
    events = [json.loads(line) for line in audit_log.read_text().splitlines()]
    principals = {event["principal"] for event in events if event["event"] == "login"}
    assert principals == {
        f"User:{name}" for name in ("admin", "registry", "connect", "sql", "console")
    }
    assert [event for event in events if event["event"] == "denied"] == []


def test_a_secured_broker_is_started_with_what_its_clients_need(tmp_path: Path) -> None:
    port, registry = free_port(), f"127.0.0.1:{free_port()}"
    connect, console = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    sql = f"127.0.0.1:{free_port()}"
    services = {"REGISTRY": registry, "CONNECT": connect, "SQL": sql, "CONSOLE": console}
    words = (f"127.0.0.1:{port}", str(tmp_path))
    try:
        for _ in range(2):  # the second time with the same users and certificates
            done = script("up", *words, SECURE="yes", **services)
            assert done.returncode == 0, done.stderr
            assert f"running on https://{registry}" in done.stdout, done.stderr
            client_file = tmp_path / "security" / "admin.registry.json"
            known = json.loads(client_file.read_text())
            login = known["basic.auth.user.info"]
            asked = SchemaClient((f"https://{registry}",), login, known["ssl.ca.location"])
            assert asked.get("subjects") == []
            with pytest.raises(RequestRefused, match="401"):
                SchemaClient(asked.urls, "admin:wrong", asked.ca_file).get("subjects")
            assert f"running on https://{console}" in done.stdout, done.stderr
            context = ssl.create_default_context(cafile=known["ssl.ca.location"])
            pages = httpx.Client(base_url=f"https://{console}", verify=context)
            assert pages.get("/api/topics").status_code == 401
            user, _, password = login.partition(":")
            assert pages.get("/api/topics", auth=(user, password)).status_code == 200
            assert pages.get("/api/schemas", auth=(user, password)).json()["subjects"] == []
            assert f"running on https://{connect}" in done.stdout, done.stderr
            connectors = pages.get("/api/connectors", auth=(user, password))
            assert (connectors.status_code, connectors.json()["connectors"]) == (200, [])
            assert f"running on https://{sql}" in done.stdout, done.stderr
            statements = httpx.Client(base_url=f"https://{sql}", verify=context)
            body = {"ksql": "LIST CONNECTORS; LIST TOPICS;"}
            assert statements.post("/ksql", json=body).status_code == 401
            answered = statements.post("/ksql", json=body, auth=(user, password))
            assert answered.json()[0]["connectors"] == [], "the server has logged in to Connect"
            sources = pages.get("/api/sql/sources", auth=(user, password))
            assert sources.json() == {"sources": [], "warnings": []}, "so has the console to SQL"
            client = f"--client-config {tmp_path}/security/admin.properties"
            assert client in done.stdout
            listed = subprocess.run(
                [ROOT / ".venv/bin/headrace", "topics", "list", *client.split()], check=False
            )
            assert listed.returncode == 0
            assert_services_use_their_own_users(tmp_path / "audit.log")
            assert "has stopped" in script("down", str(tmp_path)).stdout
    finally:
        script("down", str(tmp_path))
    refused = script("up", f"127.0.0.1:{free_port()}", str(tmp_path), SECURE="yes")
    assert refused.returncode == 1
    assert "made for another port" in refused.stderr
