"""The registered schema ids, for topics with schema validation.

The registry keeps its schemas in a topic, and this broker has a replica of it: ids are read from
there, without a request. A batch whose ids are all known costs one dictionary lookup per record.
For an unknown id the newer records of the registry's topic are read, a bounded piece at a time,
because this runs in the event loop.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError
from headrace.types import Offset
from headrace.wire import batch
from headrace.wire.markers import decode_marker
from headrace.wire.records import iterate

if TYPE_CHECKING:
    from headrace.replication.partition import Partition
    from headrace.replication.replica import LocalReplica

MAGIC = 0
ID_BYTES = 5
"""A zero byte and the id."""
_STEP_BYTES = 64 * 1024
_STEPS = 4


class SchemaIds:
    """The ids in the registry's topic, as far as it has been read."""

    def __init__(
        self,
        topic: str,
        find: "Callable[[str], Sequence[Partition]]",
        max_decompressed_bytes: "Callable[[], int]",
    ) -> None:
        self._topic = topic
        self._find = find
        self._max_decompressed_bytes = max_decompressed_bytes
        self._source: LocalReplica | None = None
        self._next: Offset = 0
        self._by_key: dict[bytes, int] = {}
        self._uses: dict[int, int] = {}
        # By producer id: records of an open transaction take effect at its commit marker.
        self._pending: dict[int, list[tuple[bytes, bytes | None]]] = {}

    def check(self, topic: str, part: str, data: bytes | memoryview | None) -> None:
        """Refuse a key or value that does not begin with a registered id; null is accepted."""
        if data is None:
            return
        if len(data) < ID_BYTES or data[0] != MAGIC:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"topic {topic} has {part}.schema.validation: a {part} must begin with a zero "
                "byte and the id of a registered schema",
            )
        schema_id = int.from_bytes(data[1:ID_BYTES], "big")
        if schema_id in self._uses:
            return
        if not self._catch_up():
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the schemas in {self._topic} are still being read"
            )
        if schema_id not in self._uses:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"topic {topic} has {part}.schema.validation: no schema with id {schema_id} is "
                f"registered in {self._topic}",
            )

    def _catch_up(self) -> bool:
        """Read on in the registry's topic; whether its end was reached."""
        partitions = self._find(self._topic)
        if not partitions:
            return True
        source = partitions[0].replica
        if source is not self._source:
            self._source, self._next = source, 0
            self._by_key.clear()
            self._uses.clear()
            self._pending.clear()
        self._next = max(self._next, source.log.start_offset)
        for _ in range(_STEPS):
            if self._next >= source.high_watermark:
                return True
            found = source.read(self._next, _STEP_BYTES, True)
            if found is None:
                return True
            self._take(source.read_bytes(found))
        return self._next >= source.high_watermark

    def _take(self, data: bytes) -> None:
        pos = 0
        while len(data) - pos >= batch.HEADER_BYTES:
            header = batch.read_header(data, pos)
            end = pos + header.size_bytes
            self._next = header.next_offset
            producer_id = header.producer_id
            if header.attributes & batch.CONTROL:
                marker = decode_marker(data[pos:end])
                held = self._pending.pop(producer_id, [])
                if marker is not None and marker.commit:
                    for key, value in held:
                        self._put(key, value)
            else:
                for record in iterate(data, pos, end, self._max_decompressed_bytes()):
                    if record.key is None:
                        continue
                    if header.attributes & batch.TRANSACTIONAL:
                        held = self._pending.setdefault(producer_id, [])
                        held.append((record.key, record.value))
                    else:
                        self._put(record.key, record.value)
            pos = end

    def _put(self, key: bytes, value: bytes | None) -> None:
        before = self._by_key.pop(key, None)
        if before is not None:
            self._uses[before] -= 1
            if not self._uses[before]:
                del self._uses[before]
        schema_id = None if value is None else _id_of(key, value)
        if schema_id is not None:
            self._by_key[key] = schema_id
            self._uses[schema_id] = self._uses.get(schema_id, 0) + 1


def _id_of(key: bytes, value: bytes) -> int | None:
    """The id that a record registers; None for any other record."""
    try:
        if json.loads(key)["keytype"] != "SCHEMA":
            return None
        found = json.loads(value)["id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None
