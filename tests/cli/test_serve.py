"""The options of `headrace serve`, before the broker starts."""

from pathlib import Path

import pytest

from headrace.cli.broker import serve
from headrace.cli.failures import Failure
from headrace.settings import Settings
from tests.cli.conftest import Run


def test_without_options_it_serves_this_machine_only() -> None:
    plan = serve.make_plan([], {})
    assert plan == serve.ServeOptions(
        {"listeners": "PLAINTEXT://127.0.0.1:9092"}, ("headrace-data",), None, "text", "info", 1
    )


def test_options_reach_the_plan() -> None:
    words = (
        "--data-dir /d --listen 0.0.0.0:19092 --advertise kafka.lan:9092 --node-id 3 "
        "--set num.partitions=6 --metrics 127.0.0.1:9180 --log-format json --log-level debug"
    )
    assert serve.make_plan(words.split(), {}) == serve.ServeOptions(
        settings={
            "num.partitions": "6",
            "headrace.metrics.address": "127.0.0.1:9180",
            "listeners": "PLAINTEXT://0.0.0.0:19092",
            "advertised.listeners": "PLAINTEXT://kafka.lan:9092",
        },
        data_dirs=("/d",),
        node_id=3,
        log_format="json",
        log_level="debug",
        brokers=1,
        assignments=("num.partitions=6",),
    )


def test_the_environment_stands_in_for_options_and_options_win() -> None:
    env = {"HEADRACE_DATA_DIR": "/env", "HEADRACE_LISTEN": "[::]:1234"}
    plan = serve.make_plan(["--data-dir=/option"], env)
    assert plan.data_dirs == ("/option",)
    assert plan.settings == {"listeners": "PLAINTEXT://[::]:1234"}


def test_set_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.hours=5\n")
    plan = serve.make_plan(["--config", str(file), "--set", "num.partitions=7"], {})
    del plan.settings["listeners"]
    assert plan.settings == {"num.partitions": "7", "log.retention.hours": "5"}


def test_several_disks_are_several_data_dirs() -> None:
    plan = serve.make_plan(["--data-dir", "/a", "--data-dir=/b"], {"HEADRACE_DATA_DIR": "/c,/d"})
    assert plan.data_dirs == ("/a", "/b")
    assert serve.make_plan([], {"HEADRACE_DATA_DIR": "/c,/d"}).data_dirs == ("/c", "/d")


def test_listeners_and_folders_come_from_a_stock_kafka_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\nnode.id=4\nlisteners=CONTROLLER://:9093,PLAINTEXT://:9095\n"
        "advertised.listeners=PLAINTEXT://example.org:9096\nlog.dirs=/data/one, /data/two\n"
    )
    plan = serve.make_plan(["--config", str(file)], {})
    [listener] = Settings.parse(plan.settings).listeners.all
    assert (listener.bind, listener.advertised) == (("0.0.0.0", 9095), ("example.org", 9096))
    assert (plan.data_dirs, plan.node_id) == (("/data/one", "/data/two"), 4)


def test_the_options_move_the_one_listener_of_the_file_and_keep_its_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=SSL://:9095\n")
    words = ["--config", str(file), "--listen", "127.0.0.1:1", "--advertise", "kafka.lan:2"]
    assert serve.make_plan(words, {}).settings == {
        "listeners": "SSL://127.0.0.1:1",
        "advertised.listeners": "SSL://kafka.lan:2",
    }


def test_one_address_for_several_listeners_is_bad_usage() -> None:
    words = ["--set", "listeners=PLAINTEXT://:9092,SSL://:9093", "--listen", "127.0.0.1:1"]
    with pytest.raises(Failure, match="PLAINTEXT, SSL"):
        serve.make_plan(words, {})


def test_toml_tables_become_dotted_names(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('"num.partitions" = 3\n[log]\nretention.hours = 24\ncleaner.enable = true\n')
    assert serve.make_plan(["--config", str(file)], {}).settings == {
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "num.partitions": "3",
        "log.retention.hours": "24",
        "log.cleaner.enable": "true",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--listen 9092", "--listen '9092'"),
        ("--listen host:99999", "HOST:PORT"),
        ("--advertise host:0", "--advertise"),
        ("--node-id one", "node id"),
        ("--set num.partitions", "num.partitions"),
        ("--set num.partitons=3", "did you mean num.partitions"),
        ("--log-level loud", "loud"),
        ("--lisen a:1", "did you mean --listen"),
        ("--listen", "HOST:PORT"),
        ("--config /nowhere/at/all.toml", "/nowhere/at/all.toml"),
    ],
)
def test_what_makes_no_sense_is_named_and_is_bad_usage(words: str, said: str) -> None:
    with pytest.raises(Failure) as caught:
        serve.make_plan(words.split(), {})
    assert caught.value.exit_code == 2
    assert said in caught.value.message


def test_an_unknown_setting_stops_the_broker_before_it_starts(here: Run) -> None:
    result = here("serve", "--set", "num.partition=3")
    assert result.code == 2
    assert "num.partition" in result.err


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_a_broker_does_not_start_without_the_protection_that_its_file_asks_for(
    here: Run, tmp_path: Path, brokers: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SASL_SSL://127.0.0.1:0\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "ssl.client.auth=required\n"
    )
    data = tmp_path / "data"
    result = here("serve", "--config", str(file), "--data-dir", str(data), "--brokers", brokers)
    assert result.code == 2
    assert "ssl.client.auth=required" in result.err
    assert not data.exists()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("zookeeper://127.0.0.1:port", "HOST:PORT,HOST:PORT/PATH"),
        ("zookeeper://no-such-host.invalid/headrace", "no-such-host.invalid cannot be resolved"),
        ("sqlite:/no/such/folder", "/no/such/folder"),
        ("somewhere", "headrace.metadata='somewhere'"),
    ],
)
def test_metadata_that_cannot_be_reached_stop_the_broker_with_one_line(
    here: Run, tmp_path: Path, address: str, said: str
) -> None:
    result = here(
        *("serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--metadata", address),
        *("--log-level", "error", "--set", "zookeeper.connection.timeout.ms=300"),
    )
    assert result.code == 1
    assert said in result.err
    assert result.err.startswith("headrace: cannot start: ")
    assert result.err.count("\n") == 1


def test_the_help_page_has_every_option_of_the_table(here: Run) -> None:
    page = here("serve", "--help").text
    for option in serve.OPTIONS:
        assert option.flag in page
        assert option.env in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--brokers 0", "from 1 to"),
        ("--brokers two", "from 1 to"),
        ("--brokers 2 --node-id 3", "--node-id"),
        ("--brokers 2 --metadata sqlite:/x", "--metadata"),
        ("--brokers 2 --data-dir /a --data-dir /b", "--data-dir"),
    ],
)
def test_brokers_that_cannot_be_started_together_are_refused(words: str, said: str) -> None:
    with pytest.raises(Failure, match=said):
        serve.start(words.split())
