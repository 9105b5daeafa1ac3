"""A late flush affects no other request."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.image import Image, Topic
from headrace.errors import KafkaError
from headrace.replication.flusher import Flusher, flush_log
from tests.apis.one_broker import NOW, OneBroker

ELSEWHERE = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    running = OneBroker(tmp_path)
    yield running
    running.close()


def test_a_partition_that_has_left_does_not_end_the_flushes_of_others(broker: OneBroker) -> None:
    gone, stays = broker.create("gone"), broker.create("stays")
    left = broker.replicas.partition("gone", 0)
    kept = broker.replicas.partition("stays", 0)
    broker.append(stays.name, [NOW])
    state = replace(gone.partitions[0], leader=ELSEWHERE, replicas=(ELSEWHERE,), isr=(ELSEWHERE,))

    def move_away(_image: Image) -> list[Topic]:
        return [replace(gone, partitions=(state,))]

    broker.metadata.alter_partitions(move_away)
    assert isinstance(flush_log(left), KafkaError)
    flushed: list[int] = []

    async def run() -> None:
        flusher = Flusher(broker.executor)
        flusher.request(left)
        flusher.request(kept)
        await asyncio.wait_for(flusher._task or asyncio.sleep(0), 60)
        flushed.append(kept.replica.high_watermark)

    asyncio.run(run())
    assert flushed == [1]
