"""A client made of bytes: sends frames that no well-behaved client would, and reads the answers."""

import socket
import struct
import time
from types import TracebackType
from typing import Self

from headrace.wire.records import Record, encode_batch
from headrace.wire.varint import uvarint

CLIENT_ID = b"raw"


class RawClient:
    """One connection to a broker on this machine."""

    def __init__(self, bootstrap_servers: str, timeout_s: float = 60) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def ask(self, frame: bytes) -> bytes:
        """Send a whole frame; the body of the answer, after its size."""
        self.send(frame)
        return self.answer()

    def answer(self) -> bytes:
        """The next answer, after its size; ConnectionError if there is none."""
        size = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def is_closed(self) -> bool:
        """Whether the broker hangs up (and says nothing more)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data


def frame(api_key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A request frame; `body` begins with the header's tagged fields where there are any."""
    head = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(
    topic: str, batch: bytes | bytearray, partition: int = 0, acks: int = 1, version: int = 9
) -> bytes:
    """A Produce request of version 9 to 12 with one batch."""
    name = topic.encode()
    body = b"\0\0" + struct.pack(">hi", acks, 60_000) + b"\x02" + uvarint(len(name) + 1) + name
    body += b"\x02" + struct.pack(">i", partition) + uvarint(len(batch) + 1) + batch
    return frame(0, version, body + b"\0\0\0")


def produce_error(answer: bytes, topic: str) -> tuple[int, int]:
    """Error code and base offset in the answer to `produce`."""
    at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    code, base = struct.unpack_from(">hq", answer, at)
    return code, base


def end_offset(client: RawClient, topic: str, partition: int = 0) -> int:
    """The log's end, by ListOffsets v1."""
    name = topic.encode()
    body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">iiq", 1, partition, -1)
    answer = client.ask(frame(2, 1, body))
    code, _, offset = struct.unpack_from(">hqq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    assert code == 0, code
    return int(offset)


def create(client: RawClient, topic: str) -> None:
    """Have the topic created, by Metadata v4."""
    name = topic.encode()
    client.ask(frame(3, 4, struct.pack(">ih", 1, len(name)) + name + b"\x01"))


def batch_of(*values: bytes | None, **options: int) -> bytearray:
    """A batch of records without keys, stamped now."""
    now = int(time.time() * 1000)
    return encode_batch([Record(0, now, None, value) for value in values], **options)
