"""Results of handlers other than JSON with status 200: other statuses, bytes, streams of bytes."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful response with a status other than 200, or with headers of its own."""

    status: int
    body: object = None
    """To be encoded as JSON; None: the response has no body."""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpContent:
    """A response with status 200 whose body is complete: a page, a script, a download."""

    body: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpStream:
    """A response with status 200 whose body is sent as it is produced.

    The generator is closed when it ends, when the client disconnects, and when the service stops.
    """

    chunks: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
