"""The registry's process: listens, says when it is ready, stops cleanly."""

import gc
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from headrace.logs import configure_logs
from headrace.registry import http_app
from headrace.registry.schemas_topic import TopicLocation, TopicUnusable
from headrace.registry.service import Registry

log = logging.getLogger("headrace.registry")
LONGEST_HEADERS_BYTES = 65_536
IDLE_CONNECTION_S = 60


class Server(uvicorn.Server):
    """Says one line when clients can come."""

    def __init__(self, config: uvicorn.Config, location: TopicLocation, port: int) -> None:
        super().__init__(config)
        self._ready = (
            f"Headrace registry is ready on {config.host}:{port}, "
            f"schemas in {location.topic} at {location.bootstrap}"
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal to stop is no failure: unlike uvicorn's own, this raises it no second time."""
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in wanted}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # What is built so far stays. With the usual thresholds the collector would look at
            # every schema in memory again and again, and hold up requests for tens of milliseconds.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 50)
            print(self._ready, flush=True)


def main(location: TopicLocation, listen: tuple[str, int], log_format: str, log_level: str) -> int:
    """Runs until it is told to stop; the exit code."""
    configure_logs(log_format, log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    host, port = listen
    try:
        listener = socket.create_server((host, port), backlog=1024, reuse_port=False)
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", host, port, error.strerror)
        return 1
    config = uvicorn.Config(
        http_app.build(Registry(location)),
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        lifespan="on",
        timeout_keep_alive=IDLE_CONNECTION_S,
        h11_max_incomplete_event_size=LONGEST_HEADERS_BYTES,
        server_header=False,
    )
    server = Server(config, location, listener.getsockname()[1])
    try:
        server.run(sockets=[listener])
    except TopicUnusable as error:
        log.error("%s", error)
        return 1
    return 0 if server.started else 1
