"""Masked fields never leave the server."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.masks import Masks, masked_json, parse_masks
from headrace.errors import SettingError
from headrace.testing.running import RunningBroker
from headrace.wire.records import Record
from tests.console.test_records_api import create, events, page, produce, search
from tests.support.headrace_console import HeadraceConsole

SECRET = "4111-1111-1111-1111"


@pytest.mark.parametrize(
    ("text", "path", "masked"),
    [
        ('{"a": 1}', ("a",), '{"a": "***"}'),
        ('{"a": {"b": [1, 2]}, "c": 1.10}', ("a", "b"), '{"a": {"b": "***"}, "c": 1.10}'),
        ('[{"a": "x"}, {"a": "y"}]', ("a",), '[{"a": "***"}, {"a": "***"}]'),
        ('{"a": {"a": 1}}', ("a",), '{"a": "***"}'),
        ('{"b": 0.1000000000000000055}', ("a",), '{"b": 0.1000000000000000055}'),
        ('{"\\u0061": 1}', ("a",), '{"\\u0061": "***"}'),
        ('{"a": 1, "a": 2}', ("a",), '{"a": "***", "a": "***"}'),
        (' { "a" : "x\\"y" } ', ("a",), ' { "a" : "***" } '),
        ("{}", ("a",), "{}"),
    ],
)
def test_only_the_value_of_the_field_is_replaced(
    text: str, path: tuple[str, ...], masked: str
) -> None:
    assert masked_json(text, [path]) == masked


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc") | st.text(), inner),
)


@given(JSON)
def test_a_masked_text_is_json_without_the_field(value: object) -> None:
    found = json.loads(masked_json(json.dumps(value), [("a",)]))
    assert found == _without(value)


def _without(value: object) -> object:
    if isinstance(value, list):
        return [_without(each) for each in value]
    if isinstance(value, dict):
        # Only at the top: fields of inner objects have longer paths.
        return {name: "***" if name == "a" else each for name, each in value.items()}
    return value


@pytest.mark.parametrize("text", ["", "{", '{"a"}', "[1,]", "{'a': 1}", "nope", "1 2", '"\x01"'])
def test_what_is_not_json_is_hidden_as_a_whole(text: str) -> None:
    masks = parse_masks(["t:value.a"]).of("t")
    assert masks is not None
    hidden = masks.apply(Record(0, 0, b"k", text.encode(), ()), {})
    assert (hidden.key, hidden.value) == (b"k", b"***")


@pytest.mark.parametrize(
    "text", ["orders", ":value.a", "t:", "t:other.a", "t:value.", "t:headers", "t:value..a"]
)
def test_a_mask_that_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"console\.masks"):
        parse_masks([text])


def test_topics_without_masks_are_not_touched() -> None:
    assert parse_masks(["orders*:value.a"]).of("payments") is None
    assert Masks().of("orders") is None


@pytest.fixture(scope="module")
def masking(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    folder = tmp_path_factory.mktemp("masking")
    masks = "console.masks=cards-*:value.card.number,cards-*:headers.token"
    with HeadraceConsole(
        headrace.bootstrap_servers, folder, "--set", masks, "--set",
        f"headrace.audit.file={folder / 'audit.log'}",
    ) as running:  # fmt: skip
        yield running


def test_a_masked_field_is_in_no_answer(masking: HeadraceConsole, topic: str) -> None:
    name = f"cards-{topic}"
    create(masking, name)
    value = json.dumps({"card": {"number": SECRET, "limit": 9223372036854775807}})
    record = {"value": value, "headers": {"token": SECRET, "source": "web"}}
    stream = events(masking, f"/topics/{name}/tail")
    assert next(stream)[0] == "ready"
    produce(masking, name, [record])
    answers = [
        json.dumps(page(masking, name)),
        masking.http.get(f"/topics/{name}/records/0/0").text,
        masking.http.get(f"/topics/{name}/records/0/0/value").text,
        json.dumps(next(stream)[1]),
        json.dumps(search(masking, name, q="limit")[0]),
    ]
    stream.close()
    for answer in answers:
        assert "9223372036854775807" in answer
        assert SECRET not in answer
    assert search(masking, name, q=SECRET)[0] == []
    assert search(masking, name, kind="expression", q=f'headers.token == "{SECRET}"')[0] == []


def test_a_masked_record_is_copied_whole_and_never_with_stars(
    masking: HeadraceConsole, topic: str
) -> None:
    name = f"cards-{topic}"
    create(masking, name)
    value = json.dumps({"card": {"number": SECRET}})
    produce(masking, name, [{"key": "k", "value": value, "headers": {"token": SECRET}}])
    shown = masking.http.get(f"/topics/{name}/records/0/0").json()
    assert shown["masked"] == ["value", "headers"]
    like = {"partition": 0, "offset": "0"}
    same = {"format": "same"}
    address = f"/topics/{name}/records"
    copy = {"like": like, "key": same, "value": same}
    assert masking.http.post(address, json=copy).status_code == 200
    assert stored(masking, name) == [(b"k", value.encode(), [("token", SECRET.encode())])] * 2
    edited = {"format": "json", "text": shown["value"]["text"]}
    answer = masking.http.post(address, json={"like": like, "key": same, "value": edited})
    assert (answer.status_code, "masked fields" in answer.text) == (422, True)
    assert len(stored(masking, name)) == 2


def stored(console: HeadraceConsole, topic: str) -> list[tuple[object, object, object]]:
    """Key, value and headers of each record as the cluster has them."""
    properties = {"bootstrap.servers": console.bootstrap, "group.id": topic}
    consumer = Consumer({**properties, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.key(), message.value(), message.headers()))
    consumer.close()
    return found
