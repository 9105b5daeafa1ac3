"""Views of tables in SQLite, fed by their topics."""

import asyncio
import dataclasses
import sqlite3
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import ErrorCode
from headrace.sql.sources import SqlSource, Window
from headrace.sql.views.store import ViewBehind
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.sql.records.rows import columns
from tests.sql.views.tables import (
    TIMEOUT_S,
    opened,
    produce,
    reached,
    rows,
    table,
    transactional,
    until,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import recreate_topic

BASIC = "k string key, n bigint"


def test_a_view_has_the_last_row_of_each_key(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC, partitions=2)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}'), (b"b", b'{"n":2}'), (b"a", b'{"n":3}')])
    produce(bootstrap, of.topic, [(b"c", b'{"n":9223372036854775807}'), (b"d", b"{}")], 1)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store) == [
                ("a", 3, 1000, 0, 2),
                ("b", 2, 1000, 0, 1),
                ("c", 2**63 - 1, 1000, 1, 0),
                ("d", None, 1000, 1, 1),
            ]
            produce(bootstrap, of.topic, [(b"b", None), (b"a", b'{"n":4}'), (b"e", None)])
            await reached(stores, of)
            assert rows(store, "k, n") == [("a", 4), ("c", 2**63 - 1), ("d", None)]
            status = store.status()
            assert (status.positions, status.ends, status.lag) == ({0: 6, 1: 2}, {0: 6, 1: 2}, 0)
            assert (status.bad_records, status.problem) == (0, None)

    asyncio.run(run())


def test_a_view_goes_on_where_it_was_after_a_restart(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])

    async def run(marked: bool) -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            if marked:
                # A row that no record has: it stays if the topic is not read from its beginning.
                with sqlite3.connect(store.path) as connection:
                    connection.execute("INSERT INTO rows VALUES ('mark', 0, 0, 0, 0)")
                connection.close()
            else:
                assert rows(store, "k, n") == [("a", 1), ("b", 2), ("mark", 0)]

    asyncio.run(run(True))
    produce(bootstrap, of.topic, [(b"b", b'{"n":2}')])
    asyncio.run(run(False))


def test_a_view_is_built_again_if_its_table_is_defined_otherwise(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    first = table(bootstrap, BASIC)
    produce(bootstrap, first.topic, [(b"a", b'{"n":1,"m":"x"}')])
    second = dataclasses.replace(first, columns=columns("k string key, m string"))

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            old = await reached(stores, first)
            new = await reached(stores, second)
            assert stores.get(first) is None
            assert stores.get(second) is new
            assert rows(new, "k, m") == [("a", "x")]
            assert not old.path.exists()
            await stores.remove(second.name)

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_a_view_is_built_again_if_its_topic_was_created_again(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}'), (b"b", b'{"n":2}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            recreate_topic(bootstrap, of.topic)
            produce(bootstrap, of.topic, [(b"c", b'{"n":3}')] * 5)
            await until(lambda: rows(store, "k, n") == [("c", 3)])

    asyncio.run(run())
    # And while nobody follows it.
    recreate_topic(bootstrap, of.topic)
    produce(bootstrap, of.topic, [(b"d", b'{"n":4}')] * 9)

    async def again() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            assert rows(await reached(stores, of), "k, n") == [("d", 4)]

    asyncio.run(again())


def test_a_damaged_file_is_built_again(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])

    async def run(damage: bool) -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "k, n") == [("a", 1)]
        if damage:
            store.path.write_bytes(b"not a database at all" * 1000)

    asyncio.run(run(True))
    asyncio.run(run(False))


def test_only_committed_records_are_in_a_view(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    aborting, committing = transactional(bootstrap), transactional(bootstrap)
    aborting.begin_transaction()
    aborting.produce(of.topic, b'{"n":1}', b"a")
    aborting.flush(TIMEOUT_S)
    committing.begin_transaction()
    committing.produce(of.topic, b'{"n":2}', b"b")
    committing.flush(TIMEOUT_S)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "k, n") == []
            committing.commit_transaction(TIMEOUT_S)
            aborting.abort_transaction(TIMEOUT_S)
            await until(lambda: store.status().positions == {0: 4})
            assert rows(store, "k, n") == [("b", 2)]

    asyncio.run(run())


def test_records_that_are_no_rows_are_counted_and_others_are_read(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    bad = [(b"a", b"{"), (b"a", b'{"n":"x"}'), (None, b'{"n":1}')]
    produce(bootstrap, of.topic, [*bad, (b"b", b'{"n":2}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "k, n") == [("b", 2)]
            assert store.status().bad_records == 2

    asyncio.run(run())


def test_a_table_with_a_window_has_a_row_for_each_window(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC, window=Window("TUMBLING", 10))
    sessions = dataclasses.replace(of, name=f"{of.name}_s", window=Window("SESSION", None))
    produce(bootstrap, of.topic, [(b"a" + number(5), b'{"n":1}'), (b"a" + number(15), b'{"n":2}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            shown = "k, WINDOWSTART, WINDOWEND, n"
            assert rows(store, shown) == [("a", 5, 15, 1), ("a", 15, 25, 2)]
            produce(bootstrap, of.topic, [(b"a" + number(5), None)])
            await reached(stores, of)
            assert rows(store, shown) == [("a", 15, 25, 2)]
            # The same bytes as sessions, of which the first two have no end.
            produce(bootstrap, of.topic, [(b"s" + number(9) + number(3), b'{"n":3}')])
            assert rows(await reached(stores, sessions), shown) == [("s", 3, 9, 3)]

    asyncio.run(run())


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_windows_are_deleted_after_their_retention(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    window = Window("TUMBLING", 10, retention_ms=500)
    of = table(bootstrap, BASIC, window=window)
    pairs = [(b"a" + number(start), b'{"n":1}') for start in (0, 400, 600, 900)]
    produce(bootstrap, of.topic, pairs, timestamp=1000)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            await until(lambda: rows(store, "WINDOWSTART, n") == [(600, 1), (900, 1)])

    asyncio.run(run())


def test_several_key_columns_may_be_null(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "a string key, b int key, n int", key="JSON")
    one, two, none = b'{"a":"x","b":null}', b'{"a":"x","b":1}', b'{"a":null,"b":null}'
    pairs = [(one, b'{"n":1}'), (one, b'{"n":2}'), (two, b'{"n":3}'), (none, b'{"n":4}')]
    produce(bootstrap, of.topic, pairs)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "a, b, n") == [("x", None, 2), ("x", 1, 3)]
            produce(bootstrap, of.topic, [(one, None), (two, b'{"n":5}')])
            await reached(stores, of)
            assert rows(store, "a, b, n") == [("x", 1, 5)]

    asyncio.run(run())


def test_half_a_surrogate_pair_is_a_question_mark(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, s string")
    produce(bootstrap, of.topic, [(b"a", b'{"s":"x\\ud800y"}'), (b"b", b'{"s":"z"}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "k, s") == [("a", "x?y"), ("b", "z")]

    asyncio.run(run())


def test_waiting_ends_with_a_sentence(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            with pytest.raises(ViewBehind, match=r"within 0\.05 s: partition 0 is at 1 of 5"):
                await store.wait_for({0: 5}, 0.05)
            waiting = asyncio.create_task(store.wait_for({0: 2}, TIMEOUT_S))
            await asyncio.sleep(0)
            produce(bootstrap, of.topic, [(b"b", b'{"n":2}')])
            await waiting
            forever = asyncio.create_task(store.wait_for({0: 99}, TIMEOUT_S))
            await asyncio.sleep(0)
            await stores.remove(of.name)
            with pytest.raises(ViewBehind, match="was closed"):
                await forever

    asyncio.run(run())


def test_a_view_that_cannot_be_made_says_why(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC, value="AVRO")

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            with pytest.raises(ViewBehind, match=r"cannot be made: .* needs a schema registry"):
                await stores.ready(of, TIMEOUT_S)

    asyncio.run(run())


def test_a_topic_that_does_not_exist_disturbs_no_other_view(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    missing: SqlSource = dataclasses.replace(of, name="missing", topic="missing")

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            gone = await stores.open(missing)
            await until(lambda: gone.status().problem is not None)
            assert gone.status().problem == "topic missing does not exist"
            produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])
            assert rows(await reached(stores, of), "k, n") == [("a", 1)]

    asyncio.run(run())


def test_two_tables_over_one_topic_are_both_fed(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    one = table(bootstrap, BASIC)
    other = dataclasses.replace(one, name=f"{one.name}_other")
    produce(bootstrap, one.topic, [(b"a", b'{"n":1}'), (b"b", b'{"n":2}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            first = await reached(stores, one)
            second = await reached(stores, other)
            produce(bootstrap, one.topic, [(b"a", None)])
            for store, of in ((first, one), (second, other)):
                await reached(stores, of)
                assert rows(store, "k, n") == [("b", 2)]

    asyncio.run(run())


def test_a_view_goes_on_after_errors_and_a_crash_of_its_broker(
    headrace_factory: BrokerFactory, tmp_path: Path
) -> None:
    broker = headrace_factory()
    bootstrap = broker.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
            produce(bootstrap, of.topic, [(b"b", b'{"n":2}')])
            await store.wait_for({0: 2}, TIMEOUT_S)
            broker.cut("Fetch", 2)
            produce(bootstrap, of.topic, [(b"c", b'{"n":3}')])
            await store.wait_for({0: 3}, TIMEOUT_S)
            broker.kill()
            await until(lambda: store.status().problem is not None)
            broker.start()
            produce(bootstrap, of.topic, [(b"a", None)])
            await store.wait_for({0: 4}, TIMEOUT_S)
            assert rows(store, "k, n") == [("b", 2), ("c", 3)]
            assert store.status().problem is None

    asyncio.run(run())


def test_records_that_were_deleted_before_they_were_read_rebuild_the_view(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, BASIC)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])

    async def run(expected: list[tuple[str, int]]) -> None:
        async with opened(bootstrap, tmp_path) as stores:
            assert rows(await reached(stores, of), "k, n") == expected

    asyncio.run(run([("a", 1)]))
    produce(bootstrap, of.topic, [(b"b", b'{"n":2}'), (b"c", b'{"n":3}')])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partition = TopicPartition(of.topic, 0, 2)
    admin.delete_records([partition])[partition].result(TIMEOUT_S)
    asyncio.run(run([("c", 3)]))


@pytest.mark.java
def test_a_view_is_fed_by_apache_kafka(apache_kafka: ApacheKafka, tmp_path: Path) -> None:
    bootstrap = apache_kafka.bootstrap
    of = table(bootstrap, BASIC, partitions=2)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}'), (b"b", b'{"n":2}')])
    aborting, committing = transactional(bootstrap), transactional(bootstrap)
    for producer, number in ((aborting, 3), (committing, 4)):
        producer.begin_transaction()
        producer.produce(of.topic, b'{"n":%d}' % number, b"c", 1)
        producer.flush(TIMEOUT_S)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            store = await reached(stores, of)
            assert rows(store, "k, n") == [("a", 1), ("b", 2)]
            committing.commit_transaction(TIMEOUT_S)
            aborting.abort_transaction(TIMEOUT_S)
            produce(bootstrap, of.topic, [(b"a", None)])
            await store.wait_for({0: 3, 1: 4}, TIMEOUT_S)
            assert rows(store, "k, n") == [("b", 2), ("c", 4)]
            recreate_topic(bootstrap, of.topic, 2)
            produce(bootstrap, of.topic, [(b"d", b'{"n":5}')])
            await until(lambda: rows(store, "k, n") == [("d", 5)])

    asyncio.run(run())
