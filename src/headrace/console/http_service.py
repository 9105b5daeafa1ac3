"""The console as a service of the chassis."""

from functools import partial

from headrace.console.assets import SECURITY_HEADERS, load_assets
from headrace.console.audited_requests import write_forbidden
from headrace.console.console_request import ConsoleRequest
from headrace.console.consoles import Consoles
from headrace.console.routes import routes
from headrace.service.http_service import Health, HttpService

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
BODY_BYTES = 32_000_000
"""A produced record may be as large as brokers accept it."""


def console_service(consoles: Consoles, listen_host: str) -> HttpService[ConsoleRequest]:
    """The HTTP service of a console; raises StartFailure if its pages are missing."""
    options = consoles.options
    assets = load_assets()

    async def start() -> None:
        await consoles.start(assets.read_all)

    return HttpService(
        name="console",
        summary=f"for the cluster at {options.bootstrap}",
        routes=routes(read_only=options.read_only),
        make_request=partial(ConsoleRequest, consoles),
        authenticate=consoles.login,
        forbidden=partial(write_forbidden, consoles.audit),
        start=start,
        stop=consoles.stop,
        health=Health,
        metrics=tuple,
        metrics_text=consoles.metrics_page,
        page=assets.serve,
        hosts=LOOPBACK_NAMES | options.hosts | {listen_host.lower()},
        response_headers=SECURITY_HEADERS,
        body_bytes=BODY_BYTES,
    )
