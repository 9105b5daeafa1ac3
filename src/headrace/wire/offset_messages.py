"""OffsetCommit and OffsetFetch as their handlers see them: topics by name and by id.

Version 10 has topic ids, older versions have names, and kio's class of a version has only the one.
These classes have both, as Kafka's own definition: the one that a request does not have is empty
(None, ""). `codec.py` builds them from requests of any version and writes them in any version.
"""

from dataclasses import dataclass, field

from kio.schema.offset_commit.v10 import request as commit_request
from kio.schema.offset_commit.v10 import response as commit_response
from kio.schema.offset_fetch.v10 import request as fetch_request
from kio.schema.offset_fetch.v10 import response as fetch_response

from headrace.wire.primitives import TopicName

_NO_NAME = TopicName("")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToCommit(commit_request.OffsetCommitRequestTopic):
    """A topic of an OffsetCommit request."""

    name: TopicName = field(metadata={"kafka_type": "string"}, default=_NO_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest(commit_request.OffsetCommitRequest):
    """OffsetCommit, in any version."""

    topics: tuple[TopicToCommit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedTopic(commit_response.OffsetCommitResponseTopic):
    """A topic of the response to OffsetCommit."""

    name: TopicName = field(metadata={"kafka_type": "string"}, default=_NO_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse(commit_response.OffsetCommitResponse):
    """The response to OffsetCommit, in any version."""

    topics: tuple[CommittedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicToFetch(fetch_request.OffsetFetchRequestTopics):
    """A topic of an OffsetFetch request."""

    name: TopicName = field(metadata={"kafka_type": "string"}, default=_NO_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupToFetch(fetch_request.OffsetFetchRequestGroup):
    """A group of an OffsetFetch request."""

    topics: tuple[TopicToFetch, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest(fetch_request.OffsetFetchRequest):
    """OffsetFetch, in any version."""

    groups: tuple[GroupToFetch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTopic(fetch_response.OffsetFetchResponseTopics):
    """A topic of the response to OffsetFetch."""

    name: TopicName = field(metadata={"kafka_type": "string"}, default=_NO_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedGroup(fetch_response.OffsetFetchResponseGroup):
    """A group of the response to OffsetFetch."""

    topics: tuple[FetchedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse(fetch_response.OffsetFetchResponse):
    """The response to OffsetFetch, in any version."""

    groups: tuple[FetchedGroup, ...]


SHAPES = {
    8: (OffsetCommitRequest, OffsetCommitResponse),
    9: (OffsetFetchRequest, OffsetFetchResponse),
}
"""The classes of requests and responses, by API."""
