"""The HTTP interface: responses to clients, and refused requests."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from headrace.registry import limits
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user

V1 = "application/vnd.schemaregistry.v1+json"


def register(http: httpx.Client, subject: str, schema: str, **fields: object) -> dict[str, object]:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": schema, **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_answers_have_the_type_that_clients_ask_for(http: httpx.Client) -> None:
    for accept, kind in (
        (f"{V1}, application/json", V1),
        ("application/json", "application/json"),
        ("*/*", V1),
    ):
        answer = http.get("/schemas/types", headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert http.get("/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    refused = http.get("/schemas/types", headers={"accept": "text/html"})
    assert refused.status_code == 406


def test_a_version_is_shown_with_everything_that_was_registered(
    http: httpx.Client, subject: str
) -> None:
    fields = {
        "metadata": {"properties": {"owner": "ann"}, "tags": {"t": ["PII"]}, "sensitive": ["s"]},
        "ruleSet": {"domainRules": [{"name": "r", "kind": "CONDITION", "expr": "1 == 1"}]},
    }
    made = register(http, subject, user(), **fields)
    found = http.get(f"/subjects/{subject}/versions/latest").json()
    assert found["subject"] == subject
    assert (found["version"], found["id"]) == (1, made["id"])
    assert found["metadata"] == fields["metadata"]
    assert found["ruleSet"] == fields["ruleSet"]
    assert json.loads(found["schema"]) == json.loads(user())
    by_id = http.get(f"/schemas/ids/{made['id']}").json()
    assert by_id["metadata"] == fields["metadata"]
    assert http.get(f"/schemas/guids/{found['guid']}").json()["schema"] == found["schema"]
    assert http.get(f"/schemas/ids/{made['id']}/schema").json() == json.loads(user())
    assert http.get(f"/subjects/{subject}/versions/1/schema").json() == json.loads(user())


def test_lists_can_be_cut_into_pages(http: httpx.Client, subject: str) -> None:
    for number in range(5):
        register(http, f"{subject}.{number}", user())
    listed = http.get("/subjects", params={"subjectPrefix": subject}).json()
    assert listed == [f"{subject}.{number}" for number in range(5)]
    paged: dict[str, str | int] = {"subjectPrefix": subject, "offset": 1, "limit": 2}
    assert http.get("/subjects", params=paged).json() == listed[1:3]
    assert len(http.get("/schemas", params=paged).json()) == 2
    assert http.get("/subjects", params={"limit": "x"}).status_code == 422


def test_deleted_subjects_and_versions_are_listed_only_on_request(
    http: httpx.Client, subject: str
) -> None:
    register(http, subject, user())
    made = register(http, subject, user(AGE_WITH_DEFAULT))
    assert http.delete(f"/subjects/{subject}/versions/1").json() == 1
    assert http.get(f"/subjects/{subject}/versions").json() == [2]
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1, 2]
    assert http.get(f"/subjects/{subject}/versions?deletedOnly=true").json() == [1]
    assert http.get(f"/subjects/{subject}/versions/1").json()["error_code"] == 40402
    assert http.get(f"/subjects/{subject}/versions/1?deleted=true").json()["deleted"] is True
    assert http.delete(f"/subjects/{subject}").json() == [2]
    prefix = f"/subjects?subjectPrefix={subject}"
    assert http.get(prefix).json() == []
    assert http.get(f"{prefix}&deletedOnly=true").json() == [subject]
    assert http.get(f"/schemas/ids/{made['id']}/subjects").json() == []
    assert http.get(f"/schemas/ids/{made['id']}/subjects?deleted=true").json() == [subject]
    assert http.delete(f"/subjects/{subject}?permanent=true").json() == [1, 2]
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json()["error_code"] == 40401


def test_checks_say_what_registration_would(http: httpx.Client, subject: str) -> None:
    register(http, subject, user())
    url = f"/compatibility/subjects/{subject}/versions"
    good, bad = {"schema": user(AGE_WITH_DEFAULT)}, {"schema": user(AGE)}
    assert http.post(url, json=good).json() == {"is_compatible": True}
    assert http.post(f"{url}/latest?verbose=true", json=good).json()["messages"] == []
    told = http.post(f"{url}?verbose=true", json=bad).json()
    assert told["is_compatible"] is False
    assert "field 'age'" in told["messages"][0]
    refused = http.post(f"/subjects/{subject}/versions", json=bad)
    assert refused.status_code == refused.json()["error_code"] == 409
    assert http.post(f"{url}/7", json=good).json()["error_code"] == 40402
    assert http.post(f"{url}/latest", json={"schema": "{"}).json()["error_code"] == 42201
    assert http.post(f"{url}/latest?verbose=true", json={"schema": "{"}).json()["messages"]
    fresh = f"/compatibility/subjects/{subject}-other/versions/latest"
    assert http.post(fresh, json=bad).json() == {"is_compatible": True}


def test_settings_and_modes_of_a_subject_fall_back_to_the_global_ones(
    http: httpx.Client, subject: str
) -> None:
    assert http.get("/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert http.get("/mode").json() == {"mode": "READWRITE"}
    assert http.get(f"/config/{subject}").json()["error_code"] == 40408
    assert http.get(f"/mode/{subject}").json()["error_code"] == 40409
    assert http.get(f"/config/{subject}?defaultToGlobal=true").json() == {
        "compatibilityLevel": "BACKWARD"
    }
    put = http.put(f"/config/{subject}", json={"compatibility": "FULL"})
    assert put.json() == {"compatibility": "FULL"}
    assert http.get(f"/config/{subject}").json() == {"compatibilityLevel": "FULL"}
    assert http.delete(f"/config/{subject}").json()["compatibilityLevel"] == "FULL"
    assert http.delete(f"/config/{subject}").json()["error_code"] == 40401
    assert http.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert http.get(f"/mode/{subject}").json() == {"mode": "READONLY"}
    assert http.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}


def test_a_context_is_a_registry_of_its_own(http: httpx.Client, subject: str) -> None:
    made = http.post(f"/contexts/.c/subjects/{subject}/versions", json={"schema": user()}).json()
    assert http.get(f"/subjects/{subject}/versions").status_code == 404
    assert http.get(f"/subjects/:.c:{subject}/versions").json() == [1]
    assert http.get(f"/contexts/:.c:/schemas/ids/{made['id']}").status_code == 200
    assert http.get("/contexts").json() == [".", ".c"]
    assert f":.c:{subject}" in http.get("/contexts/.c/subjects").json()


@pytest.mark.parametrize(
    "name", ["a%2Fb", "%2E%2E", "..%2F..%2Fetc%2Fpasswd", "%C3%A4%20%3F", "a:b"]
)
def test_a_subject_may_have_any_printable_name(http: httpx.Client, name: str, subject: str) -> None:
    made = register(http, f"{subject}{name}", user())
    found = http.get(f"/subjects/{subject}{name}/versions/1").json()
    assert (found["id"], found["version"]) == (made["id"], 1)
    assert http.delete(f"/subjects/{subject}{name}").json() == [1]


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "__GLOBAL", "x" * 2000, ":.c:", "%7F"])
def test_a_subject_that_is_no_name_is_refused(http: httpx.Client, name: str) -> None:
    answer = http.post(f"/subjects/{name}/versions", json={"schema": user()})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42208)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, 404),
        ("GET", "/subjects/../../etc/passwd", 404, 404),
        ("PATCH", "/subjects", 405, 405),
        ("GET", "/subjects/x-none/versions", 404, 40401),
        ("GET", "/subjects/x-none/versions/latest", 404, 40401),
        ("GET", "/subjects/x-none/versions/first", 422, 42202),
        ("GET", "/subjects/x-none/versions/0", 422, 42202),
        ("GET", "/subjects/x-none/versions/99999999999999999999", 422, 42202),
        ("GET", "/schemas/ids/99999999", 404, 40403),
        ("GET", "/schemas/ids/9999999999999999999999", 404, 404),
        ("GET", "/schemas/ids/%D9%A1", 404, 404),
        ("GET", "/schemas/guids/none", 404, 40403),
        ("GET", "/subjects/%FF/versions", 400, 400),
        ("GET", "/subjects?subjectPrefix=%FF", 400, 400),
        ("DELETE", "/subjects/x-none", 404, 40401),
    ],
)
def test_what_is_not_there_has_the_code_that_clients_know(
    http: httpx.Client, method: str, path: str, status: int, code: int
) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", V1, 400),
        (b"\xff", V1, 400),
        (b"", V1, 400),
        (b"[" * 1_000_000, V1, 400),
        (b'{"schema":' + b"9" * 100_000 + b"}", V1, 400),
        (b'{"schema":"' + b"[]" * 100 + b'\\"' * 900_000, V1, 400),
        (b'{"schema":"x","a":[' + b"[]," * 600_000 + b"1]}", V1, 400),
        (b'{"schema":"\\ud800"}', V1, 400),
        (b'{"schema":NaN}', V1, 400),
        (b"x" * (limits.BODY_BYTES + 1), V1, 413),
        (b"<schema/>", "text/xml", 415),
        (b'{"schema":"\\"int\\""}', "text/plain", 415),
    ],
)
def test_a_body_that_cannot_be_used_is_refused_quickly(
    http: httpx.Client, subject: str, body: bytes, kind: str, status: int
) -> None:
    answer = http.post(
        f"/subjects/{subject}/versions", content=body, headers={"content-type": kind}
    )
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)


def test_a_body_without_a_length_is_cut_off_at_the_limit(http: httpx.Client, subject: str) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    answer = http.post(f"/subjects/{subject}/versions", content=endless())
    assert answer.status_code == 413


def test_a_schema_that_does_not_fit_into_a_record_is_refused_and_others_go_on(
    http: httpx.Client, subject: str
) -> None:
    huge = json.dumps(
        {"type": "int", "note": "\N{OLD ITALIC LETTER A}" * 300_000}, ensure_ascii=False
    )
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": huge})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42209)
    assert register(http, subject, user())["version"] == 1


def test_a_large_schema_does_not_hold_up_the_small_ones(http: httpx.Client, subject: str) -> None:
    fields = [{"name": f"f{n}", "type": ["null", "string"], "default": None} for n in range(3000)]
    assert register(http, subject, user(*fields))["version"] == 1
    found = http.get(f"/subjects/{subject}/versions/1").json()
    assert len(json.loads(found["schema"])["fields"]) == 3001


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (
            "AVRO",
            user(*({"name": f"f{n}", "type": ["null", "string"]} for n in range(5000))),
            user(*({"name": f"f{n}", "type": ["null", "string"]} for n in range(4999))),
        ),
        (
            "JSON",
            json.dumps({"properties": {f"p{n}": {"type": "integer"} for n in range(7000)}}),
            json.dumps({"properties": {f"p{n}": {"type": "number"} for n in range(7000)}}),
        ),
        (
            "PROTOBUF",
            'syntax = "proto3";' + "".join(f"message M{n} {{ int32 a = 1; }}" for n in range(6500)),
            'syntax = "proto3";' + "".join(f"message M{n} {{ int64 a = 1; }}" for n in range(6500)),
        ),
    ],
    ids=["avro", "json", "protobuf"],
)
def test_large_schemas_are_registered_and_checked(
    http: httpx.Client, subject: str, kind: str, old: str, new: str
) -> None:
    for text in (old, new):
        assert 150_000 < len(text) < limits.SCHEMA_CHARACTERS
    fields = {"schemaType": kind}
    assert register(http, subject, old, **fields)["version"] == 1
    url = f"/compatibility/subjects/{subject}/versions"
    told = http.post(url, json={"schema": new, **fields}, timeout=120)
    assert told.json() == {"is_compatible": True}
    assert register(http, subject, new, **fields)["version"] == 2
    known = http.post(f"/subjects/{subject}", json={"schema": new, **fields}, timeout=120)
    assert known.json()["version"] == 2


def test_a_page_of_another_site_cannot_write_in_a_users_name(
    http: httpx.Client, subject: str
) -> None:
    foreign = {"sec-fetch-site": "cross-site", "origin": "http://evil.example"}
    schema = {"schema": user()}
    answer = http.post(f"/subjects/{subject}/versions", json=schema, headers=foreign)
    assert answer.status_code == 403
    assert http.delete("/config", headers=foreign).status_code == 403
    assert http.get(f"/subjects/{subject}/versions").status_code == 404


def test_health_and_metrics_tell_what_happened(http: httpx.Client, subject: str) -> None:
    register(http, subject, user())
    assert http.get("/health").json()["status"] == "UP"
    page = http.get("/metrics").text
    assert (
        'headrace_registry_requests_total{method="POST",path="/subjects/{subject}/versions"' in page
    )
    assert "headrace_registry_writer_changes_total 1\n" in page


def test_many_clients_at_once_get_ids_that_are_all_different(
    http: httpx.Client, subject: str
) -> None:

    def one(number: int) -> object:
        return register(http, f"{subject}.{number}", user(name=f"U{number}{time.time_ns()}"))["id"]

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(one, range(100)))
    assert len(set(ids)) == 100
