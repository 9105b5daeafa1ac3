"""Share groups with Kafka's own share consumer and its tool for share groups."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from headrace.cluster.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from tests.clients.test_share_groups import SETTINGS, Queue
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import run_tool

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def java_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker]:
    with HeadraceBroker(tmp_path_factory.mktemp("shares"), settings=SETTINGS) as running:
        yield running


def groups_tool(queue: Queue, *arguments: str) -> str:
    done = run_tool(
        "kafka-share-groups", "--bootstrap-server", queue.broker.bootstrap, *arguments, check=False
    )
    return done.text


def consume(queue: Queue, count: int, *more: str) -> list[str]:
    done = run_tool(
        "kafka-console-share-consumer", "--bootstrap-server", queue.broker.bootstrap,
        "--topic", queue.topic, "--group", queue.group, "--max-messages", str(count),
        "--timeout-ms", "60000", *more,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if line.startswith("record-")]


def test_kafkas_consumer_and_tool_work_with_a_share_group(java_broker: HeadraceBroker) -> None:
    queue = Queue(java_broker, partitions=1)
    producer = Producer({"bootstrap.servers": java_broker.bootstrap})
    for number in range(10):
        producer.produce(queue.topic, f"record-{number}")
    producer.flush(60)
    assert consume(queue, 4) == [f"record-{number}" for number in range(4)]
    # What it had fetched and not accepted is delivered again.
    assert consume(queue, 6) == [f"record-{number}" for number in range(4, 10)]

    decoded = "".join(
        run_tool(
            "kafka-dump-log", "--share-group-state-decoder", "--files",
            str(java_broker.partition_folder(SHARE_STATE_TOPIC, index) / f"{0:020}.log"),
        ).stdout
        for index in range(2)
    )  # fmt: skip
    assert f'"groupId":"{queue.group}"' in decoded, decoded
    assert '"startOffset":10' in decoded, decoded
    members = run_tool(
        "kafka-dump-log", "--offsets-decoder", "--files",
        str(java_broker.partition_folder(OFFSETS_TOPIC) / f"{0:020}.log"),
    ).stdout  # fmt: skip
    assert '"subscribedTopicNames":["' + queue.topic in members, members

    assert queue.group in groups_tool(queue, "--list")
    text = groups_tool(queue, "--describe", "--group", queue.group)
    row = next(line.split() for line in text.splitlines() if queue.topic in line)
    assert row[:4] == [queue.group, queue.topic, "0", "10"], text
    assert "Empty" in groups_tool(queue, "--describe", "--group", queue.group, "--state")

    text = groups_tool(
        queue, "--reset-offsets", "--group", queue.group, "--topic", queue.topic, "--to-earliest",
        "--execute",
    )  # fmt: skip
    assert "Error" not in text, text
    assert consume(queue, 10) == [f"record-{number}" for number in range(10)]

    text = groups_tool(queue, "--delete-offsets", "--group", queue.group, "--topic", queue.topic)
    assert "Error" not in text, text
    text = groups_tool(queue, "--describe", "--group", queue.group)
    assert queue.topic not in text, text
    text = groups_tool(queue, "--delete", "--group", queue.group)
    assert "successful" in text, text
    assert queue.group not in groups_tool(queue, "--list")
