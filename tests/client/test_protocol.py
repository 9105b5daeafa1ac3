"""The protocol of a connection, without a socket: frames, versions, responses."""

import struct

import pytest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32

from headrace.client.errors import ClientError
from headrace.client.protocol import Conversation, NotAResponse, Response

HEARTBEAT = 12
REQUEST = HeartbeatRequest(
    group_id=GroupId("g"), generation_id=i32(1), member_id="m", group_instance_id=None
)


def speaking(*ranges: tuple[int, int, int]) -> Conversation:
    """A conversation with a broker that has these versions: (API, lowest, highest)."""
    conversation = Conversation("test", "broker:9092")
    conversation.ask_versions()
    rows = b"".join(struct.pack(">hhhB", *row, 0) for row in ranges)
    body = bytearray(struct.pack(">hB", 0, len(ranges) + 1) + rows + struct.pack(">iB", 0, 0))
    conversation.take_versions(conversation.take_response(body, 0, len(body)))
    return conversation


def head(frame: bytes) -> tuple[int, ...]:
    """Size, API, version and correlation id of a request."""
    found: tuple[int, ...] = struct.unpack_from(">ihhi", frame)
    return found


@pytest.mark.parametrize(("highest", "expected"), [(4, 4), (3, 3), (99, 4), (0, 0)])
def test_a_request_has_the_newest_version_that_both_sides_have(highest: int, expected: int) -> None:
    frame = speaking((HEARTBEAT, 0, highest)).request(REQUEST)
    size, api_key, version, _ = head(frame)
    assert (size, api_key, version) == (len(frame) - 4, HEARTBEAT, expected)
    name = frame[14:18]
    assert name == b"test"
    # From version 4 on, which is flexible, a header ends with its tagged fields.
    assert (frame[18:19] == b"\0" and frame[19:20] == b"\x02") == (expected >= 4)


def test_a_broker_without_a_common_version_is_named_with_its_versions() -> None:
    conversation = speaking((HEARTBEAT, 5, 6))
    with pytest.raises(ClientError, match=r"broker:9092 supports versions 5 to 6 of API 12"):
        conversation.request(REQUEST)
    with pytest.raises(ClientError, match="supports versions none of API 60"):
        conversation.version(60, 1)


def test_the_oldest_version_that_a_caller_can_use_is_respected() -> None:
    conversation = speaking((1, 4, 16))
    assert conversation.version(1, 17, 15) == 16
    with pytest.raises(ClientError, match="17 to 18 are needed"):
        conversation.version(1, 18, 17)


def test_responses_belong_to_requests_in_their_order() -> None:
    conversation = speaking((HEARTBEAT, 0, 4))
    first = head(conversation.request(REQUEST))[3]
    second = head(conversation.request(REQUEST))[3]
    assert first != second
    with pytest.raises(NotAResponse):
        conversation.response_bytes(struct.pack(">ii", 20, second))
    assert conversation.response_bytes(struct.pack(">ii", 20, first)) == 16
    with pytest.raises(NotAResponse):
        conversation.response_bytes(struct.pack(">ii", 3, first))
    conversation.take_response(bytearray(16), 0, 16)
    assert conversation.response_bytes(struct.pack(">ii", 20, second)) == 16


def test_a_response_in_an_older_version_is_read_as_the_newest_class() -> None:
    conversation = speaking((HEARTBEAT, 0, 0))
    conversation.request(REQUEST)
    body = bytearray(struct.pack(">h", 27))
    response = conversation.take_response(body, 0, len(body))
    assert (response.version, response.start) == (0, 0)
    assert conversation.decode(response, HeartbeatResponse).error_code == 27


def test_the_body_of_a_flexible_response_follows_the_tagged_fields_of_its_header() -> None:
    conversation = speaking((HEARTBEAT, 0, 4))
    conversation.request(REQUEST)
    body = bytearray(b"\0" + struct.pack(">ihB", 0, 25, 0))
    response = conversation.take_response(body, 0, len(body))
    assert (response.version, response.start) == (4, 1)
    assert conversation.decode(response, HeartbeatResponse).error_code == 25


def test_a_malformed_response_names_its_message_and_the_broker() -> None:
    conversation = speaking((HEARTBEAT, 0, 4))
    cut = Response(4, bytearray(b"\0\0\0"), 0, 3)
    with pytest.raises(ClientError, match="malformed HeartbeatResponse from broker:9092"):
        conversation.decode(cut, HeartbeatResponse)


def test_a_broker_that_is_too_old_to_list_its_versions_is_refused() -> None:
    conversation = Conversation("test", "broker:9092")
    conversation.ask_versions()
    body = bytearray(struct.pack(">h", 35))
    with pytest.raises(ClientError, match="too old"):
        conversation.take_versions(conversation.take_response(body, 0, len(body)))
