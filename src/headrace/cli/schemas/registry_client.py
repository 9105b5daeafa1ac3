"""A schema registry as the command line speaks to it, and its answers translated into Failures."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

import typer

from headrace.cli.failures import ExitCode, Failure, bad_usage, not_found

DEFAULT_REGISTRY = "http://localhost:8081"
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_TIMEOUT_S = 30

RegistryOption = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="HEADRACE_REGISTRY",
        metavar="URL",
        help="The schema registry.",
        rich_help_panel="Cluster and output",
    ),
]


class Refused(Failure):
    """The registry has said no; its own code and words."""

    def __init__(self, status: int, code: int, message: str) -> None:
        found = status != 404
        super().__init__(
            message,
            exit_code=ExitCode.FAILED if found else ExitCode.NOT_FOUND,
            code=str(code) if found else "NOT_FOUND",
        )
        self.registry_code = code


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where the registry is."""

    url: str

    def get(self, *path: str, **query: object) -> object:
        return self._ask("GET", path, query)

    def post(self, *path: str, body: object, **query: object) -> object:
        return self._ask("POST", path, query, body)

    def put(self, *path: str, body: object) -> object:
        return self._ask("PUT", path, {}, body)

    def delete(self, *path: str, **query: object) -> object:
        return self._ask("DELETE", path, query)

    def _ask(
        self, method: str, path: tuple[str, ...], query: dict[str, object], body: object = None
    ) -> object:
        place = "/".join(quote(part, safe="") for part in path)
        words = "&".join(f"{name}={quote(_word(value))}" for name, value in query.items())
        if not self.url.startswith(("http://", "https://")):
            raise bad_usage(f"--registry {self.url!r} is no URL", f"Such as {DEFAULT_REGISTRY}.")
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/{place}{'?' if words else ''}{words}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                found: object = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise Failure(
                f"no schema registry at {self.url}: {getattr(reason, 'strerror', None) or reason}",
                exit_code=ExitCode.UNREACHABLE,
                code="UNREACHABLE",
                hint="Start one with `headrace registry serve`, or name another with --registry.",
            ) from None


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(error: urllib.error.HTTPError) -> Failure:
    try:
        body = json.loads(error.read())
        return Refused(error.code, int(body["error_code"]), str(body["message"]))
    except (ValueError, KeyError, TypeError):
        if error.code == 404:
            return not_found(f"{error.url}: not found")
        return Failure(f"{error.url} answered {error.code} {error.reason}")


def as_dict(answer: object) -> dict[str, object]:
    """An answer that has to be an object."""
    if not isinstance(answer, dict):
        raise Failure("the registry answered with something else than expected")
    return answer


def as_list(answer: object) -> list[object]:
    """An answer that has to be a list."""
    if not isinstance(answer, list):
        raise Failure("the registry answered with something else than expected")
    return answer
