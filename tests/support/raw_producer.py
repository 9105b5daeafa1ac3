"""A transactional producer made of single requests, in any order and version."""

import datetime
import io
import time
from dataclasses import dataclass
from typing import Any

from kio.serial import entity_reader, entity_writer

from headrace.apis.routes import ROUTES
from headrace.errors import ErrorCode
from headrace.wire import codec
from headrace.wire.batch import TRANSACTIONAL
from tests.support.messages import filled, item, part
from tests.support.raw import RawClient, batch_of, frame

PRODUCE, LIST_OFFSETS, INIT, ADD_PARTITIONS, END = 0, 2, 22, 24, 26
PATIENCE_S = 60


def request(api: int, version: int, /, **values: object) -> bytes:
    """A framed request with these fields."""
    out = io.BytesIO()
    kind = codec.request_class(api, version)
    entity_writer(kind)(out, filled(kind, values))  # type: ignore[arg-type]
    tags = b"\0" if version >= ROUTES[api].flexible_from else b""
    return frame(api, version, tags + out.getvalue())


def response(api: int, version: int, answer: bytes) -> Any:
    """An answer, which begins with its correlation id."""
    at = 5 if version >= ROUTES[api].flexible_from else 4
    found: Any
    found, _ = entity_reader(codec.response_class(api, version))(answer, at)
    return found


def produced(answer: bytes, version: int) -> tuple[ErrorCode, int]:
    """Error code and offset in the answer to a Produce with one batch."""
    (topic,) = response(PRODUCE, version, answer).responses
    (found,) = topic.partition_responses
    return ErrorCode(found.error_code), found.base_offset


def ended(answer: bytes, version: int) -> ErrorCode:
    """The error code in the answer to an EndTxn."""
    return ErrorCode(response(END, version, answer).error_code)


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


class RawProducer:
    """Sends what it is told to, on a connection of its own."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap_servers
        self._name = transactional_id
        self.connect()

    def connect(self) -> None:
        """A new connection; the old one is left as a client leaves one that timed out."""
        self.client = RawClient(self._bootstrap, PATIENCE_S)

    def _ask(self, api: int, version: int, /, **values: object) -> Any:
        return response(api, version, self.client.ask(request(api, version, **values)))

    def init(self) -> Identity:
        """InitProducerId v5, again while the last transaction is ending."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._ask(
                INIT, 5,
                transactional_id=self._name, transaction_timeout=datetime.timedelta(seconds=60),
            )  # fmt: skip
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                return Identity(answer.producer_id, answer.producer_epoch)
            assert code in _LATER, code
            assert time.monotonic() < deadline, code
            time.sleep(0.02)

    def add(self, who: Identity, topic: str, *indexes: int) -> ErrorCode:
        """AddPartitionsToTxn v3, as older clients need it."""
        topics = part(ADD_PARTITIONS, 3, "v3_and_below_topics", name=topic, partitions=indexes)
        answer = self._ask(
            ADD_PARTITIONS, 3,
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=(topics,),
        )  # fmt: skip
        (found,) = answer.results_by_topic_v3_and_below
        return ErrorCode(found.results_by_partition[0].partition_error_code)

    def produce(
        self, who: Identity, topic: str, value: bytes, sequence: int = 0, *,
        index: int = 0, version: int = 12,
    ) -> tuple[ErrorCode, int]:  # fmt: skip
        """One record in the transaction; error code and offset."""
        self.send_produce(who, topic, value, sequence, index=index, version=version)
        return produced(self.client.answer(), version)

    def send_produce(
        self, who: Identity, topic: str, value: bytes, sequence: int = 0, *,
        index: int = 0, version: int = 12,
    ) -> None:  # fmt: skip
        """The same, without waiting for the answer."""
        batch = batch_of(
            value, producer_id=who.producer_id, producer_epoch=who.epoch,
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        kind = type(part(PRODUCE, version, "topic_data"))
        partition = item(kind, "partition_data", index=index, records=bytes(batch))
        data = part(PRODUCE, version, "topic_data", name=topic, partition_data=(partition,))
        self.client.send(
            request(
                PRODUCE, version,
                transactional_id=self._name, acks=-1, timeout=datetime.timedelta(seconds=30),
                topic_data=(data,),
            )
        )  # fmt: skip

    def send_end(self, who: Identity, commit: bool, version: int = 5) -> None:
        """EndTxn, without waiting for the answer."""
        self.client.send(
            request(
                END, version,
                transactional_id=self._name, producer_id=who.producer_id,
                producer_epoch=who.epoch, committed=commit,
            )
        )  # fmt: skip

    def end(self, who: Identity, commit: bool, version: int = 5) -> tuple[ErrorCode, Identity]:
        """EndTxn; the error code, and who the producer is from now on."""
        self.send_end(who, commit, version)
        answer = response(END, version, self.client.answer())
        if version < 5:
            return ErrorCode(answer.error_code), who
        return ErrorCode(answer.error_code), Identity(answer.producer_id, answer.producer_epoch)


_LATER = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def offsets(client: RawClient, topic: str, index: int = 0) -> tuple[int, int]:
    """The last stable offset and the high watermark, by ListOffsets v6."""
    found = []
    for isolation in (1, 0):
        partition = item(
            type(part(LIST_OFFSETS, 6, "topics")), "partitions", partition_index=index, timestamp=-1
        )
        topics = part(LIST_OFFSETS, 6, "topics", name=topic, partitions=(partition,))
        sent = request(LIST_OFFSETS, 6, replica_id=-1, isolation_level=isolation, topics=(topics,))
        answer = response(LIST_OFFSETS, 6, client.ask(sent))
        (one,) = answer.topics[0].partitions
        assert ErrorCode(one.error_code) is ErrorCode.NONE
        found.append(one.offset)
    return found[0], found[1]
