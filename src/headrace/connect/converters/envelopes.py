"""The beginnings of JsonConverter's envelopes, which are the same in almost all records of a topic.

A record whose text begins like one that is known has the same schema, and only its payload has to
be parsed. Kafka's JsonConverter writes the schema before the payload.
"""

import json
import re
from collections.abc import Callable, Mapping

TRIES = 3
"""How many epochs look for a record with an envelope."""
_START = re.compile(r'\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')


class KnownEnvelopes:
    """What one query has learned from its records, for keys or values."""

    def __init__(self) -> None:
        self._prefixes: dict[str, dict[str, str]] = {}
        self._tries: dict[str, int] = {}

    def of(self, part: str) -> Mapping[str, str]:
        """The texts before the payloads, by the texts of their schemas."""
        return self._prefixes.get(part, {})

    def learn(self, part: str, sample: Callable[[], str | None]) -> None:
        """Look at a record, unless one is known or records have no envelopes."""
        if self.of(part) or self._tries.get(part, 0) == TRIES:
            return
        self._tries[part] = self._tries.get(part, 0) + 1
        found = prefix_of(sample() or "")
        if found is not None:
            self._prefixes[part] = dict([found])


def prefix_of(text: str) -> tuple[str, str] | None:
    """The schema of an envelope as JSON, and the text before its payload."""
    start = _START.match(text)
    if start is None:
        return None
    try:
        schema, end = json.JSONDecoder().raw_decode(text, start.end())
    except ValueError:
        return None
    payload = _PAYLOAD.match(text, end)
    if payload is None or schema is None:
        return None
    as_spark_writes_it = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return as_spark_writes_it, text[: payload.end()]
