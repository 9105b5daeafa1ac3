"""Invalid input of a client affects only that client: cases 34 to 39 of the fault list."""

import random
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from headrace.testing.running import RunningBroker
from headrace.wire.records import Record, encode_batch
from headrace.wire.varint import uvarint
from tests.support.mutation import mutated, real_frames
from tests.support.raw import (
    RawClient,
    batch_of,
    create,
    end_offset,
    frame,
    produce,
    produce_error,
)

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker({"socket.request.max.bytes": str(4 * MIB)})
    with RawClient(running.bootstrap_servers) as raw:
        # The codec of the cold APIs is loaded at its first use; that is not the clients' doing.
        create(raw, "warm")
        assert end_offset(raw, "warm") == 0
    yield running
    running.close()


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as raw:
        yield raw


def resident_bytes(broker: RunningBroker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def open_files(broker: RunningBroker) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def assert_well(broker: RunningBroker) -> None:
    """A bystander is served as ever."""
    with RawClient(broker.bootstrap_servers) as bystander:
        create(bystander, "bystander")
        code, _ = produce_error(bystander.ask(produce("bystander", batch_of(b"v"))), "bystander")
        assert code == 0


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31 - 1, -(2**31), 4 * MIB + 1])
def test_a_frame_of_an_impossible_size_closes_the_connection_and_costs_nothing(
    broker: RunningBroker, client: RawClient, size: int
) -> None:
    before = resident_bytes(broker)
    client.send(struct.pack(">i", size) + b"\0" * 64)
    assert client.is_closed()
    assert resident_bytes(broker) - before < MIB
    assert_well(broker)


@pytest.mark.parametrize("size", [-4, -1, 0, 7, 2**31 - 1, -(2**31), 4 * MIB + 1])
def test_a_frame_of_an_impossible_size_is_refused_after_a_large_one_too(
    broker: RunningBroker, client: RawClient, size: int
) -> None:
    create(client, "large")
    large = produce("large", batch_of(b"x" * 900_000))
    for _ in range(2):
        assert produce_error(client.ask(large), "large")[0] == 0
    client.send(struct.pack(">i", size) + b"\0" * 64)
    assert client.is_closed()
    assert_well(broker)


def test_frames_of_all_sizes_in_pieces_of_all_sizes_are_understood(client: RawClient) -> None:
    create(client, "pieces")
    rng = random.Random(7)
    frames = [
        produce("pieces", batch_of(rng.randbytes(rng.choice([10, 5000, 300_000, 900_000]))))
        for _ in range(40)
    ]
    sent = b"".join(frames)
    place = expected = 0
    while place < len(sent):
        size = rng.choice([1, 3, 5, 4096, 200_000, 1_000_000])
        client.send(sent[place : place + size])
        place += size
        while sum(map(len, frames[: expected + 1])) <= place and expected < len(frames):
            assert produce_error(client.answer(), "pieces") == (0, expected)
            expected += 1
    assert expected == len(frames) == end_offset(client, "pieces")


def test_a_large_announced_size_allocates_no_memory_before_bytes_arrive(
    broker: RunningBroker,
) -> None:
    before = resident_bytes(broker)
    claims = []
    for _ in range(200):
        raw = RawClient(broker.bootstrap_servers)
        raw.send(struct.pack(">i", 4 * MIB) + b"\0" * 100)
        claims.append(raw)
    assert_well(broker)
    assert resident_bytes(broker) - before < 16 * MIB
    for raw in claims:
        raw.socket.close()


def test_a_version_of_api_versions_above_ours_gets_a_v0_answer_with_35(
    client: RawClient,
) -> None:
    answer = client.ask(frame(18, 99, b"\0\x04raw\x021\0"))
    correlation_id, code, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, code) == (1, 35)
    ranges = {row[0]: row[1:] for row in struct.iter_unpack(">hhh", answer[10:])}
    assert len(ranges) == count
    assert ranges[0] == (0, 13)
    assert ranges[1] == (4, 18)
    assert ranges[18] == (0, 4)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 0), (3, 99), (0, 2), (1, -1)])
def test_an_unknown_api_or_version_closes_the_connection(
    broker: RunningBroker, client: RawClient, key: int, version: int
) -> None:
    client.send(frame(key, version, b"\0" * 32))
    assert client.is_closed()
    assert_well(broker)


LIES = {
    "more topics than bytes": frame(3, 4, struct.pack(">i", 2**31 - 1)),
    "a negative length": frame(3, 4, struct.pack(">ih", 1, -5) + b"\x01"),
    "a name past the end": frame(3, 4, struct.pack(">ih", 1, 30000) + b"abc"),
    "a varint of six bytes": frame(3, 9, b"\0" + b"\xff" * 6),
    "many topics in CreateTopics": frame(19, 5, b"\0" + b"\xff\xff\xff\xff\x0f"),
    "many topics in old CreateTopics": frame(19, 2, struct.pack(">i", 2**31 - 1)),
    "many partitions in ListOffsets": frame(
        2, 1, struct.pack(">iih", -1, 1, 1) + b"t\x7f\xff\xff\xff"
    ),
    "records past the end": produce("t", b"x" * 100).replace(uvarint(101), uvarint(120)),
    "a client id past the end": struct.pack(">ihhih", 20, 3, 4, 1, 30000) + b"\0" * 10,
    "a client id that is not UTF-8": struct.pack(">ihhih", 14, 3, 4, 1, 2) + b"\xff\xfe\0\0\0\0",
}


@pytest.mark.parametrize("lie", LIES)
def test_lengths_that_lie_close_the_connection(broker: RunningBroker, lie: str) -> None:
    before = resident_bytes(broker)
    with RawClient(broker.bootstrap_servers) as raw:
        raw.send(LIES[lie])
        if lie != "a negative length":
            assert raw.is_closed()
    assert resident_bytes(broker) - before < 8 * MIB
    assert_well(broker)


def sealed(batch: bytearray) -> bytearray:
    """The batch with a checksum that fits what it says now."""
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def with_field(fmt: str, at: int, value: int, count: int = 1) -> bytearray:
    batch = batch_of(*[b"v"] * count)
    struct.pack_into(fmt, batch, at, value)
    return sealed(batch)


BROKEN = {
    "a wrong checksum": (lambda: batch_of(b"v")[:-1] + b"?", {2}),
    "more records than there are": (lambda: with_field(">i", 57, 5), {87}),
    "more records, and a last offset to match": (
        lambda: sealed(_with_both(batch_of(b"a", b"b"), 5)),
        {87},
    ),
    "no records": (lambda: encode_batch([]), {87}),
    "a negative count": (lambda: with_field(">i", 57, -3), {87}),
    "a control batch": (lambda: with_field(">h", 21, 0x20), {87}),
    "magic 1": (lambda: with_field(">B", 16, 1), {87}),
    "magic 7": (lambda: with_field(">B", 16, 7), {2}),
    "a codec that does not exist": (lambda: with_field(">h", 21, 6), {76}),
    "log append time set by the client": (lambda: with_field(">h", 21, 8), {32}),
    "a length beyond the batch": (lambda: with_field(">i", 8, 5000), {2, 87}),
    "two batches": (lambda: batch_of(b"a") + batch_of(b"b"), {87}),
    "a batch cut short": (lambda: batch_of(b"v" * 50)[:40], {2, 87}),
    "a time far in the future": (lambda: encode_batch([Record(0, 2**60, None, b"v")]), {32}),
}


def _with_both(batch: bytearray, count: int) -> bytearray:
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return batch


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_batch_gets_its_error_and_the_log_end_stays(
    broker: RunningBroker, client: RawClient, case: str
) -> None:
    make, codes = BROKEN[case]
    create(client, "broken")
    before = end_offset(client, "broken")
    code, base = produce_error(client.ask(produce("broken", bytes(make()))), "broken")
    assert code in codes, code
    assert base == -1
    assert end_offset(client, "broken") == before


def test_a_failed_produce_without_acknowledgement_closes_the_connection(
    broker: RunningBroker, client: RawClient
) -> None:
    create(client, "broken")
    client.send(produce("broken", batch_of(b"v")[:-1] + b"?", acks=0))
    assert client.is_closed()
    assert_well(broker)


@pytest.mark.parametrize("name", ["../x", "a\0b", "x" * 250, "..", ".", "", "a b", "é"])
def test_a_name_that_no_topic_can_have_gets_17_and_leaves_no_file(
    broker: RunningBroker, client: RawClient, name: str
) -> None:
    before = sorted(broker.data_dir.parent.rglob("*-0"))
    raw = name.encode()
    body = struct.pack(">ih", 1, len(raw)) + raw + struct.pack(">ihiiib", 1, 1, 0, 0, 5000, 0)
    answer = client.ask(frame(19, 2, body))
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(raw))
    assert code == 17
    assert sorted(broker.data_dir.parent.rglob("*-0")) == before


def test_mutated_frames_never_kill_the_broker_or_grow_its_memory(broker: RunningBroker) -> None:
    rng = random.Random(20_260_703)
    originals = real_frames()
    assert_well(broker)
    before, files = resident_bytes(broker), open_files(broker)
    for _ in range(250):
        with RawClient(broker.bootstrap_servers, timeout_s=2) as raw:
            try:
                for _ in range(40):
                    raw.send(mutated(rng, rng.choice(originals)))
                raw.socket.shutdown(socket.SHUT_WR)
                while raw.socket.recv(65536):
                    pass
            except OSError:
                # Cut off in the middle, as it should be.
                continue
    assert_well(broker)
    assert resident_bytes(broker) - before < 48 * MIB
    assert open_files(broker) - files < 200
    assert "unexpected error" not in broker.log_file.read_text()
