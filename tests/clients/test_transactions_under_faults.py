"""Transactions with late requests, lost responses, and brokers that die between two steps.

The cases of one broker: an EndTxn that is held past the next begin, a Produce past the abort, a
coordinator that dies before its markers, responses that are lost.
"""

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.errors import ErrorCode
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.clients.test_transactions import PATIENCE_S, create, read, read_all, write
from tests.support.java import QUICK_START, TOOLS, java_command
from tests.support.proxy import FrameProxy
from tests.support.raw import RawClient, batch_of, produce, produce_error
from tests.support.raw import create as create_raw
from tests.support.raw_producer import END, PRODUCE, RawProducer, ended, offsets, produced

NONE = ErrorCode.NONE
SETTINGS = {"transaction.state.log.num.partitions": "1"}


@pytest.fixture
def proxy() -> Iterator[FrameProxy]:
    with FrameProxy() as one:
        yield one


@pytest.fixture
def broker(proxy: FrameProxy, headrace_factory: BrokerFactory) -> RunningBroker:
    """A broker behind the proxy, with the topic `orders`."""
    started = headrace_factory({**SETTINGS, "advertised.listeners": proxy.listener})
    proxy.broker_port = int(started.bootstrap_servers.rpartition(":")[2])
    create(proxy.bootstrap_servers, "orders")
    return started


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_that_comes_late_does_not_end_the_next_transaction(
    proxy: FrameProxy, broker: RunningBroker, commit: bool
) -> None:
    producer = RawProducer(proxy.bootstrap_servers, "x")
    first = producer.init()
    assert producer.produce(first, "orders", b"a")[0] is NONE
    held = proxy.catch(END)
    producer.send_end(first, commit)
    held.wait()
    # The client hears nothing, and asks again on another connection.
    producer.connect()
    code, second = producer.end(first, commit)
    assert (code, second.epoch) == (NONE, first.epoch + 1)
    assert producer.produce(second, "orders", b"b")[0] is NONE
    held.let_go()
    assert ended(held.answer(), held.version) is ErrorCode.PRODUCER_FENCED
    # The second transaction is still open, and ends as its producer wants.
    with RawClient(broker.bootstrap_servers) as client:
        assert offsets(client, "orders") == (2, 3)
    code, third = producer.end(second, not commit)
    assert code is NONE
    assert producer.produce(third, "orders", b"c")[0] is NONE
    assert producer.end(third, True)[0] is NONE
    assert read(broker.bootstrap_servers, "orders", "c") == (["a", "c"] if commit else ["b", "c"])


@pytest.mark.parametrize(
    ("version", "refusal"),
    [(10, ErrorCode.INVALID_TXN_STATE), (12, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_a_produce_after_the_abort_is_refused_and_blocks_no_reader(
    proxy: FrameProxy, broker: RunningBroker, version: int, refusal: ErrorCode
) -> None:
    producer = RawProducer(proxy.bootstrap_servers, "x")
    who = producer.init()
    if version < 12:
        assert producer.add(who, "orders", 0) is NONE
    assert producer.produce(who, "orders", b"a", version=version)[0] is NONE
    held = proxy.catch(PRODUCE)
    producer.send_produce(who, "orders", b"late", 1, version=version)
    held.wait()
    producer.connect()
    assert producer.end(who, False, version=5 if version >= 12 else 4)[0] is NONE
    held.let_go()
    assert produced(held.answer(), version)[0] is refusal
    with RawClient(broker.bootstrap_servers) as client:
        assert offsets(client, "orders") == (2, 2)


def test_a_partition_that_was_not_added_is_refused(
    proxy: FrameProxy, broker: RunningBroker
) -> None:
    producer = RawProducer(proxy.bootstrap_servers, "x")
    who = producer.init()
    code, _ = producer.produce(who, "orders", b"a", version=10)
    assert code is ErrorCode.INVALID_TXN_STATE
    with RawClient(broker.bootstrap_servers) as client:
        assert offsets(client, "orders") == (0, 0)


@pytest.mark.parametrize("dies_at", ["left", "right"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_markers_are_finished_when_the_coordinator_died_before_them(
    headrace_factory: BrokerFactory, dies_at: str, commit: bool
) -> None:
    """Before the first marker, and between the two; the client never asks again."""
    broker = headrace_factory(SETTINGS)
    for topic in ("left", "right"):
        create(broker.bootstrap_servers, topic)
    producer = RawProducer(broker.bootstrap_servers, "x")
    who = producer.init()
    assert producer.produce(who, "left", b"a")[0] is NONE
    assert producer.produce(who, "right", b"b")[0] is NONE
    broker.spoil_disk("pwrite .log", kill=True, under=str(broker.data_dir / f"{dies_at}-0"))
    producer.send_end(who, commit)
    assert broker.wait_until_dead() < 0
    broker.start()
    plain = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for topic, value in (("left", "a"), ("right", "b")):
        write(plain, topic, "plain")
        found = read(broker.bootstrap_servers, topic, "plain")
        assert found == [*([value] if commit else []), "plain"]
    with RawClient(broker.bootstrap_servers) as client:
        for topic in ("left", "right"):
            stable, end = offsets(client, topic)
            assert stable == end


@pytest.mark.parametrize("fault", ["lost answer", "torn request", "torn answer"])
def test_an_idempotent_retry_makes_no_duplicate(
    proxy: FrameProxy, broker: RunningBroker, fault: str
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": proxy.bootstrap_servers,
            "enable.idempotence": True,
            "socket.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    write(producer, "orders", "a")
    caught = proxy.catch(PRODUCE, answers=fault != "torn request")
    producer.produce("orders", b"b")
    producer.poll(0)
    caught.wait()
    if fault == "lost answer":
        caught.drop()
    else:
        caught.tear(len(caught.frame) // 2)
    write(producer, "orders", "c")
    assert read_all(broker.bootstrap_servers, "orders", 1) == ["a", "b", "c"]


def test_a_produce_that_arrives_twice_is_written_once(
    proxy: FrameProxy, broker: RunningBroker
) -> None:
    producer = RawProducer(proxy.bootstrap_servers, "x")
    who = producer.init()
    caught = proxy.catch(PRODUCE)
    producer.send_produce(who, "orders", b"a")
    caught.wait()
    caught.let_go(times=2)
    answers = [produced(producer.client.answer(), 12) for _ in range(2)]
    assert answers == [(NONE, 0), (NONE, 0)]
    assert producer.end(who, True)[0] is NONE
    assert read_all(broker.bootstrap_servers, "orders", 1) == ["a"]


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LAST = 2**31 - 1
SEQUENCES = {
    "a gap": ([0, 1], (0, 3), (OUT_OF_ORDER, -1)),
    "the last of five again": ([0, 1, 2, 3, 4, 5], (0, 5), (NONE, 5)),
    "the first of five again": ([0, 1, 2, 3, 4, 5], (0, 1), (NONE, 1)),
    "the sixth again": ([0, 1, 2, 3, 4, 5], (0, 0), (OUT_OF_ORDER, -1)),
    "behind the largest": ([LAST - 1, LAST], (0, 0), (NONE, 2)),
    "a new epoch in the middle": ([0, 1], (1, 2), (OUT_OF_ORDER, -1)),
    "a new epoch at zero": ([0, 1], (1, 0), (NONE, 2)),
}


@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_are_judged_as_kafka_does(headrace: RunningBroker, case: str) -> None:
    before, (epoch, sequence), wanted = SEQUENCES[case]
    topic = f"sequences-{uuid.uuid4().hex[:8]}"

    def send(epoch: int, sequence: int) -> tuple[int, int]:
        batch = batch_of(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        return produce_error(client.ask(produce(topic, batch, acks=-1)), topic)

    with RawClient(headrace.bootstrap_servers) as client:
        create_raw(client, topic)
        assert [send(0, one) for one in before] == [(NONE, n) for n in range(len(before))]
        assert send(epoch, sequence) == wanted


@pytest.mark.java
def test_kafkas_own_producer_writes_each_record_once_though_its_ends_come_late(
    proxy: FrameProxy, broker: RunningBroker, tmp_path: Path
) -> None:
    records = 3000
    held = proxy.catch(END)
    arguments = (
        "--topic", "orders", "--num-records", str(records), "--payload-monotonic",
        "--throughput", "1500", "--transaction-duration-ms", "100", "--transactional-id", "x",
        "--command-property", f"bootstrap.servers={proxy.bootstrap_servers}",
        "request.timeout.ms=500", "linger.ms=0",
    )  # fmt: skip
    command = java_command(TOOLS["kafka-producer-perf-test"], *arguments, options=QUICK_START)
    output = (tmp_path / "output").open("wb")
    process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        held.wait()
        # It has asked again and gone on when the next end comes by.
        for _ in range(3):
            following = proxy.catch(END)
            following.wait()
            following.let_go()
        held.let_go()
        assert held.version >= 5
        assert ended(held.answer(), held.version) is ErrorCode.PRODUCER_FENCED
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "output").read_text()
    finally:
        process.kill()
        process.wait()
        output.close()
    found = read_all(broker.bootstrap_servers, "orders", 1)
    assert found == [str(n) for n in range(records)]
