"""Records of TLS: how many are received in one call, and how they are sent."""

import select
import socket
import ssl
import struct
import threading
from collections import deque
from pathlib import Path

import pytest

from headrace.broker.tls_transport import TlsTransport
from headrace.broker.transport import Waiting
from headrace.disk import READ_ONLY, RealDisk
from headrace.log.slices import SegmentFile, Slice
from tests.security.authority import Authority, write
from tests.support.systems import linux_only

_MEGABYTE = 1 << 20
_DATA_SEGMENTS_OUT_AT = 156
"""The position of `tcpi_data_segs_out` in Linux's `struct tcp_info`."""


class Connected:
    """A client, and the broker's end of its connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            plain = socket.create_connection(listening.getsockname(), 60)
            accepted, _ = listening.accept()
        for sock in (plain, accepted):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.settimeout(60)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        self.client = trusting.wrap_socket(plain, do_handshake_on_connect=False)
        shaking = threading.Thread(target=self.client.do_handshake)
        shaking.start()
        self.server = context.wrap_socket(accepted, server_side=True)
        shaking.join()
        self.server.setblocking(False)
        self.transport = TlsTransport(self.server)

    def receive(self) -> int:
        """Receive once, when there is something."""
        assert select.select([self.server], [], [], 60)[0]
        return self.transport.receive_into(memoryview(bytearray(256 * 1024)))

    def send(self, *chunks: bytes | Slice) -> bytes:
        """Send the chunks as one response; what the client received."""
        received = bytearray()
        wanted = sum(chunk.length if isinstance(chunk, Slice) else len(chunk) for chunk in chunks)

        def read() -> None:
            while len(received) < wanted:
                received.extend(self.client.recv(_MEGABYTE))

        reading = threading.Thread(target=read)
        reading.start()
        out: Waiting = deque(chunks)
        while not self.transport.drain(out):
            assert select.select([], [self.server], [], 60)[1]
        reading.join(60)
        return bytes(received)

    def data_segments_sent(self) -> int:
        info = self.server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
        count: int = struct.unpack_from("=I", info, _DATA_SEGMENTS_OUT_AT)[0]
        return count


@pytest.fixture
def connected(tmp_path: Path) -> Connected:
    own = Authority().issue("CN=broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem))
    return Connected(context)


def test_nothing_is_read_after_a_record_that_is_not_full(connected: Connected) -> None:
    for size in (15_500, 100):
        connected.client.sendall(bytes(size))
    assert [connected.receive(), connected.receive()] == [15_500, 100]


def test_full_records_are_received_together_as_java_sends_them(connected: Connected) -> None:
    with socket.socket(fileno=socket.dup(connected.server.fileno())) as waiting:
        # Ready when all three are there.
        waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 3 * 16_383)
        for _ in range(3):
            connected.client.sendall(bytes(16_383))
        assert connected.receive() == 3 * 16_383


@linux_only
def test_the_records_of_a_large_response_share_segments(
    connected: Connected, tmp_path: Path
) -> None:
    path = tmp_path / "00000000000000000000.log"
    records = bytes(range(256)) * (_MEGABYTE // 256)
    path.write_bytes(records)
    file = SegmentFile(RealDisk(), str(path), READ_ONLY)
    counts = []
    for _ in range(20):
        before = connected.data_segments_sent()
        assert connected.send(b"head", Slice(file, 0, 30_000)) == b"head" + records[:30_000]
        counts.append(connected.data_segments_sent() - before)
    # For two records. The kernel divides some, depending on the window of the receiver.
    assert min(counts) == 1, counts
    assert (
        connected.send(b"head", Slice(file, 0, _MEGABYTE), b"tail") == b"head" + records + b"tail"
    )
