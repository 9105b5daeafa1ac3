"""A planted error is replayed, compared, switched and rolled back while orders are produced.

Version 1 forgets that refunds are negative. Kills of the Spark driver or of the server happen in
chosen phases; statements that fail because of them are repeated.
"""

import json
import random
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from confluent_kafka import Producer

from tests.sql.sql_process import WITHIN_S, SqlProcess, wait
from tests.support.committed import committed_records, committed_values

CUSTOMERS = [f"c{number:02}" for number in range(30)]
REFUNDED = ["c03", "c17", "c29"]
"""The only customers with refunds: exactly their rows are wrong."""
SELECT = (
    "SELECT customer, COUNT(*) AS orders, SUM(CASE WHEN kind = 'refund' THEN {} ELSE total END) "
    "AS total FROM {} GROUP BY customer"
)


class OrderProducer:
    """Produces orders in a thread until it is stopped, and knows what it has produced."""

    def __init__(self, bootstrap: str, topic: str, a_second: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic, self._a_second = topic, a_second
        self._random = random.Random(7)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.counts: dict[str, int] = defaultdict(int)
        self.sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def produce(self, count: int) -> None:
        for _ in range(count):
            customer = self._random.choice(CUSTOMERS)
            total = float(self._random.randrange(1, 100))
            is_refund = customer in REFUNDED and self._random.random() < 0.3
            self.counts[customer] += 1
            self.sums[customer][0] += total
            self.sums[customer][1] += -total if is_refund else total
            kind = "refund" if is_refund else "sale"
            value = json.dumps({"customer": customer, "kind": kind, "total": total})
            key = struct.pack(">i", self._random.randrange(1 << 30))
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
        assert self._producer.flush(WITHIN_S) == 0

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            self.produce(self._a_second // 10)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def expected(self, version: int) -> list[list[object]]:
        """The rows of the table as this version computes it."""
        return [
            [customer, count, self.sums[customer][version - 1]]
            for customer, count in sorted(self.counts.items())
        ]


class ReplayStory:
    """The statements of a replay, each of which may be hit by a kill."""

    def __init__(self, server: SqlProcess, bootstrap: str, service: str, name: str) -> None:
        self.server, self.bootstrap = server, bootstrap
        self.command_topic = f"_headrace_sql_{service}"
        self.orders, self.totals, self.replay = name, f"{name}_totals", f"{name}_v2"

    def begin(self) -> None:
        self.server.sql(
            f"CREATE STREAM {self.orders} (id INT KEY, customer VARCHAR, kind VARCHAR, total "
            f"DOUBLE) WITH (kafka_topic='{self.orders}', value_format='json', partitions=2);"
            f"CREATE TABLE {self.totals} AS {SELECT.format('total', self.orders)};"
        )

    def create_replay(self) -> None:
        select = SELECT.format("-total", self.orders)
        self.server.sql(f"CREATE REPLAY {self.replay} OF {self.totals} FROM EARLIEST AS {select};")

    def rows(self, name: str) -> list[list[Any]]:
        return sorted(self.server.rows(f"SELECT customer, orders, total FROM {name};"))

    def phase(self) -> str:
        (found,) = self.server.sql(f"DESCRIBE REPLAY {self.replay};")
        phase: str = found["replayDescription"]["phase"]
        return phase

    # ------------------------------------------------------------------------------------- kills

    def kill(self, what: str) -> None:
        if what == "driver":
            self.server.kill_driver()
        elif what == "server":
            self.server.kill()
            self.server.start()

    def run(self, statement: str, kill: str = "", when: Callable[[], bool] | None = None) -> Any:
        """The result of a statement, repeated until it succeeds, with a kill on its way."""
        results: list[Any] = []
        thread = threading.Thread(target=self._repeat, args=(statement, results))
        thread.start()
        if kill:
            if when is not None:
                wait(lambda: when() or bool(results), bool)
            self.kill(kill)
        thread.join(WITHIN_S)
        assert results, f"{statement} did not succeed"
        return results[0]

    def _repeat(self, statement: str, results: list[Any]) -> None:
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            try:
                response = self.server.http.post("/ksql", json={"ksql": statement})
                if response.status_code == 200:
                    results.append(response.json()[0])
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.3)

    def has_phase(self, phase: str, switches: int) -> Callable[[], bool]:
        """Whether the command topic has had a phase of the replay, after so many merges."""

        def look() -> bool:
            for value in committed_values(self.bootstrap, self.command_topic):
                record = json.loads(value) if value else {}
                found = (record.get("name"), record.get("phase"), record.get("switches"))
                if found == (self.replay, phase, switches):
                    return True
            return False

        return look

    # ------------------------------------------------------------------------------------- audit

    def assert_planted(self, comparison: Mapping[str, Any]) -> None:
        assert not comparison["equal"]
        assert (comparison["onlyLeft"], comparison["onlyRight"]) == (0, 0), comparison
        assert comparison["leftRows"] == comparison["rightRows"] == len(CUSTOMERS)
        found = [each["key"]["customer"] for each in comparison["examples"]["different"]]
        assert found == REFUNDED, "exactly the planted rows differ"
        assert [each["column"] for each in comparison["columns"]] == ["total"]

    def audit(self, topic: str) -> None:
        """Each change is in a topic once, and no version goes back."""
        last: dict[bytes, tuple[int, float]] = {}
        for key, value in committed_records(self.bootstrap, topic):
            row = json.loads(value)
            found = (row["orders"], row["total"])
            if key in last:
                assert found != last[key], f"{topic}: {key!r} has {found} twice"
                assert found[0] >= last[key][0], f"{topic}: {key!r} goes back to {found}"
            last[key] = found
