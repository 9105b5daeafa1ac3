"""The client of the registry that --registry selects, and its errors as Failures."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.cli.failures import ExitCode, Failure, bad_usage

if TYPE_CHECKING:
    from headrace.schemas.client import SchemaClient, SchemaRegistryError

DEFAULT_REGISTRY = "http://localhost:8081"
ANSWER_TIMEOUT_S = 30.0
USER_INFO_VARIABLE = "HEADRACE_REGISTRY_USER_INFO"
TOKEN_VARIABLE = "HEADRACE_REGISTRY_TOKEN"
CA_VARIABLE = "HEADRACE_REGISTRY_CA"
CERTIFICATE_VARIABLE = "HEADRACE_REGISTRY_CERTIFICATE"


@contextlib.contextmanager
def schema_client(registry: str) -> "Iterator[SchemaClient]":
    """The client of the registry, as a context; its errors are translated.

    It does not retry, so that a user sees immediately if a registry does not respond.
    """
    with translated():
        yield make_client(registry)


def make_client(registry: str) -> "SchemaClient":
    """The client of the registry at these URLs, with the credentials of the environment."""
    from headrace.schemas.client import SchemaClient, split_urls

    urls = split_urls(registry)
    if not urls or not all(url.startswith(("http://", "https://")) for url in urls):
        raise bad_usage(f"--registry {registry!r} is not a URL", f"Example: {DEFAULT_REGISTRY}.")
    return SchemaClient(
        urls,
        os.environ.get(USER_INFO_VARIABLE) or None,
        os.environ.get(CA_VARIABLE) or None,
        token=os.environ.get(TOKEN_VARIABLE) or None,
        certificate_file=os.environ.get(CERTIFICATE_VARIABLE) or None,
        timeout_s=ANSWER_TIMEOUT_S,
        attempts=1,
    )


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns the errors of schemas and their client into Failures."""
    from headrace.client.errors import ClientError
    from headrace.schemas.client import SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        raise _failure(error) from None
    except ClientError as error:
        raise Failure(str(error)) from None


def _failure(error: "SchemaRegistryError") -> Failure:
    if not error.status:
        return Failure(
            str(error),
            exit_code=ExitCode.UNREACHABLE,
            code="UNREACHABLE",
            hint="Start one with `headrace registry serve`, or specify another with --registry.",
        )
    missing = error.status == 404
    return Failure(
        error.reason or str(error),
        exit_code=ExitCode.NOT_FOUND if missing else ExitCode.FAILED,
        code="NOT_FOUND" if missing else str(error.code),
        hint=f"Set {USER_INFO_VARIABLE}=USER:PASSWORD." if error.status == 401 else "",
    )


def as_dict(answer: object) -> dict[str, object]:
    """Check that a response is an object."""
    if not isinstance(answer, dict):
        raise Failure("unexpected response from the registry: not a JSON object")
    return answer


def as_list(answer: object) -> list[object]:
    """Check that a response is a list."""
    if not isinstance(answer, list):
        raise Failure("unexpected response from the registry: not a JSON list")
    return answer
