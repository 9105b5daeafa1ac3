"""How the command line finds a cluster."""

from pathlib import Path

import pytest

import headrace.cli
from headrace.admin.topics import create_topic
from headrace.cli.client import (
    ClusterOptions,
    checked_properties,
    open_client,
    parse_address,
    refusal,
    translated,
)
from headrace.cli.failures import Failure
from headrace.client.errors import error_of
from headrace.testing.plugin import BrokerFactory
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1234", ("localhost", 1234)),
        ("broker", ("broker", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_addresses_may_leave_out_the_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["host:", "host:0", "host:65536", "host:kafka"])
def test_what_is_no_address_is_bad_usage(text: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_address(text)
    assert caught.value.exit_code == 2


def test_the_admin_client_gets_the_security_properties_of_the_file() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
    }
    security = open_client(ClusterOptions("a:1", properties)).config.security
    assert (security.tls, security.login, security.mechanism) == (True, True, "SCRAM-SHA-512")
    assert (security.username, security.ca_file) == ("alice", "ca.pem")


def test_properties_for_records_are_no_error_for_the_admin_client() -> None:
    assert checked_properties({"linger.ms": "5", "client.id": "me"}) == {"client.id": "me"}


@pytest.mark.parametrize(
    "name", ["ssl.ca.pem", "sasl.oauthbearer.config", "enable.ssl.certificate.verification"]
)
def test_a_security_property_without_effect_is_refused(name: str) -> None:
    with pytest.raises(Failure, match=name) as caught:
        checked_properties({"security.protocol": "SASL_SSL", name: "x"})
    assert caught.value.exit_code == 2


def test_a_refusal_is_the_broker_s_message_with_its_subject_once() -> None:
    exists = error_of(36, "topic 't'", "Topic 't' already exists.")
    assert refusal(exists).message == "topic 't' already exists."
    bad = error_of(40, "topic 't'", "Unknown topic config name: x")
    assert refusal(bad).message == "topic 't': unknown topic config name: x"
    assert refusal(bad).code == "INVALID_CONFIG"


def test_an_advertised_address_that_cannot_be_reached_is_named(
    headrace_factory: BrokerFactory,
) -> None:
    broker = headrace_factory({"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    cluster = ClusterOptions(broker.bootstrap_servers)
    with (
        pytest.raises(Failure, match=r"advertises 127\.0\.0\.1:1, .* refused") as caught,
        translated(cluster),
        open_client(cluster, 0.5) as connected,
    ):
        create_topic(connected, "t")
    assert caught.value.exit_code == 3


def test_no_command_uses_librdkafka_s_admin_client() -> None:
    modules = Path(headrace.cli.__file__).parent.rglob("*.py")
    assert [path.name for path in modules if "confluent_kafka.admin" in path.read_text()] == []


def test_one_of_several_bootstrap_addresses_is_enough(run: Run, bootstrap: str) -> None:
    assert run("topics", "list", "--bootstrap", f"127.0.0.1:1,{bootstrap}").code == 0


def test_a_client_config_file_reaches_the_client(run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# for the library\nmessage.max.bytes=2000\n")
    result = run("produce", topic, "--client-config", str(file), stdin=b"x" * 3000 + b"\n")
    assert result.code == 1
    assert "too large" in result.err
    file.write_text("no.such.property=1\n")
    assert run("topics", "list", "--client-config", str(file)).code == 2
    assert run("topics", "list", "--client-config", str(tmp_path / "none")).code == 2
