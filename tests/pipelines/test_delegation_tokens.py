"""Spark's own settings `spark.kafka.clusters.*`: tasks log in with tokens that the driver gets."""

import base64
import contextlib
import io
import json
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tokens import delete_token, describe_tokens
from headrace.errors import KafkaError
from headrace.pipelines.delegation_tokens import DelegationTokens
from headrace.pipelines.kafka_clusters import parse_clusters
from tests.cli.conftest import execute
from tests.security.secured import SecuredBroker
from tests.support import java
from tests.support.spark_cluster import SparkCluster
from tests.support.stores import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PASSWORD = "pl4nted-p4ssword-of-alice"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
EXPIRY_MS, LIFETIME_MS = 8_000, 14_000


@contextlib.contextmanager
def running(folder: Path, **times: int) -> Iterator[SecuredBroker]:
    """A broker with topics and the user alice; `times` are those of its tokens."""
    settings = {
        "delegation.token.secret.key": "pl4nted-token-key",
        "group.initial.rebalance.delay.ms": "0",
        "headrace.audit.file": str(folder / "audit.log"),
        **{f"delegation.token.{name.replace('_', '.')}": str(ms) for name, ms in times.items()},
    }
    with SecuredBroker(folder, {"alice": PASSWORD}, settings) as broker:
        plain = ("--bootstrap", broker.addresses["PLAINTEXT"])
        assert execute("produce", "orders", "--create", *plain, stdin=b"a\nb\nc\n").code == 0
        assert execute("topics", "create", "copies", *plain).code == 0
        yield broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with running(tmp_path_factory.mktemp("tokens")) as made:
        yield made


@pytest.fixture(scope="module")
def short_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker whose tokens expire soon."""
    times = {"expiry_time_ms": EXPIRY_MS, "max_lifetime_ms": LIFETIME_MS}
    with running(tmp_path_factory.mktemp("short-lived"), **times) as made:
        yield made


def conf(broker: SecuredBroker, **more: str) -> dict[str, str]:
    """The settings of a session, as Spark's documentation has them."""
    address = broker.addresses["SASL_SSL"]
    own = {
        "auth.bootstrap.servers": address,
        "target.bootstrap.servers.regex": re.escape(address),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": broker.ca,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE} username="alice" password="{PASSWORD}";',
        **more,
    }
    return {f"spark.kafka.clusters.here.{name}": value for name, value in own.items()}


@contextlib.contextmanager
def handed(spark: SparkSession, broker: SecuredBroker) -> Iterator[DelegationTokens]:
    held = DelegationTokens(parse_clusters(conf(broker)), spark.sparkContext.addFile)
    held.start()
    yield held
    held.stop()


@pytest.fixture
def tokens(spark: SparkSession, broker: SecuredBroker) -> Iterator[DelegationTokens]:
    with handed(spark, broker) as held:
        yield held


def hmacs(folder: Path) -> set[str]:
    """The secrets of all tokens so far."""
    return {
        row["token"]["hmac"]
        for path in folder.glob("*.json")
        for row in json.loads(path.read_text())
    }


def test_source_and_sink_log_in_with_tokens_that_nothing_shows(
    spark: SparkSession, broker: SecuredBroker, tokens: DelegationTokens, tmp_path: Path
) -> None:
    address = broker.addresses["SASL_SSL"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        orders = (
            spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", "orders")
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            orders.writeStream.format("headrace")
            .option("kafka.bootstrap.servers", address)
            .option("topic", "copies")
            .option("delivery", "exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(True)
        print(query.lastProgress)
        read = spark.read.format("headrace").option("kafka.bootstrap.servers", address)
        copies = read.option("subscribe", "copies").load()
        copies.explain(True)
        assert sorted(bytes(row.value) for row in copies.collect()) == [b"a", b"b", b"c"]
    local = Path(spark.sparkContext.getConf().get("spark.local.dir") or "")
    secrets = {PASSWORD, *hmacs(tokens._folder)}
    assert len(secrets) > 1
    written = {
        str(path): path.read_text(errors="replace")
        for folder in (tmp_path / "checkpoint", local)
        for path in folder.rglob("*")
        if path.is_file()
    }
    written |= {"shown": shown.getvalue(), "broker": broker.log()}
    leaks = {where for where, text in written.items() for one in secrets if one in text}
    assert all("headrace-kafka-clusters-" in where for where in leaks), leaks
    for where in leaks:
        assert not stat.S_IMODE(Path(where).stat().st_mode) & 0o066, "others cannot read the file"
    audit = Path(broker._settings["headrace.audit.file"]).read_text()
    logins = [json.loads(line) for line in audit.splitlines()]
    assert {one["principal"] for one in logins if one["event"] == "login"} == {"User:alice"}


def test_a_stream_outlives_its_tokens(
    spark: SparkSession, short_lived: SecuredBroker, tmp_path: Path
) -> None:
    with handed(spark, short_lived) as tokens:
        copy_while_tokens_change(spark, short_lived, tokens, tmp_path)


def copy_while_tokens_change(
    spark: SparkSession, broker: SecuredBroker, tokens: DelegationTokens, tmp_path: Path
) -> None:
    plain = ("--bootstrap", broker.addresses["PLAINTEXT"])
    for topic in ("in", "out"):
        assert execute("topics", "create", topic, *plain).code == 0
    address, began = broker.addresses["SASL_SSL"], time.monotonic()
    query = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", address)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )

    def copied() -> list[str]:
        return execute("consume", "out", *plain).text.split()

    try:
        assert execute("produce", "in", *plain, stdin=b"first\n").code == 0
        eventually(lambda: copied() == ["first"], "the stream has copied the first record")
        # The first token cannot be renewed any longer, and the broker ends its connections.
        eventually(lambda: len(hmacs(tokens._folder)) > 1, "another token was handed over")
        time.sleep(max(began + LIFETIME_MS / 1000 + 2 - time.monotonic(), 0))
        assert execute("produce", "in", *plain, stdin=b"second\n").code == 0
        eventually(lambda: copied() == ["first", "second"], "the stream has copied both records")
        assert query.exception() is None
    finally:
        query.stop()


def test_a_program_of_spark_run_uses_the_settings_on_a_cluster(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    program = tmp_path / "count.py"
    program.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "read = spark.read.format('headrace').option('subscribe', 'orders')\n"
        f"read = read.option('kafka.bootstrap.servers', {broker.addresses['SASL_SSL']!r})\n"
        "print('records:', read.load().count())\n"
    )
    settings = {
        **conf(broker),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": java.spark_options(),
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with SparkCluster(tmp_path / "cluster", workers=1) as cluster:
        plain = ("--bootstrap", broker.addresses["PLAINTEXT"], "--master", cluster.master)
        done = execute("spark", "run", *plain, *words, str(program))
        assert "records: 3" in done.text, done.err
        files = list((tmp_path / "cluster").rglob("headrace-kafka-clusters-*.json"))
        assert files, "the executor has a file of its own"
        assert [path for path in files if path.stat().st_mode & 0o066] == []


def test_a_token_that_was_deleted_is_replaced(short_lived: SecuredBroker) -> None:
    files: list[str] = []
    held = DelegationTokens(parse_clusters(conf(short_lived)), files.append)
    held.start()
    try:
        (first,) = hmacs(held._folder)
        with Cluster(held._held[0].cluster.client()) as cluster:
            for token in describe_tokens(cluster):
                if base64.b64encode(token.hmac).decode() == first:
                    delete_token(cluster, token)
        eventually(lambda: len(files) > 1, "another token was handed over")
    finally:
        held.stop()


def test_a_login_in_the_options_is_used_instead(
    spark: SparkSession, broker: SecuredBroker, tokens: DelegationTokens
) -> None:
    options = {
        "kafka.bootstrap.servers": broker.addresses["SASL_SSL"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": broker.ca,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "nobody",
        "kafka.sasl.password": "wrong",
        "subscribe": "orders",
    }
    with pytest.raises(Exception, match="'nobody': authentication failed"):
        spark.read.format("headrace").options(**options).load().count()


def test_tasks_run_after_tokens_that_no_task_has_used(
    spark: SparkSession, broker: SecuredBroker
) -> None:
    with handed(spark, broker):
        pass
    assert spark.range(10).repartition(2).rdd.map(lambda row: row.id).sum() == 45


def test_files_of_tokens_are_removed_with_their_session(broker: SecuredBroker) -> None:
    used = True
    held = DelegationTokens(parse_clusters(conf(broker)), lambda path: None, lambda: used)
    held.start()
    held.stop()
    assert hmacs(held._folder)
    used = False
    held.stop()
    assert not held._folder.exists()


def test_a_refused_login_of_the_driver_is_an_error(broker: SecuredBroker) -> None:
    jaas = f'{MODULE} username="alice" password="wrong";'
    clusters = parse_clusters(conf(broker, **{"kafka.sasl.jaas.config": jaas}))
    with pytest.raises(KafkaError, match="authentication failed"):
        DelegationTokens(clusters, lambda path: None).start()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "SSL"}, "auth.bootstrap.servers is missing"),
        ({"auth.bootstrap.servers": "a:1", "no.such": "x"}, "here.no.such: no such setting"),
        ({"auth.bootstrap.servers": "a:1", "target.bootstrap.servers.regex": "("}, "expression"),
        ({"auth.bootstrap.servers": "a:1", "sasl.token.mechanism": "PLAIN"}, "SCRAM-SHA-512"),
        ({"auth.bootstrap.servers": "a:1", "security.protocol": "TLS"}, "expected one of"),
    ],
)
def test_settings_that_are_wrong_are_named(settings: dict[str, str], message: str) -> None:
    given = {f"spark.kafka.clusters.here.{name}": value for name, value in settings.items()}
    with pytest.raises(ClientError, match=re.escape(message)):
        parse_clusters(given)
