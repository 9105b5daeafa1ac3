"""The description of a service: what the chassis needs to know about it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.security.roles import Role
from headrace.service.authentication import HttpIdentity
from headrace.service.request import Request
from headrace.service.routes import HttpRoute

R = TypeVar("R", bound=Request)
R_co = TypeVar("R_co", bound=Request, covariant=True)

JSON = "application/json"
BODY_BYTES = 2_000_000
INTERNAL_ERROR = 50001

Authenticate: TypeAlias = Callable[[Request], Awaitable[HttpIdentity]]
"""Returns the principal and the role of a request's client, before the body has been read, or
raises HttpError: 401 with the header `www-authenticate`, or 403."""


class RequestFactory(Protocol[R_co]):
    """Makes the object that handlers get; `Request` itself is one."""

    def __call__(
        self,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
        /,
    ) -> R_co: ...


@dataclass(frozen=True, slots=True)
class Health:
    """What `/health` reports."""

    problem: str = ""
    """Why the service is not ready, and what to do; empty if it is ready."""
    details: Mapping[str, object] = field(default_factory=dict)


class ServiceMetric(NamedTuple):
    """A metric of a service. It is a counter if its name ends with `_total`, else a gauge."""

    name: str
    """The name without `headrace_SERVICE_`."""
    doc: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpService(Generic[R]):
    """A service. `start` is called before requests are accepted, `stop` after the last one."""

    name: str
    """As in `headrace NAME serve`, the logger `headrace.NAME` and the metrics `headrace_NAME_*`."""
    summary: str
    """Completes the line that reports that the service is ready."""
    routes: Sequence[HttpRoute[R]]
    make_request: RequestFactory[R]
    start: Callable[[], Awaitable[None]]
    """Raises StartFailure if the service cannot start."""
    stop: Callable[[], Awaitable[None]]
    health: Callable[[], Health]
    metrics: Callable[[], Iterable[ServiceMetric]]
    """The service's own metrics."""
    listening: Callable[[int], None] | None = None
    """Called with the port on which the process listens, before `start`."""
    metrics_text: Callable[[], str] | None = None
    """Further metrics in Prometheus's text format, with names of their own."""
    authenticate: Authenticate | None = None
    """None: what the settings ask for (`authentication.py`). A service with a login of its own
    sets it."""
    forbidden: Callable[[R, str, Role], None] | None = None
    """Called if the role of a client does not suffice, with the path of the route table and the
    role that is needed, before the response has status 403."""
    response_types: tuple[str, ...] = (JSON,)
    """Media types for the `Accept` header; the first is the default."""
    body_types: frozenset[str] = frozenset({JSON})
    """Accepted values of `Content-Type`."""
    body_bytes: int = BODY_BYTES
    """Limit on request bodies. The rest of a larger body is not read."""
    page: Callable[[R], Awaitable[object]] | None = None
    """Handler of GET requests for paths that no row of the route table has; the path parameter
    `path` is the whole path, not decoded. None: such requests get status 404."""
    hosts: frozenset[str] | None = None
    """Accepted names in the `Host` header, in lower case and without ports. None: every name."""
    internal_error_code: int = INTERNAL_ERROR
    """`error_code` of responses to requests whose handler failed."""
    response_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every response, such as a content security policy."""
