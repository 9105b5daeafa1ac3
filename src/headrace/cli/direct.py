"""Questions that librdkafka cannot put: API versions, features, sizes on disk, states of groups.

One socket, one request, one answer, through kio. These answers are extras: where they cannot be
had (TLS, logins, an older cluster) the caller shows nothing rather than failing.
"""

import io
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from headrace.cli.client import Cluster

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload, ResponsePayload

API_VERSIONS = 18
TIMEOUT_S = 5.0
CLIENT_ID = "headrace-cli"
LARGEST_ANSWER_BYTES = 100_000_000

Answer = TypeVar("Answer", bound="ResponsePayload")


@dataclass(frozen=True, slots=True)
class ApiRange:
    """Versions of one API that a broker speaks."""

    key: int
    name: str
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a broker says it can do."""

    apis: tuple[ApiRange, ...]
    features: dict[str, int]


def abilities(cluster: Cluster) -> Abilities | None:
    """API versions and finalised features of the first broker, if it tells a bare socket."""
    from kio.schema.api_versions.v3.request import ApiVersionsRequest
    from kio.schema.api_versions.v3.response import ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="headrace", client_software_version="0")
    answer = ask(cluster, cluster.addresses[0], request, ApiVersionsResponse)
    if answer is None:
        return None
    ranges = [
        ApiRange(int(row.api_key), _api_name(int(row.api_key)), row.min_version, row.max_version)
        for row in answer.api_keys
    ]
    features = {str(row.name): int(row.max_version_level) for row in answer.finalized_features}
    return Abilities(tuple(sorted(ranges, key=lambda each: each.key)), features)


def partition_sizes(
    cluster: Cluster, brokers: Sequence[tuple[str, int]], topics: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    """Bytes on disk of each partition's largest replica; empty where brokers do not tell.

    `topics` gives the number of partitions of each topic.
    """
    from kio.schema.describe_log_dirs.v3.request import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
    )
    from kio.schema.describe_log_dirs.v3.response import DescribeLogDirsResponse
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(
                topic=TopicName(name), partitions=tuple(i32(index) for index in range(count))
            )
            for name, count in topics.items()
        )
    )
    found: dict[tuple[str, int], int] = {}
    for address in brokers:
        answer = ask(cluster, address, request, DescribeLogDirsResponse)
        for folder in answer.results if answer else ():
            for topic in folder.topics:
                for part in topic.partitions:
                    at = (str(topic.name), int(part.partition_index))
                    found[at] = max(found.get(at, 0), int(part.partition_size))
    return found


def group_states(cluster: Cluster, brokers: Sequence[tuple[str, int]]) -> dict[str, str]:
    """The state of each group that these brokers coordinate, in the broker's own words."""
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse

    found: dict[str, str] = {}
    for address in brokers:
        answer = ask(cluster, address, ListGroupsRequest(), ListGroupsResponse)
        for row in answer.groups if answer else ():
            found[str(row.group_id)] = row.group_state
    return found


def _api_name(key: int) -> str:
    from kio.schema.index import api_key_map

    return "".join(word.capitalize() for word in api_key_map.get(key, "unknown").split("_"))


def ask(
    cluster: Cluster, address: tuple[str, int], request: "RequestPayload", expected: type[Answer]
) -> Answer | None:
    """One request and its answer, both of flexible versions; None if this cannot be had."""
    from kio.serial import entity_reader

    body = ask_raw(cluster, address, request)
    # An answer to ApiVersions keeps the old header (correlation id only), whatever its version.
    start = 4 if request.__api_key__ == API_VERSIONS else 5
    if body is None or len(body) <= start:
        return None
    return entity_reader(expected)(body, start)[0]


def ask_raw(cluster: Cluster, address: tuple[str, int], request: "RequestPayload") -> bytes | None:
    """The bytes of an answer, its header too; None if it cannot be had."""
    from kio.schema.request_header.v2.header import RequestHeader
    from kio.serial import entity_writer
    from kio.static.primitive import i16, i32

    if not cluster.plaintext:
        return None
    header = RequestHeader(
        request_api_key=i16(request.__api_key__),
        request_api_version=i16(request.__version__),
        correlation_id=i32(1),
        client_id=CLIENT_ID,
    )
    out = io.BytesIO()
    entity_writer(RequestHeader)(out, header)
    entity_writer(type(request))(out, request)
    try:
        return _exchange(address, out.getvalue())
    except OSError:
        return None


def _exchange(address: tuple[str, int], request: bytes) -> bytes:
    with socket.create_connection(address, TIMEOUT_S) as sock:
        sock.sendall(struct.pack(">i", len(request)) + request)
        stream = sock.makefile("rb")
        head = stream.read(4)
        length = struct.unpack(">i", head)[0] if len(head) == 4 else 0
        return stream.read(length) if 0 < length <= LARGEST_ANSWER_BYTES else b""
