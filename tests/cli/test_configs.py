"""`headrace configs`."""

from tests.cli.conftest import Run


def _broker(run: Run) -> str:
    brokers = run("cluster", "describe", "--json").document()["brokers"]
    assert isinstance(brokers, list)
    return str(brokers[0]["id"])


def test_changed_settings_are_shown_with_their_source(run: Run, topic: str) -> None:
    assert run("configs", "set", "topic", topic, "--set", "retention.ms=90000").code == 0
    rows = run("configs", "describe", "topic", topic, "--json").rows()
    ours = [row for row in rows if row["source"] == "topic"]
    assert ours == [
        {
            "name": "retention.ms",
            "value": "90000",
            "source": "topic",
            "read_only": False,
            "sensitive": False,
        }
    ]
    assert "retention.ms" in run("configs", "describe", "topic", topic).text


def test_all_shows_defaults_too_and_name_picks_one(run: Run, topic: str) -> None:
    rows = run("configs", "describe", "topic", topic, "--all", "--json").rows()
    values = {row["name"]: (row["value"], row["source"]) for row in rows}
    assert values["cleanup.policy"] == ("delete", "default")
    assert len(values) > 15
    one = run("configs", "describe", "topic", topic, "--name", "cleanup.policy", "--json").rows()
    assert [row["name"] for row in one] == ["cleanup.policy"]
    assert run("configs", "describe", "topic", topic, "--name", "cleanup.polcy").code == 4


def test_unset_goes_back_to_the_default(run: Run, topic: str) -> None:
    run("configs", "set", "topic", topic, "--set", "segment.ms=90000")
    assert run("configs", "set", "topic", topic, "--unset", "segment.ms", "--json").json() == {
        "topic": topic,
        "set": {},
        "unset": ["segment.ms"],
    }
    rows = run("configs", "describe", "topic", topic, "--json").rows()
    assert all(row["name"] != "segment.ms" for row in rows)


def test_broker_settings_can_be_read(run: Run) -> None:
    rows = run("configs", "describe", "broker", _broker(run), "--all", "--json").rows()
    assert {"num.partitions", "log.retention.ms"} <= {row["name"] for row in rows}


def test_wrong_names_have_their_exit_codes(run: Run, topic: str) -> None:
    assert run("configs", "describe", "topic", topic + "-nope").code == 4
    assert run("configs", "describe", "broker", "4711").code == 4
    assert run("configs", "describe", "planet", "earth").code == 2
    assert run("configs", "set", "topic", topic).code == 2
    assert run("configs", "set", "topic", topic, "--set", "no.such.thing=1").code == 1
