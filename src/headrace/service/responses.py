"""Results of handlers that are not JSON: bytes of any media type, and streams of bytes."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field


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
