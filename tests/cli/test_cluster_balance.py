"""`headrace cluster balance` and `drain`, and what describe, /metrics and /health say meanwhile."""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.cli.conftest import Result, Run
from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster import PATIENCE_S, RunningCluster
from tests.support.ports import free_port
from tests.support.stores import eventually

Json = dict[str, Any]


@pytest.fixture(scope="module")
def ports() -> dict[int, int]:
    return {number: free_port() for number in (1, 2, 3)}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, ports: dict[int, int]
) -> Iterator[RunningCluster]:
    pages = {
        number: {"headrace.metrics.address": f"127.0.0.1:{port}"} for number, port in ports.items()
    }
    folder = tmp_path_factory.mktemp("balance") / "metadata"
    # These tests count topics and who is in sync. A client of another test, whose broker had this
    # port, makes no topic here, and nobody is put out of sync for being slow.
    countable = {"auto.create.topics.enable": "false", "replica.lag.time.max.ms": "60000"}
    with RunningCluster(folder, 3, countable, each=pages) as running:
        yield running


@pytest.fixture
def ask(here: Run, cluster: RunningCluster) -> Run:
    def run(*words: str) -> Result:
        return here(*words, "--bootstrap", cluster.bootstrap_servers)

    return run


def described(ask: Run) -> Json:
    return ask("cluster", "describe", "--json").document()


def tells(ask: Run, what: str, wanted: list[str]) -> bool:
    """Whether it is so described; a broker that dies meanwhile may fail the command."""
    done = ask("cluster", "describe", "--json")
    return done.code == 0 and done.document()[what] == wanted


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(port: int, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page(port, "/metrics")[1], re.M)
    assert found, name
    return float(found[1])


def wait_for_sum(ports: Iterable[int], name: str, wanted: float) -> None:
    """A broker counts when it hears of a change, and some hear of it later than others."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(found := [metric(port, name) for port in ports]) != wanted:
        assert time.monotonic() < deadline, (name, found)
        time.sleep(0.05)


def shares(found: Json, what: str) -> dict[int, int]:
    return {broker["id"]: broker[what] for broker in found["brokers"]}


def test_trouble_is_seen_in_describe_metrics_and_health(
    ask: Run, cluster: RunningCluster, ports: dict[int, int]
) -> None:
    cluster.create("pairs", 3, 2, min_insync_replicas="2")
    cluster.create("single", 3, 1)
    before = described(ask)
    for what in ("under_replicated", "under_min_isr", "offline", "moving", "absent_brokers"):
        assert before[what] == [], what
    assert {port: page(port, "/health")[0] for port in ports.values()} == dict.fromkeys(
        ports.values(), 200
    )
    for port in ports.values():  # each was asked while the topics settled
        asked = re.search(r'^headrace_requests_total\{api="Metadata"\} (\d+)$',
                          page(port, "/metrics")[1], re.M)  # fmt: skip
        assert asked, port
        assert int(asked[1]) > 0
    wait_for_sum(ports.values(), "headrace_is_controller", 1)
    wait_for_sum(ports.values(), "headrace_leaders", 6)
    wait_for_sum(ports.values(), "headrace_replicas", 9)
    victim = cluster.leader("single")
    cluster.brokers[victim].kill()
    eventually(lambda: tells(ask, "offline", ["single-0"]), "single-0 is offline")
    found = described(ask)
    assert found["absent_brokers"] == [victim]
    assert len(found["under_replicated"]) == 3  # two of pairs, and single-0
    assert len(found["under_min_isr"]) == 3
    shown = ask("cluster", "describe").text
    assert "single-0" in shown
    assert f"{victim} (they hold replicas)" in shown
    rest = [port for number, port in ports.items() if number != victim]
    wait_for_sum(rest, "headrace_offline_partitions", 1)
    wait_for_sum(rest, "headrace_under_replicated_partitions", 2)
    wait_for_sum(rest, "headrace_under_min_isr_partitions", 2)
    wait_for_sum(rest, "headrace_isr_shrinks_total", 2)
    assert [page(port, "/health")[0] for port in rest] == [200, 200]
    cluster.brokers[victim].start()
    eventually(lambda: tells(ask, "under_replicated", []), "all are in sync again")
    name = "headrace_isr_expands_total"
    eventually(lambda: sum(metric(port, name) for port in rest) >= 2, "they were let in again")
    wait_for_sum(rest, "headrace_replica_lag_records_max", 0)


def test_a_partition_without_a_leader_makes_those_unhealthy_who_have_a_replica(
    ask: Run, cluster: RunningCluster, ports: dict[int, int]
) -> None:
    cluster.create("elsewhere", 1, 2)
    (part,) = cluster.topic("elsewhere").partitions.values()
    last, first = part.leader, next(one for one in part.replicas if one != part.leader)
    cluster.brokers[first].kill()
    cluster.wait_for("elsewhere", lambda found: list(found.partitions[0].isrs) == [last])
    cluster.brokers[last].kill()
    cluster.brokers[first].start()  # alive, but it may lack what the other one has
    eventually(lambda: page(ports[first], "/health")[0] == 503, "the broker is not healthy")
    problems = json.loads(page(ports[first], "/health")[1])["problems"]
    assert any("no leader" in problem for problem in problems)
    cluster.brokers[last].start()
    eventually(lambda: page(ports[first], "/health")[0] == 200, "the broker is healthy")
    eventually(lambda: tells(ask, "under_replicated", []), "all are in sync again")


def test_a_new_broker_is_put_to_use_and_a_drained_one_is_empty(
    ask: Run, cluster: RunningCluster
) -> None:
    cluster.create("many", 8, 2)
    new = cluster.add()
    plan = ask("cluster", "balance", "--dry-run", "--json").document()
    assert plan["done"] is False
    moves = plan["moves"]
    assert isinstance(moves, list)
    assert any(new in move["to"] for move in moves)
    assert shares(described(ask), "replicas")[new] == 0
    refused = ask("cluster", "balance")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = ask("cluster", "balance", "--yes")
    assert done.code == 0, done.err
    assert f"broker {new} 0" in done.text
    after = described(ask)
    for what in ("replicas", "leaders"):
        counts = shares(after, what).values()
        assert max(counts) - min(counts) <= 1, (what, counts)
    assert after["moving"] == after["under_replicated"] == []
    assert "nothing to do" in ask("cluster", "balance", "--yes").text
    drained = ask("cluster", "drain", str(new), "--yes", "--json").document()
    assert (drained["done"], drained["failures"]) == (True, [])
    left = described(ask)
    assert (shares(left, "replicas")[new], shares(left, "leaders")[new]) == (0, 0)
    eventually(
        lambda: not list(cluster.brokers[new].data_dir.glob("many-*")), "the folders are gone"
    )
    assert ask("cluster", "drain", "77").code == 4


def test_the_replication_factor_is_raised_and_lowered(ask: Run, cluster: RunningCluster) -> None:
    cluster.create("grows", 2, 1)
    leaders = [part.leader for part in cluster.topic("grows").partitions.values()]
    assert ask("topics", "alter", "grows", "--replication-factor", "3").code == 0
    grown = cluster.topic("grows").partitions.values()
    assert [len(part.isrs) for part in grown] == [3, 3]
    assert [part.leader for part in grown] == leaders
    too_many = ask("topics", "alter", "grows", "--replication-factor", "9")
    assert (too_many.code, "needs 9 brokers" in too_many.err) == (1, True)
    assert ask("topics", "alter", "grows", "--replication-factor", "2").code == 0
    assert [len(part.replicas) for part in cluster.topic("grows").partitions.values()] == [2, 2]
    both = ask("topics", "alter", "grows", "-r", "1", "--set", "retention.ms=1")
    assert both.code == 2


@pytest.mark.java
def test_apache_kafka_is_described_and_balanced_likewise(
    here: Run, apache_kafka: ApacheKafka
) -> None:
    where = ("--bootstrap", apache_kafka.bootstrap)
    assert here("topics", "create", "likewise", "--partitions", "2", *where).code == 0
    found: Json = here("cluster", "describe", "--json", *where).document()
    assert found["under_replicated"] == found["offline"] == []
    assert found["brokers"][0]["leaders"] >= 2
    assert "nothing to do" in here("cluster", "balance", "--yes", *where).text
    assert "nothing to do" in here("topics", "alter", "likewise", "-r", "1", *where).text
    refused = here("cluster", "drain", str(found["brokers"][0]["id"]), "--yes", *where)
    assert (refused.code, "replication factor 1" in refused.err) == (1, True)
