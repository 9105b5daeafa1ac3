"""`/health` of a worker."""

from pathlib import Path

from tests.connect.rest.test_connectors_api import eventually
from tests.connect.running import running_connect
from tests.support.headrace_broker import HeadraceBroker


def test_a_worker_is_starting_until_it_has_joined_its_group(tmp_path: Path) -> None:
    """Kafka's sentences of KIP-1017."""
    # The coordinator waits so long for more members before it assigns slots.
    settings = {"group.initial.rebalance.delay.ms": "6000"}
    with (
        HeadraceBroker(tmp_path, settings=settings) as broker,
        running_connect(broker.bootstrap) as worker,
    ):
        starting = worker.http.get("/health")
        assert starting.status_code == 503
        assert starting.json() == {
            "status": "starting",
            "message": "Worker is still starting up.",
        }
        assert worker.http.get("/health/ready").status_code == 503
        assert worker.http.get("/connectors").json() == []
        eventually(lambda: worker.http.get("/health").status_code == 200)
        assert worker.http.get("/health").json()["status"] == "healthy"
        assert worker.http.get("/health/ready").status_code == 200
