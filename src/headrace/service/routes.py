"""The route table: finds the row for a method and a path.

A path is split into parts before they are decoded, so that a parameter may contain a slash
(`%2F`), and `..` is an ordinary name.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote

from headrace.security.roles import Role
from headrace.service.errors import HttpError
from headrace.service.request import Request

R = TypeVar("R", bound=Request)


class HttpRoute(NamedTuple, Generic[R]):
    """One row. The first part of the pattern is fixed; others may be parameters: `{name}`.

    The handler returns the body of a response with status 200, to be encoded as JSON, or a
    `HttpAnswer`, a `HttpContent` or a `HttpStream`, or raises HttpError.
    """

    method: str
    pattern: str
    handler: Callable[[R], Awaitable[object]]
    role: Role | None = None
    """Which role the client needs if the service has authentication; without it, READ for GET and
    WRITE for other methods."""


class Match(NamedTuple, Generic[R]):
    """The row for a request, and the values of its parameters."""

    pattern: str
    handler: Callable[[R], Awaitable[object]]
    path: Mapping[str, str]
    role: Role


class _Pattern(Generic[R]):
    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.parts = _split(pattern)
        self.parameters = sum(map(_is_parameter, self.parts))
        self.handlers: dict[str, tuple[Callable[[R], Awaitable[object]], Role]] = {}


class RouteTable(Generic[R]):
    """Patterns by their number of parts and their first part; fixed parts win over parameters."""

    def __init__(self, routes: Iterable[HttpRoute[R]]) -> None:
        patterns: dict[str, _Pattern[R]] = {}
        for route in routes:
            row = patterns.setdefault(route.pattern, _Pattern(route.pattern))
            assert route.method not in row.handlers, f"{route.method} {route.pattern} twice"
            usual = Role.READ if route.method == "GET" else Role.WRITE
            row.handlers[route.method] = (route.handler, route.role or usual)
        self._rows: dict[tuple[int, str], list[_Pattern[R]]] = {}
        for row in sorted(patterns.values(), key=lambda row: row.parameters):
            assert not _is_parameter(row.parts[0]), f"{row.text} begins with a parameter"
            self._rows.setdefault((len(row.parts), row.parts[0]), []).append(row)

    def find(self, method: str, raw_path: str) -> Match[R]:
        """The row; raises HttpError 400, 404 or 405."""
        parts = _split(raw_path)
        for row in self._rows.get((len(parts), parts[0]), ()):
            path = _match(row.parts, parts)
            if path is None:
                continue
            found = row.handlers.get(method)
            if found is None:
                raise HttpError(
                    405,
                    f"HTTP 405 Method Not Allowed: {method} {row.text}",
                    headers={"allow": ", ".join(sorted(row.handlers))},
                )
            return Match(row.text, found[0], path, found[1])
        raise HttpError(404, "HTTP 404 Not Found")


def _split(path: str) -> list[str]:
    return path.strip("/").split("/")


def _is_parameter(part: str) -> bool:
    return part[:1] == "{"


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for wanted, given in zip(pattern, parts, strict=True):
        if wanted[:1] == "{":
            found[wanted[1:-1]] = _decode(given) if "%" in given else given
        elif wanted != given:
            return None
    return found


def _decode(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise HttpError(400, "The path is not UTF-8") from None
