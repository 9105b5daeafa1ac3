"""What one large request does to everybody else: a canary's latency while it is worked on.

The last two columns are the processor time that the broker used while the canary waited, in ms. On
a busy machine they tell more than the latency.

Run as `python -m benchmarks.large_requests [name ...]`. A part of a case's name selects it.
"""

import sys
import time

from headrace.testing.running import RunningBroker
from tests.support.large_requests import CASES, Canary, prepare, send_beside_a_canary

MANY = 100_000
TOPIC_PARTITIONS = 10_000
COLUMNS = ("MB", "took s", "answers", "p99 ms", "max ms", "p99 cpu", "max cpu")


def _p99_ms(latencies_s: list[float]) -> float:
    ordered = sorted(latencies_s)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000


def main(wanted: list[str]) -> None:
    """Print a line for each case."""
    broker = RunningBroker({})
    try:
        prepare(broker, TOPIC_PARTITIONS)
        with Canary(broker).running() as alone:
            time.sleep(3)
        print(f"canary alone: p99 {_p99_ms(alone.latencies_s):.1f} ms")
        print(f"{'':42}" + "".join(f"{title:>9}" for title in COLUMNS))
        for name, build in CASES.items():
            if wanted and not any(part.lower() in name.lower() for part in wanted):
                continue
            large = build(MANY)
            canary, took = send_beside_a_canary(broker, large)
            waits, used = canary.latencies_s or [took], canary.cpu_s or [took]
            figures = [
                len(large) / 1e6, took, len(waits), _p99_ms(waits), max(waits) * 1000,
                _p99_ms(used), max(used) * 1000,
            ]  # fmt: skip
            print(f"{name:42}" + "".join(f"{one:9.1f}" for one in figures), flush=True)
    finally:
        broker.close()


if __name__ == "__main__":
    main(sys.argv[1:])
