"""Chunks of dead letters: how their values are decoded."""

from typing import Any, cast

import pytest

from headrace.connect.host.letters.chunks import typed_options
from headrace.connect.host.letters.queue import LetterQueue
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.work import ConnectorWork

AVRO = {
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://localhost:8081",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
}


@pytest.mark.parametrize(
    ("more", "subject"),
    [
        ({"topics": "orders"}, "orders-value"),
        ({"topics": "orders, clicks"}, None),
        ({"topics": "orders", "value.converter.subject": "mine"}, "mine"),
    ],
)
def test_values_are_decoded_with_the_subject_of_the_original_topic(
    more: dict[str, str], subject: str | None
) -> None:
    work = ConnectorWork("c", "", {**AVRO, **more})
    queue = LetterQueue(cast(Any, None), DriverSettings("", {}, "", ""), work)
    options = typed_options(queue)
    assert options.get("value.subject") == subject
    assert "key.subject" not in options
