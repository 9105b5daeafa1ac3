"""The option --registry: the client that it means, and its errors."""

import pytest

from headrace.cli.failures import ExitCode, Failure
from headrace.cli.schemas.registry_client import schema_client
from headrace.client.errors import ClientError
from headrace.schemas.client import RequestRefused, SchemaRegistryError


def test_login_and_ca_file_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with schema_client("http://a:1") as client:
        assert (client.urls, client.user_info, client.ca_file) == (("http://a:1",), None, None)
    monkeypatch.setenv("HEADRACE_REGISTRY_USER_INFO", "ann:secret")
    monkeypatch.setenv("HEADRACE_REGISTRY_CA", "ca.pem")
    with schema_client("http://a:1,https://b") as client:
        assert client.urls == ("http://a:1", "https://b")
        assert (client.user_info, client.ca_file) == ("ann:secret", "ca.pem")


@pytest.mark.parametrize(
    ("error", "code", "exit_code", "said"),
    [
        (SchemaRegistryError("no answer"), "UNREACHABLE", ExitCode.UNREACHABLE, "no answer"),
        (RequestRefused("long", 404, 40401, "none"), "NOT_FOUND", ExitCode.NOT_FOUND, "none"),
        (RequestRefused("long", 422, 42201, "bad"), "42201", ExitCode.FAILED, "bad"),
        (SchemaRegistryError("a proxy says 502", 502, 502), "502", ExitCode.FAILED, "a proxy"),
        (ClientError("no such CA file"), "FAILED", ExitCode.FAILED, "no such CA file"),
    ],
)
def test_an_error_of_the_client_ends_the_command(
    error: Exception, code: str, exit_code: ExitCode, said: str
) -> None:
    with pytest.raises(Failure, match=said) as caught, schema_client("http://a:1"):
        raise error
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
