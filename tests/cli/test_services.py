"""Settings of a service: from a file, from --set, from options."""

from pathlib import Path

import pytest

from headrace.cli import services
from headrace.cli.failures import Failure
from headrace.settings.service_table import REGISTRY_TABLE


def test_options_win_over_set_and_set_wins_over_the_file_and_the_file_over_defaults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(
        "bootstrap.servers=file:1\nkafkastore.topic=file\nlisteners=http://file:1\n"
        "shutdown.graceful.ms=1\n"
    )
    found = services.read_settings(
        REGISTRY_TABLE,
        str(file),
        ["kafkastore.topic=set", "listeners=http://set:2"],
        {"listeners": services.listener("[::1]:3"), "bootstrap.servers": None},
    )
    assert found.listen == ("::1", 3)
    assert found.text("kafkastore.topic") == "set"
    assert found.text("bootstrap.servers") == "file:1"
    assert found.integer("shutdown.graceful.ms") == 1
    assert found.integer("idle.timeout.ms") == 60_000


def test_a_toml_file_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "registry.toml"
    file.write_text('kafkastore.topic = "t"\nidle.timeout.ms = 5000\n')
    found = services.read_settings(REGISTRY_TABLE, str(file), None, {})
    assert (found.text("kafkastore.topic"), found.integer("idle.timeout.ms")) == ("t", 5000)


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("kafkastore.topics=x", "did you mean kafkastore.topic"),
        ("num.partitions=3", "no such setting of this service"),
        ("listeners=ftp://127.0.0.1:8081", "expected http://HOST:PORT"),
        ("listeners=http://127.0.0.1:65536", "expected http://HOST:PORT"),
        ("listeners=127.0.0.1:8081", "expected http://HOST:PORT"),
        ("idle.timeout.ms=0", "expected a number of at least 1"),
        ("idle.timeout.ms", "expected name=value"),
    ],
)
def test_a_setting_that_the_service_does_not_have_or_accept_is_an_error(
    assignment: str, told: str
) -> None:
    with pytest.raises(Failure) as refused:
        services.read_settings(REGISTRY_TABLE, None, [assignment], {})
    assert told in refused.value.message
    assert refused.value.exit_code == 2


def test_an_error_in_a_file_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("# a comment\nssl.keystore.locations=/k\n")
    with pytest.raises(Failure) as refused:
        services.read_settings(REGISTRY_TABLE, str(file), None, {})
    assert refused.value.message.startswith(f"{file}:2: ssl.keystore.locations: no such setting")


def test_an_address_without_a_scheme_is_one_for_https_if_there_is_a_certificate() -> None:
    options = {"listeners": services.listener("h:1")}
    plain = services.read_settings(REGISTRY_TABLE, None, None, options)
    assert plain.text("listeners") == "http://h:1"
    secured = services.read_settings(
        REGISTRY_TABLE, None, ["ssl.keystore.location=/k.pem"], options
    )
    assert secured.text("listeners") == "https://h:1"
    options = {"listeners": services.listener("https://h:1")}
    assert services.read_settings(REGISTRY_TABLE, None, None, options).tls


@pytest.mark.parametrize("listen", ["8081", ":8081", "host:", "host:65536", "host:http"])
def test_an_address_that_is_not_host_and_port_is_an_error(listen: str) -> None:
    with pytest.raises(Failure) as refused:
        services.listener(listen)
    assert "is not HOST:PORT" in refused.value.message
