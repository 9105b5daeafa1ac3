"""Transaction markers: control batches of one record that end a producer's transaction.

    key      version int16 = 0 | type int16: 0 abort, 1 commit
    value    version int16 = 0 | coordinator epoch int32

The batch has the transactional and the control bit, the producer's id and epoch, no sequence.
Clients see markers in what they fetch and hide them from applications.
"""

import struct
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.wire.batch import CONTROL, TRANSACTIONAL
from headrace.wire.records import Record, encode_batch, iterate

ABORT, COMMIT = 0, 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0
_MARKER_BYTES_MAX = 1 << 16


class Marker(NamedTuple):
    """How a transaction ended, and the coordinator's epoch."""

    commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
) -> bytearray:
    """The control batch that ends the producer's transaction."""
    key = _KEY.pack(_VERSION, COMMIT if commit else ABORT)
    value = _VALUE.pack(_VERSION, coordinator_epoch)
    return encode_batch(
        [Record(0, now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def decode_marker(batch: bytes | bytearray | memoryview) -> Marker | None:
    """The marker in a control batch; None if it is another control record."""
    try:
        for record in iterate(batch, 0, len(batch), _MARKER_BYTES_MAX):
            key, value = record.key or b"", record.value or b""
            if len(key) < _KEY.size or len(value) < _VALUE.size:
                return None
            kind = _KEY.unpack_from(key)[1]
            if kind not in (ABORT, COMMIT):
                return None
            return Marker(kind == COMMIT, _VALUE.unpack_from(value)[1])
    except KafkaError:
        return None
    return None
