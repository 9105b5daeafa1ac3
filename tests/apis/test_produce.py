"""A Produce that waits while its partition gets another leader."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

from headrace.apis.records.produce import Produce
from headrace.cluster.image import Image, Topic
from headrace.errors import ErrorCode
from headrace.types import BrokerId
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import CALLER, NODE, NOW, OneBroker
from tests.support.raw import CLIENT_ID, produce, produce_error

OTHER = 2


def led_by(broker: OneBroker, topic: Topic, leader: BrokerId, epoch: int) -> None:
    state = replace(
        topic.partitions[0],
        leader=leader,
        leader_epoch=epoch,
        replicas=(NODE, OTHER),
        isr=(NODE, OTHER),
    )

    def decide(_image: Image) -> list[Topic]:
        return [replace(topic, partitions=(state,))]

    broker.metadata.alter_partitions(decide)


def test_a_response_that_is_not_awaited_yet_fails_with_the_new_leader(broker: OneBroker) -> None:
    topic = broker.create("t")
    led_by(broker, topic, NODE, 1)

    async def run() -> bytes | None:
        request = bytearray(produce("t", encode_batch([Record(0, NOW, None, b"x")], 0), acks=-1))
        start = 4 + 10 + len(CLIENT_ID) + 1
        answer = Produce(broker.services)(
            CALLER, request, memoryview(request), start, len(request), 9, 1
        )
        assert isinstance(answer, Coroutine)
        led_by(broker, topic, OTHER, 2)
        led_by(broker, topic, NODE, 3)
        return await asyncio.wait_for(answer, 60)

    answer = asyncio.run(run())
    assert answer is not None
    assert produce_error(answer[4:], "t")[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
