"""How the command line finds a cluster."""

from pathlib import Path

import pytest

from headrace.cli.client import Cluster, parse_address
from headrace.cli.failures import Failure
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


def test_only_plain_text_clusters_are_spoken_to_directly() -> None:
    assert Cluster("a:1").plaintext
    assert not Cluster("a:1", {"security.protocol": "sasl_ssl"}).plaintext


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
