"""A service as a process: start, log, stop."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.service.running import running


def test_it_reports_its_address_when_it_accepts_requests() -> None:
    with running() as service:
        assert service.ready.startswith("Headrace tiny is ready on 127.0.0.1:")
        assert service.ready.endswith(", two routes\n")
        assert service.http.get("/health/live").status_code == 200
        service.terminate()
        code, output, _ = service.end()
    assert (code, output) == (0, "stopped\n")


def test_a_stop_waits_for_requests_in_progress() -> None:
    with running() as service, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(service.http.put, "/notes/a?slow&seconds=1", json=1)
        assert service.line() == "slow\n"
        service.terminate()
        assert slow.result().status_code == 200
        code, output, log = service.end()
    assert (code, output) == (0, "stopped\n")
    found = [json.loads(line) for line in log.splitlines()]
    assert [each.get("requests_in_progress") for each in found] == [1, None]


def test_a_stop_ends_requests_that_take_too_long_with_status_503() -> None:
    with running(graceful_stop_s=1) as service, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(service.http.put, "/notes/a?slow", json=1)
        assert service.line() == "slow\n"
        service.terminate()
        answer = slow.result()
        assert (answer.status_code, answer.json()["error_code"]) == (503, 503)
        assert service.end()[:2] == (0, "stopped\n")


def test_a_service_that_cannot_start_says_why_without_a_traceback() -> None:
    with running(problem="start", log_format="text") as service:
        code, _, log = service.end()
    assert (code, service.ready) == (1, "")
    assert "headrace.tiny: cannot start: the notes are locked; remove the lock\n" in log
    assert "Traceback" not in log


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with running(port=port, log_format="text") as service:
            code, _, log = service.end()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in log


def test_it_listens_on_an_ipv6_address() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with running(host="::1") as service:
        assert service.http.get("/health/live").status_code == 200


def test_an_unexpected_error_is_logged_with_its_route_as_fields() -> None:
    with running(log_format="json") as service:
        assert service.http.get("/notes/bug").status_code == 500
        service.terminate()
        _, _, log = service.end()
    found = [json.loads(line) for line in log.splitlines()]
    errors = [each for each in found if each["level"] == "error"]
    assert [(each["method"], each["path"]) for each in errors] == [("GET", "/notes/{name}")]
    assert "KeyError" in errors[0]["trace"]
