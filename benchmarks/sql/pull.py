"""python -m benchmarks.sql.pull: pull queries by key over HTTP, and how fresh their answers are.

The server runs as a process of its own; Spark is not started, because there is no query that runs
continuously. The CPU time is that of the server alone.
"""

import argparse
import itertools
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.processes import busy_cores, cpu_seconds, machine, resident_mb
from benchmarks.registry import load
from tests.support.headrace_broker import HeadraceBroker
from tests.support.topics import create_topic

TOPIC = "totals"
CREATE = (
    "CREATE TABLE totals (name VARCHAR PRIMARY KEY, orders BIGINT, amount DECIMAL(12,2), "
    "place STRUCT<city VARCHAR, street VARCHAR>) "
    f"WITH (kafka_topic='{TOPIC}', value_format='json', key_format='kafka');"
)
BY_KEY = "SELECT name, orders, amount, place->city FROM totals WHERE name = '{}';"


def value(number: int) -> bytes:
    place = {"city": f"city {number % 100}", "street": f"street {number % 1000}"}
    return json.dumps({"orders": number, "amount": number / 100, "place": place}).encode()


def fill(bootstrap: str, keys: int) -> None:
    create_topic(bootstrap, TOPIC, 4, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(keys):
        producer.produce(TOPIC, value(number), f"name-{number}")
        producer.poll(0)
    assert producer.flush(60) == 0


def serve(bootstrap: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """The process of the server and its port."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "headrace.cli", "sql", "serve", "--bootstrap", bootstrap),
            *("--listen", "127.0.0.1:0", "--folder", str(folder)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"ready on 127\.0\.0\.1:(\d+)", line):
            return process, int(found[1])
    raise RuntimeError("the server has ended")


def post(port: int, path: str, body: dict[str, object]) -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: bytes = answer.read()
        return found


def lookups(statements: Iterator[str]) -> Iterator[bytes]:
    for statement in statements:
        body = json.dumps({"sql": statement}).encode()
        yield load.request("POST", "/query-stream", body)


def by_key(keys: int) -> Iterator[str]:
    chosen = random.Random(7)
    while True:
        yield BY_KEY.format(f"name-{chosen.randrange(keys)}")


def freshness(bootstrap: str, port: int, keys: int, times: int) -> list[float]:
    """Milliseconds from the acknowledgement of a record until its value is in an answer."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    found = []
    for number in range(times):
        wanted = keys + number
        producer.produce(TOPIC, value(wanted), "name-fresh")
        assert producer.flush(60) == 0
        began = time.perf_counter()
        while f",{wanted},".encode() not in post(
            port, "/query-stream", {"sql": BY_KEY.format("name-fresh")}
        ):
            pass
        found.append((time.perf_counter() - began) * 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--fresh", type=int, default=50)
    options = parser.parse_args()
    print(f"{machine()}; {busy_cores():.1f} cores busy with other work")
    with tempfile.TemporaryDirectory() as name, HeadraceBroker(Path(name) / "broker") as broker:
        fill(broker.bootstrap, options.keys)
        process, port = serve(broker.bootstrap, Path(name) / "sql")
        try:
            post(port, "/ksql", {"ksql": CREATE})
            began, cpu = time.perf_counter(), cpu_seconds(process.pid)
            post(port, "/query-stream", {"sql": BY_KEY.format("name-0")})
            loaded, used = time.perf_counter() - began, cpu_seconds(process.pid) - cpu
            print(
                f"load of {options.keys} keys: {loaded:.2f} s, "
                f"{options.keys / used:,.0f} rows a CPU second"
            )
            load.run(port, lookups(itertools.islice(by_key(options.keys), 100_000)), 1)
            cpu = cpu_seconds(process.pid)
            began = time.perf_counter()
            rate = load.run(port, lookups(by_key(options.keys)), options.seconds)
            used = cpu_seconds(process.pid) - cpu
            answers = rate.per_second * (time.perf_counter() - began)
            print(
                f"by key: {rate.per_second:,.0f}/s, {answers / used:,.0f} a CPU second, "
                f"p50 {rate.p50_ms:.2f} ms, p99 {rate.p99_ms:.2f} ms"
            )
            fresh = freshness(broker.bootstrap, port, options.keys, options.fresh)
            print(
                f"fresh after: p50 {statistics.median(fresh):.1f} ms, most {max(fresh):.1f} ms; "
                f"memory {resident_mb(process.pid):.0f} MB"
            )
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    main()
