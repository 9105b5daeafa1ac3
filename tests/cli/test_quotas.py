"""`headrace quotas`."""

from tests.cli.conftest import Run


def test_quotas_are_set_listed_and_removed(run: Run, topic: str) -> None:
    # The topic's name is used as a user's, so that tests do not disturb each other.
    who = ("--user", topic, "--client-id", "")
    limits = ("producer_byte_rate=1048576", "request_percentage=12.5")
    assert run("quotas", "set", *limits, *who, "--json").json() == {
        "entity": {"user": topic, "client-id": None},
        "set": {"producer_byte_rate": 1048576, "request_percentage": 12.5},
        "removed": [],
    }
    assert run("quotas", "list", "--user", topic, "--json").rows() == [
        {
            "entity": {"user": topic, "client-id": None},
            "quotas": {"producer_byte_rate": 1048576, "request_percentage": 12.5},
        }
    ]
    shown = run("quotas", "list").text
    assert topic in shown
    assert "all other client-ids" in shown
    assert "1048576" in shown
    assert run("quotas", "remove", "producer_byte_rate", "request_percentage", *who).code == 0
    assert run("quotas", "list", "--user", topic, "--json").rows() == []


def test_quotas_of_addresses_are_apart(run: Run) -> None:
    assert run("quotas", "set", "connection_creation_rate=1000", "--ip", "10.9.8.7").code == 0
    assert "10.9.8.7" in run("quotas", "list", "--ip", "10.9.8.7").text
    assert run("quotas", "remove", "connection_creation_rate", "--ip", "10.9.8.7").code == 0


def test_wrong_quotas_have_their_exit_codes(run: Run) -> None:
    assert run("quotas", "set", "producer_byte_rate=1").code == 2
    assert run("quotas", "set", "producer_byte_rate=fast", "--user", "a").code == 2
    assert run("quotas", "set", "producer_byte_rate=-1", "--user", "a").code == 1
    assert run("quotas", "set", "producer_byte_rate=1", "--ip", "10.0.0.7").code == 1
