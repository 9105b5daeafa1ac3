"""The registry logs in to its cluster with tokens."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.security.token_logins import KINDS, TokenBroker
from tests.support.headrace_registry import HeadraceRegistry

PATIENCE_S = 60
TOKEN_LIFETIME_S = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with TokenBroker(tmp_path_factory.mktemp("tokens")) as running:
        yield running


def client_file(folder: Path, properties: dict[str, str]) -> Path:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return path


def registry(cluster: TokenBroker, folder: Path, properties: dict[str, str]) -> HeadraceRegistry:
    return HeadraceRegistry(
        properties["bootstrap.servers"],
        folder,
        topic=f"_schemas-{uuid.uuid4().hex[:8]}",
        client_config=client_file(folder, properties),
    )


def librdkafka(cluster: TokenBroker) -> dict[str, str]:
    """The provider's login in the names of librdkafka, with which the registry then works."""
    java = cluster.properties("provider")
    url = "sasl.oauthbearer.token.endpoint.url"
    return {
        "bootstrap.servers": java["bootstrap.servers"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": cluster.broker.ca,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": cluster.secrets("provider")[0],
        url: java[url],
    }


@pytest.mark.parametrize("kind", [*KINDS, "librdkafka"])
def test_the_registry_works_with_a_token(cluster: TokenBroker, tmp_path: Path, kind: str) -> None:
    by_library = kind == "librdkafka"
    properties = librdkafka(cluster) if by_library else cluster.properties(kind)
    with registry(cluster, tmp_path, properties) as running:
        with SchemaRegistryClient({"url": running.url}) as client:
            schema_id = client.register_schema("a", Schema('"string"', "AVRO"))
        running.stop()
        running.start()
        with SchemaRegistryClient({"url": running.url}) as client:
            assert client.get_schema(schema_id).schema_str == '"string"'
        log = running.log()
    for secret in cluster.secrets("provider" if by_library else kind):
        assert secret not in log
        assert secret not in cluster.broker.log()


@contextmanager
def short_tokens(cluster: TokenBroker) -> Iterator[None]:
    """The file always has a token that is valid for a few seconds more."""
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.2):
            cluster.write_token(TOKEN_LIFETIME_S)

    cluster.write_token(TOKEN_LIFETIME_S)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join(PATIENCE_S)


def test_the_registry_goes_on_with_the_next_token_when_one_has_expired(
    cluster: TokenBroker, tmp_path: Path
) -> None:
    properties = cluster.properties("file")
    with (
        short_tokens(cluster),
        registry(cluster, tmp_path, properties) as running,
        SchemaRegistryClient({"url": running.url}) as client,
    ):
        client.register_schema("a", Schema('"string"', "AVRO"))
        time.sleep(TOKEN_LIFETIME_S + 1)
        deadline = time.monotonic() + PATIENCE_S
        number = 0
        while True:
            number += 1
            try:
                client.register_schema(f"b{number}", Schema('"int"', "AVRO"))
                break
            except Exception:
                assert time.monotonic() < deadline, running.log()
                time.sleep(0.5)
        assert f"b{number}" in client.get_subjects()
