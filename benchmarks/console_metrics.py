"""What metrics cost a broker: CPU time of small produces with `/metrics` scraped, and without.

Two brokers take turns, so that other work on the machine meets both. The counters themselves are
part of every broker (decision 0052); what is switched is the page, with all its optional metrics.
"""

import statistics
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import frames
from benchmarks.blaster import Load, blast
from benchmarks.console_figure import Figure
from benchmarks.processes import cpu_seconds
from headrace.testing.running import RunningBroker
from tests.support.ports import free_port

ROUNDS = 9
SECONDS = 2.0
SCRAPE_S = 5.0
CONNECTIONS = 50
PARTITIONS = 8


def metrics_cost(rounds: int = ROUNDS, seconds: float = SECONDS) -> Iterator[Figure]:
    """How much longer a small produce takes the broker with metrics, in percent."""
    port = free_port()
    on = {
        "headrace.metrics.address": f"127.0.0.1:{port}",
        "headrace.metrics.partitions": "true",
        "headrace.metrics.kafka.names": "true",
    }
    with (
        closing(RunningBroker()) as without,
        closing(RunningBroker(on)) as measured,
        _scraped(f"http://127.0.0.1:{port}/metrics"),
    ):
        for broker in (without, measured):
            _create(broker)
            _cpu_us(broker, seconds)
        ratios: list[float] = []
        for number in range(rounds):
            # Each of the two is the first one in every second round.
            order = (without, measured) if number % 2 else (measured, without)
            spent = {broker.pid: _cpu_us(broker, seconds) for broker in order}
            ratios.append(spent[measured.pid] / spent[without.pid])
    title = f"small produces with /metrics scraped every {SCRAPE_S:.0f} s, more CPU of the broker"
    yield Figure(title, (statistics.median(ratios) - 1) * 100, "%", 2)


def _create(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("small", PARTITIONS, 1)])["small"].result(60)


def _cpu_us(broker: RunningBroker, seconds: float) -> float:
    """CPU time of one produce of a record of 100 bytes."""
    load = Load(
        tuple(frames.produce("small", n, frames.batch(1, 100)) for n in range(PARTITIONS)),
        CONNECTIONS,
        error_at=frames.produce_error_at("small"),
    )
    before = cpu_seconds(broker.pid)
    done = blast(int(broker.bootstrap_servers.rpartition(":")[2]), load, seconds)
    return (cpu_seconds(broker.pid) - before) / done.all_requests * 1e6


@contextmanager
def _scraped(url: str) -> Iterator[None]:
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_S):
            with urllib.request.urlopen(url, timeout=60) as page:
                page.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    yield
    ended.set()
    thread.join()


if __name__ == "__main__":
    for figure in metrics_cost():
        print(f"{figure.title}: {figure.value:.2f} {figure.unit}, at most {figure.budget:g}")
