"""docs/cluster.md describes every node that is written, with the keys that are in it."""

import json
import re
import sqlite3
from pathlib import Path

from headrace.clock import ManualClock
from headrace.cluster.controller import Alteration, ConfigChange, Defaults, NewTopic, Operation
from headrace.cluster.image import Broker
from headrace.cluster.metadata import Metadata
from headrace.cluster.registration import Registration
from headrace.cluster.sqlite_store import FILE_NAME, SqliteStore
from headrace.settings import Settings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
ROW = re.compile(r"^\| `(/[^`]+)` \| `(\{[^`]*\})` \|", re.MULTILINE)
KEYS_OF_USERS = {"/configs/ID", "/group_configs/GROUP", "/client_metrics/SUBSCRIPTION"}


def written(folder: Path) -> dict[str, set[str]]:
    """The keys of every node, by its path in the form of the document."""
    store = SqliteStore(str(folder))
    metadata = Metadata(store, 1, ManualClock())
    metadata.load()
    Registration(metadata).join(Broker(1, "localhost", 9092), "folder")
    wanted = [NewTopic("kept"), NewTopic("gone")]
    metadata.create_topics(wanted, Defaults(partitions=1, replication_factor=1))
    metadata.delete_topics(["gone"])
    change = ConfigChange("log.retention.ms", Operation.SET, "60000")
    metadata.alter_configs([Alteration("broker", "1", (change,))])
    change = ConfigChange("consumer.session.timeout.ms", Operation.SET, "50000")
    metadata.alter_configs([Alteration("group", "g", (change,), broker=Settings.parse({}))])
    change = ConfigChange("metrics", Operation.SET, "org.apache.kafka.producer.")
    metadata.alter_configs([Alteration("client-metrics", "s", (change,))])
    metadata.producer_ids.next()
    connection = sqlite3.connect(folder / FILE_NAME)
    rows = connection.execute("select parent, name, value from nodes").fetchall()
    connection.close()
    store.close()
    found: dict[str, set[str]] = {}
    names = {"/topics": "NAME", "/deleted": "TOPIC_ID", "/group_configs": "GROUP"}
    names["/client_metrics"] = "SUBSCRIPTION"
    for parent, name, value in rows:
        fixed = parent == "" or name == "controller"
        path = f"{parent}/{name if fixed else names.get(parent, 'ID')}"
        found[path] = set(json.loads(value))
    return found


def test_every_node_is_described(tmp_path: Path) -> None:
    described = {path: set(json.loads(value)) for path, value in ROW.findall(DOCUMENT.read_text())}
    found = written(tmp_path)
    assert described.keys() == found.keys()
    for path in found.keys() - KEYS_OF_USERS:
        assert described[path] == found[path], path
