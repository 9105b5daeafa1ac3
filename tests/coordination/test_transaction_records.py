"""Records of `__transaction_state`: Kafka's own bytes, read and written."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.records import UnknownRecord
from headrace.coordination.transaction_records import (
    Transaction,
    TransactionKey,
    TransactionState,
    decode,
)
from headrace.types import TopicPartition

_PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 2**31 - 1)),
    max_size=5,
)
_IDS = st.integers(-1, 2**63 - 1)
TRANSACTIONS = st.builds(
    Transaction,
    _IDS,
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    _PARTITIONS,
    _IDS,
    _IDS,
    _IDS,
    _IDS,
    st.integers(0, 2),
)


@given(st.text(max_size=50), TRANSACTIONS)
def test_what_is_written_is_read_again(name: str, transaction: Transaction) -> None:
    key = TransactionKey(name)
    assert decode(key.encode(), transaction.encode()) == (key, transaction)
    assert decode(key.encode(), None) == (key, None)


def test_a_value_has_the_bytes_that_kafka_writes() -> None:
    transaction = Transaction(
        7,
        3,
        60_000,
        TransactionState.ONGOING,
        frozenset({TopicPartition("t", 1)}),
        200,
        100,
        version=2,
    )
    assert transaction.encode() == (
        struct.pack(">hqhib", 1, 7, 3, 60_000, 1)
        + b"\x02\x02t\x02\x00\x00\x00\x01\x00"
        + struct.pack(">qq", 200, 100)
        + b"\x01\x02\x02\x00\x02"
    )
    assert TransactionKey("x").encode() == b"\0\0\0\x01x"


def test_a_value_of_the_first_version_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 7, 3, 60_000, 4)
        + struct.pack(">ih1sii", 1, 1, b"t", 1, 5)
        + struct.pack(">qq", 200, 100)
    )
    assert decode(b"\0\0\0\x01x", value)[1] == Transaction(
        7,
        3,
        60_000,
        TransactionState.COMPLETE_COMMIT,
        frozenset({TopicPartition("t", 5)}),
        200,
        100,
    )


@given(TRANSACTIONS, st.data())
def test_a_record_that_is_cut_is_called_unknown(
    transaction: Transaction, data: st.DataObject
) -> None:
    raw = transaction.encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 10))]
    with pytest.raises(UnknownRecord):
        decode(TransactionKey("x").encode(), cut)


@pytest.mark.parametrize(("key", "value"), [(b"\0\x01\0\0", b""), (b"\0\0\0\0", b"\0\x09" * 12)])
def test_a_record_of_another_version_is_called_unknown(key: bytes, value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, value)
