"""Records of the topic are compatible with those of other registries."""

import json

import pytest

from headrace.registry.records import (
    BadRecord,
    Change,
    ClearSubject,
    Content,
    DeleteSubject,
    DropVersion,
    HighestIds,
    PutConfig,
    PutMode,
    PutVersion,
    Reference,
    Version,
    decode,
    encode,
)

CONTENT = Content(
    "PROTOBUF",
    'syntax = "proto3";',
    (Reference("other.proto", "other", 3),),
    metadata='{"properties":{"owner":"ann"}}',
    rule_set='{"domainRules":[{"name":"r"}]}',
)


@pytest.mark.parametrize(
    "change",
    [
        PutVersion(Version("s", 1, 7, Content("AVRO", '"string"'))),
        PutVersion(Version(":.other:s", 2, 8, CONTENT, deleted=True)),
        DropVersion("s", 4),
        DeleteSubject("s", 4),
        PutConfig(None, {"compatibilityLevel": "FULL"}),
        PutConfig("s", {"compatibilityLevel": "NONE", "normalize": True}),
        PutConfig("s", None),
        PutMode("s", "READONLY"),
        PutMode(None, None),
        ClearSubject("s"),
        HighestIds({".": 12, ".other": 3}),
    ],
)
def test_a_change_comes_back_as_it_was_written(change: Change) -> None:
    assert decode(*encode(change)) == change


def test_a_schema_is_written_in_the_form_that_other_registries_use() -> None:
    key, value = encode(PutVersion(Version("s", 1, 7, Content("JSON", "{}"))))
    assert json.loads(key) == {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    assert value is not None
    assert json.loads(value) == {
        "subject": "s", "version": 1, "id": 7, "schemaType": "JSON", "schema": "{}",
        "deleted": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "change"),
    [
        (
            '{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            '{"subject":"s","version":1,"id":1,"md5":"x","schema":"\\"int\\"","deleted":false}',
            PutVersion(Version("s", 1, 1, Content("AVRO", '"int"'))),
        ),
        (
            '{"keytype":"CONFIG","subject":null,"magic":0}',
            '{"compatibilityLevel":"NONE"}',
            PutConfig(None, {"compatibilityLevel": "NONE"}),
        ),
        ('{"keytype":"NOOP","magic":0}', None, None),
        ('{"keytype":"CONTEXT","tenant":"default","context":".c"}', '{"context":".c"}', None),
    ],
)
def test_records_of_other_registries_are_understood(
    key: str, value: str | None, change: Change | None
) -> None:
    assert decode(key.encode(), None if value is None else value.encode()) == change


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"no json", None),
        (b"[]", b"{}"),
        (b'{"keytype":"SCHEMA","subject":5,"version":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":"1"}', None),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1}', b"\xff\xfe"),
        (b"[" * 100_000, None),
        # Later schemas would get ids that no client can write.
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1}',
            b'{"id":2147483648,"schema":"\\"string\\""}',
        ),
        (b'{"keytype":"SCHEMA","subject":"s","version":2147483648}', None),
        (b'{"keytype":"NOOP"}', b'{"maxIds":{".":2147483648}}'),
        (b'{"keytype":"NOOP"}', b'{"maxIds":{".":"7"}}'),
    ],
)
def test_a_foreign_record_is_no_change_and_no_crash(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(BadRecord):
        decode(key, value)
