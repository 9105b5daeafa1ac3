"""The audit log: every change and read of records, with its object and its result."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace.security.http_users import verifier_text, write_user
from headrace.testing.running import RunningBroker
from tests.console.test_records_api import create, page
from tests.support.headrace_console import HeadraceConsole

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def audited(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    folder = tmp_path_factory.mktemp("audited")
    file = f"headrace.audit.file={folder / 'audit.log'}"
    with HeadraceConsole(headrace.bootstrap_servers, folder, "--set", file) as running:
        yield running


def lines(console: HeadraceConsole) -> list[dict[str, Any]]:
    text = (console.folder / "audit.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


def last(console: HeadraceConsole, event: str = "console_change") -> dict[str, Any]:
    return [each for each in lines(console) if each["event"] == event][-1]


def test_a_line_names_the_topic_and_its_settings(audited: HeadraceConsole, topic: str) -> None:
    create(audited, topic, 3, **{"retention.ms": "60000"})
    found = last(audited)
    assert (found["path"], found["result"]) == ("/api/topics", "done")
    assert found["request"] == {
        "name": topic, "partitions": 3, "configs": {"retention.ms": "60000"},
    }  # fmt: skip
    assert found["client"].startswith("127.0.0.1:")
    change = {"set": {"retention.ms": "1000"}, "delete": ["segment.ms"]}
    audited.http.patch(f"/topics/{topic}/configs", json=change)
    found = last(audited)
    assert (found["topic"], found["request"]) == (topic, change)


def test_a_failed_change_has_a_line_with_the_reason(audited: HeadraceConsole) -> None:
    answer = audited.http.post("/topics", json={"name": "not a name!"})
    assert answer.status_code == 422
    found = last(audited)
    assert (found["result"], found["status"]) == ("failed", 422)
    assert found["request"] == {"name": "not a name!"}
    assert "not a name!" in found["reason"]
    assert audited.http.post("/topics", content=b"no JSON").status_code == 400
    assert (last(audited)["status"], "request" in last(audited)) == (400, False)


def test_lines_of_acls_and_quotas_have_what_was_changed(audited: HeadraceConsole) -> None:
    quota = {"entity": {"user": "ada"}, "set": {"producer_byte_rate": "1000"}, "remove": []}
    audited.http.patch("/quotas", json=quota)
    assert last(audited)["request"] == quota
    acl = {
        "type": "TOPIC", "pattern": "LITERAL", "name": "orders", "principal": "User:ada",
        "host": "*", "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    audited.http.post("/acls", json=acl)
    found = last(audited)
    # The principal of the ACL is not that of the event.
    assert (found["request"], found["principal"]) == (acl, "User:ANONYMOUS")


def test_contents_and_passwords_are_not_written(audited: HeadraceConsole, topic: str) -> None:
    create(audited, topic)
    value = {"format": "text", "text": "SECRET-VALUE"}
    answer = audited.http.post(f"/topics/{topic}/records", json={"value": value})
    assert answer.status_code == 200
    found = last(audited)
    assert (found["topic"], found["answer"]) == (topic, {"partition": 0, "offset": "0"})
    audited.http.put("/users/ada", json={"password": "SECRET-PASSWORD"})
    assert last(audited)["user"] == "ada"
    audited.http.patch("/brokers/1/configs", json={"set": {"ssl.key.password": "SECRET-KEY"}})
    assert last(audited)["request"] == {"set": ["ssl.key.password"]}
    assert "SECRET" not in (audited.folder / "audit.log").read_text()


def test_reads_of_records_are_written_with_their_query(
    audited: HeadraceConsole, topic: str
) -> None:
    create(audited, topic)
    page(audited, topic, **{"from": "oldest", "limit": 7})
    found = last(audited, "records_read")
    assert (found["topic"], found["request"]) == (topic, {"from": "oldest", "limit": "7"})
    assert audited.http.get(f"/topics/{topic}/records/0/99").status_code == 404
    assert last(audited, "records_read")["status"] == 404


def test_long_values_are_cut_and_long_lists_counted(audited: HeadraceConsole) -> None:
    names = [f"setting.{number}" for number in range(150)]
    body = {"set": {"retention.ms": "x" * 10_000}, "delete": names}
    assert audited.http.patch("/topics/none/configs", json=body).status_code >= 400
    found = last(audited)["request"]
    assert found["set"]["retention.ms"].endswith("(9500 more characters)")
    assert found["delete"] == [*names[:100], "50 more"]


def test_a_request_that_a_role_forbids_has_a_line(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    folder = tmp_path_factory.mktemp("forbidden")
    write_user(folder / "users", "ada", f"{verifier_text(PASSWORD)},view")
    with HeadraceConsole(
        headrace.bootstrap_servers, folder,
        "--set", "authentication.method=BASIC",
        "--set", f"headrace.authentication.users.file={folder}/users",
        "--set", f"headrace.audit.file={folder / 'audit.log'}",
    ) as console:  # fmt: skip
        answer = httpx.delete(f"{console.url}/api/topics/{topic}", auth=("ada", PASSWORD))
        assert answer.status_code == 403
        found = last(console, "console_denied")
        assert (found["principal"], found["method"], found["topic"]) == (
            "User:ada",
            "DELETE",
            topic,
        )
        assert (found["result"], found["needed_role"]) == ("forbidden", "write")
        denied = [each for each in lines(console) if each["event"] == "console_denied"]
        assert len(denied) == 1, "logins are audited too, and lines must not come twice"
