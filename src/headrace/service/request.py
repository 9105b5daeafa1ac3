"""One HTTP request as authentication and handlers see it."""

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qs

from headrace.bounded_json import BadJson, parse_json
from headrace.security.roles import Role
from headrace.service.errors import HttpError

BODY_CONTAINERS = 20_000
"""Objects and arrays in a JSON body, not counting those inside of strings."""
QUERY_FIELDS = 50


class Request:
    """Method, decoded path parameters, query, headers and body.

    A service may derive a class of its own, with its state and its names.
    """

    __slots__ = (
        "body",
        "certificate",
        "client",
        "headers",
        "method",
        "path",
        "principal",
        "query",
        "role",
        "target",
    )

    def __init__(
        self,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        self.method = method
        self.path = path
        """Parameters of the route's pattern by name."""
        self.query = query
        self.headers = headers
        """Names in lower case."""
        self.target = ""
        """Path and query as they were sent."""
        self.body = b""
        """Empty until the request is authenticated."""
        self.client = ""
        """The client's address and port."""
        self.certificate: str | None = None
        """The distinguished name of the client's TLS certificate, if it has shown one."""
        self.principal: str | None = None
        """The authenticated client; None if the service has no authentication."""
        self.role: Role | None = None
        """What the client may do; None if the service has no authentication."""

    def flag(self, name: str) -> bool:
        """A boolean query parameter: true if it is `true` or has no value."""
        return self.text(name).lower() in ("true", "") if name in self.query else False

    def text(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        found = self.query.get(name)
        return found[0] if found else default

    def texts(self, name: str) -> Sequence[str]:
        """All values of a query parameter."""
        return self.query.get(name, ())

    def json(self) -> object:
        """The body; raises HttpError 400 if it is not JSON."""
        try:
            return parse_json(self.body.decode(), BODY_CONTAINERS)
        except UnicodeDecodeError:
            raise HttpError(400, "The body is not UTF-8") from None
        except BadJson as error:
            raise HttpError(400, f"The body is not JSON: {error}") from None


def parse_query(raw: bytes) -> Mapping[str, Sequence[str]]:
    """The query parameters; raises HttpError 400 if they are malformed or too many."""
    if not raw:
        return {}
    try:
        return parse_qs(
            raw.decode("ascii", "replace"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS,
        )
    except ValueError:
        raise HttpError(400, "The query cannot be parsed") from None
