"""Apache Kafka's own command-line tools, run from the jars that scripts/fetch-java-tools brings."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "scripts" / "java" / "pom.xml"

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}

# A tool lives for a second or two: a small heap and no optimising compiler start it fastest.
QUICK_START = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
MAKE_ARCHIVE = "-XX:ArchiveClassesAtExit"
# A Spark of the tests is over before Java's optimising compiler has paid for itself.
QUICK_SPARK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
SPARK_CLASSES = ROOT / ".tools" / "spark-classes.jsa"
"""Made by `tests/support/spark_classes.py`."""
# Defaults of a Spark of the tests; a program's own settings override them. Spark's own are for
# clusters: 200 tasks in each shuffle, a web page, and queries without new data that ask for it a
# hundred times a second.
SPARK_DEFAULTS = (
    "-Dspark.sql.shuffle.partitions=2",
    "-Dspark.sql.streaming.pollingDelay=100ms",
    "-Dspark.ui.enabled=false",
)
# Kafka's classes log to stderr, among the tool's own words; a later option sets another level.
SILENT_KAFKA = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
# Java says on stdout, among the tool's own words, that it could not use an archive of classes.
SILENT_JAVA = ("-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool printed and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def kafka_version() -> str:
    """The version of Apache Kafka that the pom names."""
    found = re.search(r"<kafka\.version>(.*?)</kafka\.version>", POM.read_text())
    assert found, f"{POM} names no kafka.version"
    return found[1]


@cache
def missing() -> str | None:
    """None when the tools can run, else a sentence naming what is missing."""
    if shutil.which("java") is None:
        return "no Java runtime: install the Debian package openjdk-17-jre-headless"
    if not (jars() / ".complete").exists():
        return "no Kafka jars: run `make tools` (needs the Debian package maven)"
    return None


def spark_options() -> str:
    """What Spark's Java is started with, in the tests and in the programs that they start."""
    if not SPARK_CLASSES.exists():
        return " ".join(QUICK_SPARK)
    return " ".join((*QUICK_SPARK, f"-XX:SharedArchiveFile={SPARK_CLASSES}", *SILENT_JAVA))


def java_command(main_class: str, *arguments: str, options: tuple[str, ...]) -> list[str]:
    """The command line that runs a class from Kafka's jars."""
    reason = missing()
    if reason is not None:
        raise RuntimeError(reason)
    starts_quickly = options[: len(QUICK_START)] == QUICK_START
    makes_archive = any(option.startswith(MAKE_ARCHIVE) for option in options)
    if starts_quickly and not makes_archive and _archive().exists():
        options += (f"-XX:SharedArchiveFile={_archive()}", *SILENT_JAVA)
    return ["java", SILENT_KAFKA, *options, "-cp", f"{jars()}/*", main_class, *arguments]


def run_tool(
    name: str,
    *arguments: str,
    stdin: str | bytes = b"",
    timeout_s: float = 120,
    check: bool = True,
    options: tuple[str, ...] = QUICK_START,
) -> ToolResult:
    """Runs a Kafka tool by its script's name or by its class, and captures what it prints.

    The first one that talks to a broker leaves its classes for all after it, which then need half
    the time to start. Java sees for itself whether the archive fits.
    """
    left = _archive().with_name(f".classes-{os.getpid()}.jsa")
    if options == QUICK_START and "--bootstrap-server" in arguments and not _archive().exists():
        options += (f"{MAKE_ARCHIVE}={left}", *SILENT_JAVA)
    command = java_command(TOOLS.get(name, name), *arguments, options=options)
    done = subprocess.run(
        command,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    # Others start tools at the same time: they find a whole archive or none.
    if left.exists():
        left.rename(_archive())
    result = ToolResult(done.returncode, done.stdout.decode(), done.stderr.decode())
    if check and result.code != 0:
        raise AssertionError(
            f"{name} {' '.join(arguments)} ended with {result.code}:\n{result.text}"
        )
    return result


def _archive() -> Path:
    return jars() / ".classes.jsa"


def jars() -> Path:
    """The folder with the jars of Apache Kafka."""
    # An archive of classes is good for the very path with which it was made.
    return (ROOT / ".tools" / "kafka" / kafka_version()).resolve()
