"""What brokers say about transactions, and how to end one; librdkafka has no words for either.

One socket, one request, one answer, as in `direct.py`; here no answer is a failure.
"""

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.cli import client, direct
from headrace.cli.failures import Failure, not_found
from headrace.wire.varint import read_uvarint, skip_tagged_fields

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload

    Answer = TypeVar("Answer", bound=ResponsePayload)

Address = tuple[str, int]

FIND_BY_TRANSACTION = 1
CONCURRENT_TRANSACTIONS = 51
NOT_FOUND = 105
RETRIED = frozenset({14, 15, 16, CONCURRENT_TRANSACTIONS})
PATIENCE_S = 10.0
_PAUSE_S = 0.1
_HEADER_BYTES = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """A transactional id in a list."""

    name: str
    producer_id: int
    state: str

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "producer_id": self.producer_id, "state": self.state}


@dataclass(frozen=True, slots=True)
class Described:
    """A transactional id with the transaction that is open or was the last."""

    name: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[tuple[str, int], ...]

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "state": self.state,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "timeout_ms": self.timeout_ms,
            "start_ms": self.start_ms,
            "partitions": [{"topic": topic, "partition": at} for topic, at in self.partitions],
        }


def listed(
    cluster: client.Cluster, brokers: Iterable[Address], states: Iterable[str], longer_ms: int
) -> list[Listed]:
    """The ids that these brokers coordinate, in one of the states and open for so long."""
    from kio.schema.list_transactions.v0.request import ListTransactionsRequest as Plain
    from kio.schema.list_transactions.v0.response import ListTransactionsResponse as PlainAnswer
    from kio.schema.list_transactions.v1.request import ListTransactionsRequest
    from kio.schema.list_transactions.v1.response import ListTransactionsResponse
    from kio.static.primitive import i64

    wanted = tuple(states)
    found: list[Listed] = []
    for address in brokers:
        answer: ListTransactionsResponse | PlainAnswer
        if longer_ms >= 0:
            request = ListTransactionsRequest(state_filters=wanted, duration_filter=i64(longer_ms))
            answer = _ask(cluster, address, request, ListTransactionsResponse)
        else:
            answer = _ask(cluster, address, Plain(state_filters=wanted), PlainAnswer)
        _check(int(answer.error_code), f"broker {address[0]}:{address[1]}")
        found += [
            Listed(str(row.transactional_id), int(row.producer_id), row.transaction_state)
            for row in answer.transaction_states
        ]
    return sorted(found, key=lambda each: each.name)


def described(cluster: client.Cluster, name: str) -> Described:
    """One id; a failure if nobody knows it."""
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.types import TransactionalId

    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(name),))
    body = direct.ask_raw(cluster, coordinator(cluster, name), request)
    if body is None:
        raise _silent(cluster)
    code, found = _read_described(name, body)
    if code == NOT_FOUND:
        raise not_found(
            f"transactional id {name!r} does not exist", "`headrace transactions list` shows all."
        )
    _check(code, f"transactional id {name!r}")
    return found


def _read_described(name: str, body: bytes) -> tuple[int, Described]:
    """The one answer in it. By hand, because kio knows no start that is -1, for none."""
    at = _HEADER_BYTES + 4 + 1
    (code,) = struct.unpack_from(">h", body, at)
    _, at = _text(body, at + 2)
    state, at = _text(body, at)
    timeout_ms, start_ms, producer_id, epoch = struct.unpack_from(">iqqh", body, at)
    count, at = read_uvarint(body, at + 22)
    partitions: list[tuple[str, int]] = []
    for _ in range(count - 1):
        topic, at = _text(body, at)
        size, at = read_uvarint(body, at)
        indexes = struct.unpack_from(f">{size - 1}i", body, at)
        partitions += [(topic, index) for index in indexes]
        at = skip_tagged_fields(body, at + 4 * (size - 1))
    start = None if start_ms < 0 else start_ms
    return code, Described(
        name, state, producer_id, epoch, timeout_ms, start, tuple(sorted(partitions))
    )


def _text(body: bytes, at: int) -> tuple[str, int]:
    size, at = read_uvarint(body, at)
    return body[at : at + size - 1].decode(), at + size - 1


def coordinator(cluster: client.Cluster, name: str) -> Address:
    """The broker that knows about a transactional id."""
    from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
    from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
    from kio.static.primitive import i8

    request = FindCoordinatorRequest(key_type=i8(FIND_BY_TRANSACTION), coordinator_keys=(name,))

    def attempt() -> tuple[int, FindCoordinatorResponse]:
        answer = _ask(cluster, cluster.addresses[0], request, FindCoordinatorResponse)
        return int(answer.coordinators[0].error_code), answer

    (found,) = _retried(attempt, f"transactional id {name!r}").coordinators
    return str(found.host), int(found.port)


def abort(cluster: client.Cluster, found: Described) -> None:
    """End what is open with an abort, and fence the producer that opened it."""
    from datetime import timedelta

    from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
    from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
    from kio.schema.types import TransactionalId
    from kio.static.primitive import i32Timedelta

    request = InitProducerIdRequest(
        transactional_id=TransactionalId(found.name),
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=found.timeout_ms)),
    )
    address = coordinator(cluster, found.name)

    def attempt() -> tuple[int, InitProducerIdResponse]:
        answer = _ask(cluster, address, request, InitProducerIdResponse)
        return int(answer.error_code), answer

    _retried(attempt, f"transactional id {found.name!r}")


def abort_hanging(
    cluster: client.Cluster, leader: Address, topic: str, index: int, start: int
) -> int:
    """Abort in one partition the transaction that began at an offset; its producer id.

    For a transaction that its coordinator has forgotten: nobody else will ever end it.
    """
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
    from kio.schema.describe_producers.v0.response import DescribeProducersResponse
    from kio.schema.types import TopicName
    from kio.schema.write_txn_markers.v1.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
    from kio.static.primitive import i16, i32

    where = f"{topic}-{index}"
    asked = DescribeProducersRequest(
        topics=(TopicRequest(name=TopicName(topic), partition_indexes=(i32(index),)),)
    )
    answer = _ask(cluster, leader, asked, DescribeProducersResponse)
    partition = answer.topics[0].partitions[0]
    _check(int(partition.error_code), where)
    found = [one for one in partition.active_producers if one.current_txn_start_offset == start]
    if not found:
        raise not_found(f"no transaction of {where} that is open began at offset {start}")
    (producer,) = found
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=i16(producer.producer_epoch),
        transaction_result=False,
        topics=(WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=(i32(index),)),),
        # The epoch of a coordinator that nobody remembers: the last that was heard of, or 0.
        coordinator_epoch=i32(max(producer.coordinator_epoch, 0)),
    )
    written = _ask(
        cluster, leader, WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse
    )
    _check(int(written.markers[0].topics[0].partitions[0].error_code), where)
    return int(producer.producer_id)


def _ask(
    cluster: client.Cluster, address: Address, request: "RequestPayload", of: type["Answer"]
) -> "Answer":
    answer = direct.ask(cluster, address, request, of)
    if answer is None:
        raise _silent(cluster)
    return answer


def _silent(cluster: client.Cluster) -> Failure:
    if not cluster.plaintext:
        return Failure(
            "transactions can be looked at only without TLS and logins so far",
            code="UNSUPPORTED",
            hint="Kafka's own kafka-transactions can do it.",
        )
    return client.unreachable(cluster, "no answer about transactions")


def _retried(attempt: Callable[[], tuple[int, "Answer"]], what: str) -> "Answer":
    """Try until the coordinator is ready."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        code, answer = attempt()
        if code not in RETRIED or time.monotonic() > deadline:
            _check(code, what)
            return answer
        time.sleep(_PAUSE_S)


def _check(code: int, what: str) -> None:
    if code:
        from kio.schema.errors import ErrorCode

        name = ErrorCode(code).name.upper()
        raise Failure(f"{what}: {name.lower().replace('_', ' ')}", code=name)
