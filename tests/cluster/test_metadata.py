"""The image follows the store, across restarts and with other writers on the same store."""

import base64
import json
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.cluster.controller import (
    Alteration,
    ConfigChange,
    Defaults,
    Growth,
    NewTopic,
    Operation,
)
from headrace.cluster.features import FeatureUpdate, stored_features
from headrace.cluster.image import Broker, Endpoint, Image
from headrace.cluster.metadata import FoundTopic, Metadata, new_topic_id
from headrace.cluster.producer_ids import BLOCK
from headrace.cluster.registration import Registration
from headrace.cluster.sqlite_store import SqliteStore
from headrace.cluster.store import Create
from headrace.errors import ErrorCode, KafkaError
from headrace.settings import Settings

DEFAULTS = Defaults(partitions=1, replication_factor=1)
BROKER = Broker(1, "localhost", 9092)


def opened(folder: Path) -> Metadata:
    metadata = Metadata(SqliteStore(str(folder)), 1, ManualClock())
    metadata.load()
    Registration(metadata).join(BROKER, "folder")
    return metadata


@pytest.fixture
def metadata(tmp_path: Path) -> Metadata:
    return opened(tmp_path)


def setting(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, Operation.SET, value)


def group_session(group_id: str, session_ms: str) -> Alteration:
    change = setting("consumer.session.timeout.ms", session_ms)
    return Alteration("group", group_id, (change,), broker=Settings.parse({}))


def test_everything_is_the_same_after_a_restart(metadata: Metadata, tmp_path: Path) -> None:
    wanted = [NewTopic("a.b", 3, configs=(("retention.ms", "7"),)), NewTopic("c")]
    metadata.create_topics(wanted, DEFAULTS)
    metadata.create_partitions([Growth("c", 4)])
    metadata.alter_configs(
        [
            Alteration("topic", "c", (setting("segment.ms", "9"),)),
            Alteration("broker", "", (setting("log.retention.ms", "10"),)),
            Alteration("broker", "1", (setting("log.retention.ms", "11"),)),
            group_session("a/b", "50000"),
            group_session("..", "51000"),
            Alteration("client-metrics", "a/b c", (setting("metrics", "*"),)),
        ]
    )
    before, after = metadata.image, opened(tmp_path).image
    assert after.topics == before.topics
    assert len(after.topics["c"].partitions) == 4
    assert after.topics["c"].configs == {"segment.ms": "9"}
    assert after.names == before.names
    assert after.folded == before.folded == {"a_b": "a.b"}
    assert after.brokers == {1: replace(BROKER, epoch=2)}
    assert after.broker_configs == {"": {"log.retention.ms": "10"}, "1": {"log.retention.ms": "11"}}
    session = "consumer.session.timeout.ms"
    assert after.group_configs == {"a/b": {session: "50000"}, "..": {session: "51000"}}
    assert after.client_metrics == before.client_metrics == {"a/b c": {"metrics": "*"}}
    assert after.cluster_id == before.cluster_id


def test_a_new_cluster_gets_an_id_in_kafkas_form(metadata: Metadata) -> None:
    assert len(metadata.image.cluster_id) == 22
    assert len(base64.urlsafe_b64decode(metadata.image.cluster_id + "==")) == 16


def test_a_known_cluster_id_is_kept_by_a_new_store(tmp_path: Path) -> None:
    metadata = Metadata(SqliteStore(str(tmp_path)), 1, ManualClock())
    metadata.load(known_cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
    assert metadata.image.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"


def test_listeners_see_both_images_once_for_each_change(metadata: Metadata) -> None:
    seen: list[tuple[Image, Image]] = []
    metadata.listeners.append(lambda old, new: seen.append((old, new)))
    metadata.create_topics([NewTopic("a"), NewTopic("b")], DEFAULTS)
    metadata.delete_topics(["a"])
    assert [(set(old.topics), set(new.topics)) for old, new in seen] == [
        (set(), {"a", "b"}),
        ({"a", "b"}, {"b"}),
    ]
    assert seen[0][1] is seen[1][0]
    assert seen[0][0].version < seen[0][1].version < seen[1][1].version


def test_validation_changes_nothing(metadata: Metadata) -> None:
    metadata.create_topic(NewTopic("t"), DEFAULTS)
    before = metadata.image
    metadata.create_topics([NewTopic("u")], DEFAULTS, validate_only=True)
    metadata.create_partitions([Growth("t", 9)], validate_only=True)
    alteration = Alteration("topic", "t", (setting("segment.ms", "9"),))
    assert metadata.alter_configs([alteration], validate_only=True) == [None]
    assert metadata.image is before


def test_each_refusal_stands_at_its_place(metadata: Metadata) -> None:
    metadata.create_topic(NewTopic("t"), DEFAULTS)
    results = metadata.create_partitions([Growth("x", 2), Growth("t", 2)])
    assert isinstance(results[0], KafkaError)
    assert results[1] is None
    results = metadata.delete_topics(["t", "x"])
    assert results[0] is None
    assert isinstance(results[1], KafkaError)


def test_a_deleted_topic_can_be_made_again_with_another_id(metadata: Metadata) -> None:
    first = metadata.create_topic(NewTopic("t_x"), DEFAULTS)
    metadata.delete_topics(["t_x"])
    assert first.id not in metadata.image.names
    assert metadata.create_topic(NewTopic("t_x"), DEFAULTS).id != first.id


def test_a_stray_folder_of_a_deleted_topic_is_not_taken_back(
    metadata: Metadata, tmp_path: Path
) -> None:
    topic = metadata.create_topic(NewTopic("t"), DEFAULTS)
    metadata.delete_topics(["t"])
    found = FoundTopic("t", topic.id, 1)
    assert metadata.adopt_topics([found]) == [found]
    assert opened(tmp_path).adopt_topics([found]) == [found]
    assert not opened(tmp_path).image.topics


def test_folders_that_the_store_does_not_know_are_registered(
    metadata: Metadata, tmp_path: Path
) -> None:
    ids = [uuid.uuid4() for _ in range(3)]
    known = metadata.create_topic(NewTopic("known"), DEFAULTS)
    strange = metadata.adopt_topics(
        [
            FoundTopic("new", ids[0], 3),
            FoundTopic("known", known.id, 1),
            FoundTopic("known", ids[1], 1),
        ]
    )
    assert strange == [FoundTopic("known", ids[1], 1)]
    topic = opened(tmp_path).image.topics["new"]
    assert topic.id == ids[0]
    assert [(s.leader, s.replicas) for s in topic.partitions] == [(1, (1,))] * 3


def test_another_writer_on_the_store_is_noticed_and_nothing_is_lost(
    metadata: Metadata, tmp_path: Path
) -> None:
    other = opened(tmp_path)
    other.create_topic(NewTopic("t"), DEFAULTS)
    with pytest.raises(KafkaError) as caught:
        metadata.create_topic(NewTopic("t"), DEFAULTS)
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert metadata.create_partitions([Growth("t", 3)]) == [None]
    alteration = Alteration("topic", "t", (setting("segment.ms", "9"),))
    assert other.alter_configs([alteration]) == [None]
    topic = opened(tmp_path).image.topics["t"]
    assert len(topic.partitions) == 3
    assert topic.configs == {"segment.ms": "9"}


def test_producer_ids_are_never_given_twice_even_after_a_crash(tmp_path: Path) -> None:
    given = [opened(tmp_path).producer_ids.next() for _ in range(3)]
    metadata, other = opened(tmp_path), opened(tmp_path)
    for _ in range(BLOCK + 2):
        given += [metadata.producer_ids.next(), other.producer_ids.next()]
    assert len(set(given)) == len(given)


def test_no_topic_id_is_printed_with_a_leading_dash() -> None:
    for _ in range(500):
        assert not base64.urlsafe_b64encode(new_topic_id().bytes).startswith(b"-")


def test_many_topics_take_work_in_proportion(metadata: Metadata, tmp_path: Path) -> None:
    def calls(count: int) -> int:
        """How many functions are called to create that many topics."""
        topics = [NewTopic(f"one-of-{count}.{n}") for n in range(count)]
        called = 0

        def note(_frame: object, event: str, _detail: object) -> None:
            nonlocal called
            called += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            metadata.create_topics(topics, DEFAULTS)
        finally:
            sys.setprofile(None)
        return called

    few = calls(500)
    assert calls(5000) < 15 * few
    restarted = opened(tmp_path)
    assert len(restarted.image.topics) == 5500
    states = {id(s) for topic in restarted.image.topics.values() for s in topic.partitions}
    assert len(states) == 1


def test_a_registration_carries_every_advertised_endpoint(tmp_path: Path) -> None:
    endpoints = (Endpoint("IN", "inside", 1), Endpoint("OUT", "outside", 2))
    store = SqliteStore(str(tmp_path))
    metadata = Metadata(store, 1, ManualClock())
    metadata.load()
    Registration(metadata).join(Broker(1, "inside", 1, endpoints=endpoints), "folder")
    other = Metadata(store, 2, ManualClock(), "OUT")
    other.load()
    seen = other.image.brokers[1]
    assert seen.endpoints == endpoints
    assert seen.endpoint("ELSEWHERE") is None
    # A broker is reached by the listener that the one which connects has for brokers.
    assert (seen.host, seen.port) == ("outside", 2)


def test_the_previous_release_finds_the_address_for_brokers_in_a_registration(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path))
    metadata = Metadata(store, 1, ManualClock())
    metadata.load()
    endpoints = (Endpoint("OUT", "outside", 2), Endpoint("IN", "inside", 1))
    Registration(metadata).join(Broker(1, "inside", 1, "rack", endpoints=endpoints), "folder")
    node = store.get("/live/1")
    assert node is not None
    content = json.loads(node.value)
    read_there = [content[name] for name in ("host", "port", "rack", "epoch", "folder")]
    assert read_there == ["inside", 1, "rack", 1, "folder"]


def test_a_broker_of_the_previous_release_is_reached_there_on_every_listener(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path))
    old = b'{"host":"old","port":7,"rack":null,"epoch":3,"folder":"x"}'
    store.commit([Create("/live/2", old, ephemeral=True)])
    metadata = Metadata(store, 1, ManualClock(), "IN")
    metadata.load()
    seen = metadata.image.brokers[2]
    assert (seen.host, seen.port, seen.epoch) == ("old", 7, 3)
    assert seen.endpoint("OUT") == Endpoint("OUT", "old", 7)


def test_levels_of_features_reach_the_other_brokers(metadata: Metadata, tmp_path: Path) -> None:
    other = Metadata(SqliteStore(str(tmp_path)), 2, ManualClock())
    other.load()
    metadata.update_features([FeatureUpdate("share.version", 0, 2)])
    other.refresh()
    assert other.image.features == metadata.image.features
    assert not other.image.features.is_enabled("share.version")
    other.update_features([FeatureUpdate("share.version", 1, 1)])
    # This one has not read the change: its update conflicts, and is decided again.
    metadata.update_features([FeatureUpdate("group.version", 0, 2)])
    assert metadata.image.features.is_enabled("share.version")
    assert metadata.image.features.epoch == 4


def test_a_release_uses_only_levels_that_it_supports() -> None:
    found = stored_features(7, {"transaction.version": 9, "group.version": 0, "no.such": 1})
    assert found.levels["transaction.version"] == 2
    assert not found.is_enabled("group.version")
    assert "no.such" not in found.levels
    assert found.epoch == 7
