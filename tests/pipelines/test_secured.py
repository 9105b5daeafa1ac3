"""Spark reads and writes a secured broker, and shows no password."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.testing.running import RunningBroker
from tests.cli.conftest import execute
from tests.security.token_logins import KINDS, TokenBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def secured() -> Iterator[RunningBroker]:
    broker = RunningBroker(secure=True)
    admin = ("--client-config", str(broker.security.client_config))
    assert execute("produce", "orders", "--create", *admin, stdin=b"a\nb\nc\n").code == 0
    assert execute("topics", "create", "copies", *admin).code == 0
    yield broker
    broker.close()


def test_a_password_is_in_no_plan_progress_checkpoint_or_error(
    spark: SparkSession, secured: RunningBroker, tmp_path: Path
) -> None:
    login = secured.security.login()
    options = login.spark()
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        orders = spark.read.format("headrace").options(**options).option("subscribe", "orders")
        frame = orders.load()
        frame.explain(True)
        assert frame.count() == 3
        query = (
            spark.readStream.format("headrace")
            .options(**options)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("headrace")
            .options(**options)
            .option("topic", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        print(query.lastProgress)
        copies = spark.read.format("headrace").options(**options).option("subscribe", "copies")
        assert copies.load().count() == 3
        nobody = secured.security.login("nobody", login.password).spark()
        with pytest.raises(Exception, match="authentication failed") as failed:
            spark.read.format("headrace").options(**nobody).option(
                "subscribe", "orders"
            ).load().count()
    written = {
        str(path): path.read_text(errors="replace")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    }
    assert written
    written |= {"shown": shown.getvalue(), "error": str(failed.value)}
    assert "orders" in written["shown"]
    assert [where for where, text in written.items() if login.password in text] == []


@pytest.fixture(scope="module")
def by_token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    with TokenBroker(tmp_path_factory.mktemp("tokens")) as cluster:
        plain = ("--bootstrap", cluster.plain)
        assert execute("produce", "orders", "--create", *plain, stdin=b"a\nb\nc\n").code == 0
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_source_and_exactly_once_sink_log_in_with_tokens(
    spark: SparkSession, by_token: TokenBroker, tmp_path: Path, kind: str
) -> None:
    topic = f"copies-{kind.replace(' ', '-')}"
    assert execute("topics", "create", topic, "--bootstrap", by_token.plain).code == 0
    options = {f"kafka.{name}": value for name, value in by_token.properties(kind).items()}
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        orders = (
            spark.readStream.format("headrace")
            .options(**options)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            orders.writeStream.format("headrace")
            .options(**options)
            .option("topic", topic)
            .option("delivery", "exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        print(query.lastProgress)
        copies = spark.read.format("headrace").options(**options).option("subscribe", topic).load()
        copies.explain(True)
        assert sorted(bytes(row.value) for row in copies.collect()) == [b"a", b"b", b"c"]
    written = [
        path.read_text(errors="replace")
        for path in (tmp_path / "checkpoint").rglob("*")
        if path.is_file()
    ]
    assert written
    for text in (*written, shown.getvalue(), by_token.broker.log()):
        assert [secret for secret in by_token.secrets(kind) if secret in text] == []
