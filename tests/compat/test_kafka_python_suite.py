"""kafka-python's own integration tests against our broker: `compat/kafka-python`."""

import subprocess
from pathlib import Path

import pytest

from tests.compat.allow_list import complaints, read_allowed, read_junit
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import ROOT
from tests.support.ports import free_port

HERE = ROOT / "compat" / "kafka-python"
COULD_NOT_FETCH = 75
# What the suite takes for granted: its own brokers are set up so.
SETTINGS = {
    "node.id": "0",
    "num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_kafka_pythons_own_tests_match_the_allow_list(tmp_path: Path) -> None:
    port = free_port()
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    results = tmp_path / "results.xml"
    with HeadraceBroker(tmp_path / "broker", port=port, settings=settings) as broker:
        done = subprocess.run(
            [HERE / "run.sh", broker.bootstrap, results, "--tb=short"],
            capture_output=True,
            text=True,
            timeout=380,
            check=False,
        )
    if done.returncode == COULD_NOT_FETCH:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    differences = complaints(read_allowed(HERE / "tests.allow"), read_junit(results))
    assert not differences, "\n".join(differences) + "\n\n" + done.stdout[-20_000:]
