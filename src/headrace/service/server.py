"""A service as a process: listens, reports that it is ready, stops when it gets a signal."""

import gc
import logging
import math
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import uvicorn

from headrace.logs import configure_logs
from headrace.service.application import Application
from headrace.service.http_service import HttpService
from headrace.service.request import Request
from headrace.service.security import UNPROTECTED, CertificateProtocol, ServiceSecurity

R = TypeVar("R", bound=Request)

LONGEST_HEADERS_BYTES = 65_536
BACKLOG = 1024
RENEWAL_TICKS = 20
"""Of uvicorn, ten a second: how often files with certificates and users are looked at."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What the operator chooses for a service's process."""

    listen: tuple[str, int]
    """Host and port; port 0 selects a free one."""
    log_format: str = "text"
    log_level: str = "info"
    graceful_stop_s: float = 10.0
    """How long a stop waits for requests in progress. Then they get status 503."""
    idle_connection_s: float = 60.0
    security: ServiceSecurity = UNPROTECTED


def run(service: HttpService[R], options: ProcessOptions) -> int:
    """Runs the service until SIGTERM or SIGINT; returns the exit code."""
    configure_logs(options.log_format, options.log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    log = logging.getLogger(f"headrace.{service.name}")
    host, port = options.listen
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        log.error("cannot listen on %s:%d: %s", host, port, error.strerror)
        return 1
    security = options.security
    if service.authenticate is None and security.authentication is not None:
        service = replace(service, authenticate=security.authentication)
    application = Application(service)
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        lifespan="on",
        ws="none",
        timeout_keep_alive=math.ceil(options.idle_connection_s),
        timeout_graceful_shutdown=math.ceil(options.graceful_stop_s),
        h11_max_incomplete_event_size=LONGEST_HEADERS_BYTES,
        server_header=False,
        http=CertificateProtocol if security.asks_for_certificates else "auto",
    )
    if security.tls is not None:
        config.load()
        config.ssl = security.tls.renewing_context()
    port = listener.getsockname()[1]
    if service.listening is not None:
        service.listening(port)
    address = f"{host}:{port}"
    ready = f"Headrace {service.name} is ready on {address}, {service.summary}"
    server = HttpServer(config, ready, log, application.end_streams, security)
    try:
        server.run(sockets=[listener])
    finally:
        security.close()
    if application.start_failure is not None:
        return application.start_failure.exit_code
    return 0 if server.started else 1


class HttpServer(uvicorn.Server):
    """Prints one line when it accepts requests, and follows renewed certificates and users."""

    def __init__(
        self,
        config: uvicorn.Config,
        ready: str,
        log: logging.Logger,
        end_streams: Callable[[], None],
        security: ServiceSecurity,
    ) -> None:
        super().__init__(config)
        self._end_streams = end_streams
        self._ready = ready
        self._log = log
        self._security = security

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Exit code 0 after a signal: uvicorn's own method raises the signal again at the end."""
        wanted = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in wanted}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:
            # uvicorn's exit code for a failed start is one of its own.
            self.should_exit = True
        if self.started:
            # Objects created so far are permanent. With the default thresholds the collector would
            # visit all of them repeatedly and block requests for tens of milliseconds.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 50)
            print(self._ready, flush=True)

    async def on_tick(self, counter: int) -> bool:
        if counter % RENEWAL_TICKS == 0:
            self._security.renew()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        in_progress = len(self.server_state.tasks)
        fields = {"requests_in_progress": in_progress}
        self._log.info("stopping; requests in progress: %d", in_progress, extra={"fields": fields})
        self._end_streams()
        await super().shutdown(sockets)
        self._log.info("stopped")
