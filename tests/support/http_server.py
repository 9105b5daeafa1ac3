"""A real HTTP server in this process whose responses a test decides."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


@dataclass(frozen=True, slots=True)
class SeenRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


def _nothing(request: SeenRequest) -> Response:
    return JSONResponse([])


@dataclass
class HttpServerUnderTest:
    """The requests that came, and the function that answers them."""

    url: str
    answer: Callable[[SeenRequest], Response] = _nothing
    requests: list[SeenRequest] = field(default_factory=list)

    def reset(self) -> None:
        self.requests = []
        self.answer = _nothing

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:  # type: ignore[type-arg]
        request = Request(scope, receive)
        seen = SeenRequest(
            request.method,
            request.url.path,
            dict(request.query_params),
            dict(request.headers),
            await request.body(),
        )
        if seen.method != "HEAD":
            self.requests.append(seen)
        await self.answer(seen)(scope, receive, send)

    @property
    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.requests]


@contextmanager
def http_server() -> Iterator[HttpServerUnderTest]:
    """Runs it on a free port until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = HttpServerUnderTest(f"http://127.0.0.1:{listener.getsockname()[1]}")
    config = uvicorn.Config(made, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start within a minute"
        time.sleep(0.01)
    try:
        yield made
    finally:
        server.should_exit = True
        thread.join(60)
