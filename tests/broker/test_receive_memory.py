"""The memory of unfinished frames is bounded in total, and no frame waits forever."""

import re
import socket
import struct
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.broker.receive_memory import FRAME_S, FREE_BYTES, STALL_S, ReceiveMemory
from headrace.testing.running import RunningBroker
from tests.broker.test_bad_input import resident_bytes
from tests.support.ports import free_port
from tests.support.raw import RawClient, batch_of, create, frame, produce, produce_error
from tests.support.stores import eventually
from tests.support.systems import linux_only

MIB = 1024 * 1024
LIMIT = 64 * MIB


class Frame:
    """A connection in the middle of a frame."""

    address = "test"

    def __init__(self) -> None:
        self.filled_bytes = 0
        self.resumed = 0
        self.closed = False

    def resume_receiving(self) -> None:
        self.resumed += 1

    def close(self) -> None:
        self.closed = True


def test_small_frames_are_never_refused() -> None:
    memory = ReceiveMemory(1)
    assert all(memory.grant(Frame(), FREE_BYTES, FREE_BYTES) for _ in range(100))
    assert memory.held_bytes == 0


def test_without_a_limit_no_connection_waits() -> None:
    memory = ReceiveMemory(-1)
    assert all(memory.grant(Frame(), 1 << 30, 1 << 30) for _ in range(100))


def test_one_frame_at_a_time_goes_beyond_the_limit() -> None:
    memory = ReceiveMemory(10 * MIB)
    frames = [Frame() for _ in range(4)]
    assert [memory.grant(one, 4 * MIB, 9 * MIB) for one in frames] == [True, True, True, False]
    # The third is the one beyond the limit; it may grow, the others may not.
    assert [memory.grant(one, 9 * MIB, 9 * MIB) for one in frames] == [False, False, True, False]
    assert memory.held_bytes == 17 * MIB
    assert memory.waiting == 3
    memory.release(frames[2])
    assert memory.held_bytes == 8 * MIB
    assert [one.resumed for one in frames] == [0, 0, 0, 1], "it has waited longest"
    assert memory.grant(frames[3], 9 * MIB, 9 * MIB)
    assert not memory.grant(frames[1], 9 * MIB, 9 * MIB)
    for one in frames:
        memory.release(one)
    assert memory.held_bytes == 0
    assert memory.waiting == 0


def test_the_smallest_frame_goes_first() -> None:
    memory = ReceiveMemory(10 * MIB)
    first, second, large, small = (Frame() for _ in range(4))
    assert memory.grant(first, 10 * MIB, 10 * MIB)
    assert memory.grant(second, 10 * MIB, 10 * MIB)
    assert not memory.grant(large, MIB, 100 * MIB)
    assert not memory.grant(small, MIB, MIB)
    memory.release(second)
    assert (large.resumed, small.resumed) == (0, 1)


def test_a_frame_that_others_wait_for_has_to_come_in_time() -> None:
    now = [0.0]
    memory = ReceiveMemory(10 * MIB, lambda: now[0])
    slow, stalled, waits = Frame(), Frame(), Frame()
    assert memory.grant(slow, 9 * MIB, 100 * MIB)
    now[0] = FRAME_S + 1
    assert memory.overdue() == [], "nobody waits"
    assert memory.grant(stalled, 9 * MIB, 9 * MIB)
    assert not memory.grant(waits, MIB, MIB)
    assert memory.overdue() == [slow]
    now[0] += STALL_S + 1
    assert set(memory.overdue()) == {slow, stalled}, "nothing came for the one beyond the limit"
    stalled.filled_bytes = 5
    assert memory.overdue() == [slow]


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    metrics = f"127.0.0.1:{free_port()}"
    running = RunningBroker(
        {"queued.max.request.bytes": str(LIMIT), "headrace.metrics.address": metrics}
    )
    with RawClient(running.bootstrap_servers) as client:
        create(client, "topic")
    yield running
    running.close()


def metric(broker: RunningBroker, name: str) -> float:
    address = broker._settings["headrace.metrics.address"]
    page = urllib.request.urlopen(f"http://{address}/metrics", timeout=60).read().decode()
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    assert found, name
    return float(found[1])


def push(client: socket.socket, data: memoryview) -> memoryview:
    """What the broker does not read of `data` at once."""
    client.settimeout(0.3)
    sent = 0
    while sent < len(data):
        try:
            sent += client.send(data[sent:])
        except TimeoutError:
            break
    client.settimeout(60)
    return data[sent:]


def test_many_unfinished_frames_take_bounded_memory_and_small_requests_pass(
    broker: RunningBroker,
) -> None:
    before = resident_bytes(broker)
    start = memoryview(struct.pack(">i", 90 * MIB) + bytes(20 * MIB))
    clients = [RawClient(broker.bootstrap_servers) for _ in range(20)]
    try:
        for client in clients:
            push(client.socket, start)
        assert metric(broker, "headrace_receive_waits") > 0
        assert LIMIT / 2 < metric(broker, "headrace_receive_bytes") < LIMIT + 100 * MIB
        # 20 times 20 MB were sent, with room for 80 MB each.
        assert resident_bytes(broker) - before < LIMIT + 120 * MIB
        with RawClient(broker.bootstrap_servers) as other:
            assert produce_error(other.ask(produce("topic", batch_of(b"v"))), "topic")[0] == 0
    finally:
        for client in clients:
            client.socket.close()
    with RawClient(broker.bootstrap_servers) as other:
        large = produce("topic", batch_of(bytes(900_000)))
        assert produce_error(other.ask(large), "topic")[0] == 0


def test_large_frames_that_wait_for_each_other_are_all_finished(broker: RunningBroker) -> None:
    whole = frame(18, 0, bytes(40 * MIB))
    begun = threading.Barrier(6)

    def ask() -> int:
        with RawClient(broker.bootstrap_servers) as client:
            push(client.socket, memoryview(whole)[: 2 * MIB])
            begun.wait()
            client.send(whole[2 * MIB :])
            return len(client.answer())

    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask) for _ in range(6)]
    assert all(answer.result() > 100 for answer in answers)
    assert metric(broker, "headrace_receive_waits") == 0
    assert metric(broker, "headrace_receive_bytes") == 0


@linux_only
def test_a_client_that_hangs_up_while_it_waits_for_memory_is_forgotten(
    broker: RunningBroker,
) -> None:
    start = memoryview(struct.pack(">i", 90 * MIB) + bytes(20 * MIB))
    clients = [RawClient(broker.bootstrap_servers) for _ in range(8)]
    try:
        for client in clients:
            push(client.socket, start)
        waiting = metric(broker, "headrace_receive_waits")
        assert waiting > 0
        # The last one waits. It resets its connection, as a client does that is killed.
        last = clients.pop()
        last.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        last.socket.close()
        eventually(lambda: metric(broker, "headrace_receive_waits") < waiting, "it waits no longer")
        for client in clients:  # the others were not closed for it
            client.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)
    finally:
        for client in clients:
            client.socket.close()
