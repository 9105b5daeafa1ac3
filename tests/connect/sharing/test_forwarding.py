"""Requests between workers with HTTPS and logins, which are processes of their own."""

import signal
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.security.http_users import verifier_text, write_user
from tests.connect.running import topic_settings
from tests.security.authority import Authority, write

PAUSED = {
    "config": {"connector.class": "Datagen", "kafka.topic": "t", "quickstart": "users"},
    "initial_state": "PAUSED",
}
"""Spark is not started for it."""
NAMES = tuple(f"c-{n}" for n in range(8))


@pytest.fixture
def secured(connect_bootstrap: str, tmp_path: Path) -> Iterator[list[str]]:
    """The addresses of two workers."""
    authority = Authority()
    issued = authority.issue("CN=worker")
    for name, role in (("reader", "read"), ("writer", "write")):
        write_user(tmp_path / "users", name, f"{verifier_text(f'{name}-secret-7')},{role}")
    settings = {
        **topic_settings(),
        "group.id": f"secured-{uuid.uuid4().hex[:8]}",
        "ssl.keystore.location": write(
            tmp_path / "worker.pem", issued.key_pem(), issued.certificate_pem
        ),
        "ssl.truststore.location": write(tmp_path / "ca.pem", authority.pem),
        "authentication.method": "BASIC",
        "headrace.authentication.users.file": str(tmp_path / "users"),
    }
    command = [
        sys.executable, "-m", "headrace.cli", "connect", "serve", "--bootstrap", connect_bootstrap,
        "--listen", "127.0.0.1:0",
    ]  # fmt: skip
    for name, text in settings.items():
        command += ["--set", f"{name}={text}"]
    running = [
        subprocess.Popen(
            [*command, "--folder", str(tmp_path / name)], stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "other")
    ]
    addresses = []
    for process in running:
        assert process.stdout is not None
        ready = process.stdout.readline()
        addresses.append(ready.partition("ready on ")[2].partition(",")[0])
    yield addresses
    for process in running:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in running] == [0, 0]


def client(address: str, user: str, folder: Path) -> httpx.Client:
    return httpx.Client(
        base_url=f"https://{address}",
        auth=(user, f"{user}-secret-7"),
        verify=ssl.create_default_context(cafile=str(folder / "ca.pem")),
        timeout=60,
    )


def test_requests_are_forwarded_over_https_with_the_login_of_the_user(
    secured: list[str], tmp_path: Path
) -> None:
    first = client(secured[0], "writer", tmp_path)
    for name in NAMES:
        made = first.post("/connectors", json={"name": name, **PAUSED})
        assert made.status_code == 201, made.text
    deadline = time.monotonic() + 60
    while True:
        found = first.get("/connectors?expand=status").json()
        owners = {name: each["status"]["connector"]["worker_id"] for name, each in found.items()}
        if set(owners.values()) == set(secured):
            break
        assert time.monotonic() < deadline, owners
        time.sleep(0.1)
    moved = next(name for name, owner in owners.items() if owner == secured[1])
    reader = client(secured[0], "reader", tmp_path)
    status = reader.get(f"/connectors/{moved}/status").json()
    assert (status["connector"]["state"], status["connector"]["worker_id"]) == (
        "PAUSED",
        secured[1],
    )
    assert reader.put(f"/connectors/{moved}/stop").status_code == 403
    assert first.put(f"/connectors/{moved}/stop").status_code == 204
    assert reader.get(f"/connectors/{moved}/status").json()["connector"]["state"] == "STOPPED"
    nobody = httpx.Client(base_url=first.base_url, verify=False)
    # The header of forwarded requests gives no rights.
    headers = {"x-headrace-forwarded": "true"}
    assert nobody.get(f"/connectors/{moved}/status", headers=headers).status_code == 401
    assert reader.delete(f"/connectors/{moved}", headers=headers).status_code == 403
