"""`headrace consume --share` and `headrace groups` of a share group."""

import uuid

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.cli.conftest import Run


@pytest.fixture
def queue(run: Run, bootstrap: str) -> tuple[str, str]:
    """A topic with four records, and a share group that begins with the first."""
    topic, group = f"jobs-{uuid.uuid4().hex[:10]}", f"workers-{uuid.uuid4().hex[:10]}"
    assert run("topics", "create", topic).code == 0
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
    for number in range(4):  # each in a batch of its own
        assert run("produce", topic, stdin=f"job-{number}\n".encode()).code == 0
    return topic, group


def test_records_are_accepted_released_rejected_and_described(
    run: Run, queue: tuple[str, str]
) -> None:
    topic, group = queue
    first = run("consume", topic, "--share", group, "--count", "1")
    assert (first.code, first.text) == (0, "job-0\n")
    released = run("consume", topic, "--share", group, "--count", "1", "--ack", "release")
    assert released.text == "job-1\n"
    asked = run(
        "consume", topic, "--share", group, "--count", "2", "--ack", "ask", stdin=b"what\nx\na\n"
    )
    assert asked.text == "job-1\njob-2\n"
    assert "reject [x]?" in asked.err

    listed = {row["name"]: row for row in run("groups", "list", "--json").rows()}
    assert (listed[group]["type"], listed[group]["state"]) == ("share", "Empty")
    described = run("groups", "describe", group, "--json").document()
    assert described["lag"] == 1
    partitions = described["partitions"]
    assert isinstance(partitions, list)
    assert [(row["committed"], row["end"], row["lag"]) for row in partitions] == [(3, 4, 1)]
    table = run("groups", "describe", group).text
    assert "Released" in table
    assert "Deliveries" in table

    assert (
        run("consume", topic, "--share", group, "--count", "1", "--json").rows()[0]["offset"] == 3
    )
    reset = run(
        "groups", "reset-offsets", group, "--topic", topic, "--to-offset", "1", "--yes", "--json"
    )
    assert reset.code == 0, reset.err
    again = run("consume", topic, "--share", group, "--count", "3")
    assert again.text == "job-1\njob-2\njob-3\n"
    assert run("groups", "delete", group, "--yes").code == 0


def test_a_share_group_keeps_its_own_position(run: Run, queue: tuple[str, str]) -> None:
    topic, group = queue
    refused = run("consume", topic, "--share", group, "--from", "2")
    assert refused.code == 2
    assert "--share cannot be used with --from" in refused.err
