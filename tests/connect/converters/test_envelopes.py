"""The beginnings of envelopes."""

import pytest

from headrace.connect.converters.envelopes import TRIES, KnownEnvelopes, prefix_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"schema":{"a":[1]},"payload":1}', ('{"a":[1]}', '{"schema":{"a":[1]},"payload":')),
        (
            '{ "schema" : {"a": "ü, \\"payload\\": "} , "payload" : 1}',
            (
                '{"a":"ü, \\"payload\\": "}',
                '{ "schema" : {"a": "ü, \\"payload\\": "} , "payload" :',
            ),
        ),
        ('{"payload":1,"schema":{}}', None),
        ('{"schema":null,"payload":1}', None),
        ('{"schema":{},"other":1}', None),
        ('{"schema":{', None),
        ("", None),
    ],
)
def test_the_text_before_a_payload(text: str, found: tuple[str, str] | None) -> None:
    assert prefix_of(text) == found


def test_records_are_looked_at_until_one_has_an_envelope() -> None:
    known, texts = KnownEnvelopes(), ["{}", '{"schema":{},"payload":1}', "never"]
    for _ in texts:
        known.learn("value", lambda: texts.pop(0))
    assert known.of("value") == {"{}": '{"schema":{},"payload":'}
    assert texts == ["never"]
    assert known.of("key") == {}
    nothing = ["{}"] * (TRIES + 2)
    for _ in range(TRIES + 2):
        known.learn("key", nothing.pop)
    assert len(nothing) == 2
