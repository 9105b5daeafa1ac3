"""What one large request does to everybody else: a canary's latency while it is worked on.

Run as `python -m benchmarks.large_requests [name ...]`. A part of a case's name selects it.
"""

import sys
import time

from headrace.testing.running import RunningBroker
from tests.support.large_requests import CASES, Canary, prepare, send_beside_a_canary

MANY = 100_000
TOPIC_PARTITIONS = 10_000


def _p99_ms(latencies_s: list[float]) -> float:
    ordered = sorted(latencies_s)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000


def main(wanted: list[str]) -> None:
    """Print a line for each case."""
    broker = RunningBroker({})
    try:
        prepare(broker, TOPIC_PARTITIONS)
        with Canary(broker.bootstrap_servers).running() as alone:
            time.sleep(3)
        print(f"canary alone: p99 {_p99_ms(alone.latencies_s):.1f} ms")
        print(f"{'':42} {'MB':>6} {'took s':>7} {'canary':>7} {'p99 ms':>7} {'max ms':>7}")
        for name, build in CASES.items():
            if wanted and not any(part.lower() in name.lower() for part in wanted):
                continue
            large = build(MANY)
            latencies_s, took = send_beside_a_canary(broker, large)
            if latencies_s:
                p99, most = _p99_ms(latencies_s), max(latencies_s) * 1000
            else:
                p99 = most = took * 1000
            print(
                f"{name:42} {len(large) / 1e6:6.1f} {took:7.2f} {len(latencies_s):7} "
                f"{p99:7.1f} {most:7.1f}", flush=True,
            )  # fmt: skip
    finally:
        broker.close()


if __name__ == "__main__":
    main(sys.argv[1:])
