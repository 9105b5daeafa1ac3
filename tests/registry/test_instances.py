"""Several registries on one topic, and registries that die: nothing is lost, all agree."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.registry.schemas import AGE_WITH_DEFAULT, user
from tests.support.headrace_registry import HeadraceRegistry

PATIENCE_S = 60
# Making a client takes longer than a request.
HTTP = httpx.Client(timeout=PATIENCE_S)


@pytest.fixture
def topic() -> str:
    return f"_schemas-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def pair(
    bootstrap: str, topic: str, tmp_path: Path
) -> Iterator[tuple[HeadraceRegistry, HeadraceRegistry]]:
    """Two registries on one topic."""
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        one, two = (
            stack.enter_context(HeadraceRegistry(bootstrap, folder, topic=topic))
            for folder in folders
        )
        yield one, two


def post(registry: HeadraceRegistry, subject: str, schema: str) -> dict[str, object]:
    answer = HTTP.post(f"{registry.url}/subjects/{subject}/versions", json={"schema": schema})
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found


def everything(registry: HeadraceRegistry) -> dict[str, object]:
    """All that a registry knows."""
    asked = ("/schemas?deleted=true", "/config", "/mode", "/contexts")
    return {each: HTTP.get(registry.url + each).json() for each in asked}


def catch_up(registry: HeadraceRegistry, other: HeadraceRegistry) -> None:
    """Waits until one has read as far as the other."""
    goal = HTTP.get(f"{other.url}/health").json()["offset"]
    while HTTP.get(f"{registry.url}/health").json()["offset"] < goal:
        pass


def test_a_restarted_registry_reads_its_state_again(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with HeadraceRegistry(bootstrap, tmp_path, topic=topic) as registry:
        first = post(registry, "a", user())
        HTTP.put(f"{registry.url}/config", json={"compatibility": "FULL"})
        post(registry, "b", '"string"')
        HTTP.delete(f"{registry.url}/subjects/b")
        HTTP.put(f"{registry.url}/mode/c", json={"mode": "READONLY"})
        before = everything(registry)
        registry.kill()
        registry.start()
        assert everything(registry) == before
        assert post(registry, "a", user()) == first
        assert post(registry, "a", user(AGE_WITH_DEFAULT))["version"] == 2
        before = everything(registry)
        assert registry.stop() == 0
        registry.start()
        assert everything(registry) == before


def test_a_registry_killed_in_the_middle_of_writes_has_all_that_it_answered(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    answered: dict[str, object] = {}
    with HeadraceRegistry(bootstrap, tmp_path, topic=topic) as registry:

        def write(number: int) -> None:
            name = f"s{number}"
            try:
                answered[name] = post(registry, name, user(name=f"U{number}"))["id"]
            except httpx.TransportError:
                return
            if len(answered) == 40:
                registry.kill()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(200)))
        assert 40 <= len(answered) < 200, "the registry has to die in between"
        registry.start()
        listed = HTTP.get(f"{registry.url}/schemas").json()
        found = {each["subject"]: each["id"] for each in listed}
        assert answered.items() <= found.items()
        assert len(set(found.values())) == len(found)
        assert post(registry, "next", '"string"')["id"] not in found.values()


def test_two_registries_write_in_turns_and_agree(
    pair: tuple[HeadraceRegistry, HeadraceRegistry],
) -> None:
    one, two = pair
    first = post(one, "a", user())
    # What the other one has written is known before anything is decided.
    assert post(two, "b", user())["id"] == first["id"]
    assert post(two, "a", user(AGE_WITH_DEFAULT))["version"] == 2
    assert post(one, "c", '"string"')["id"] == 3
    catch_up(two, one)
    assert everything(one) == everything(two)


def test_two_registries_that_write_at_once_never_give_an_id_twice(
    pair: tuple[HeadraceRegistry, HeadraceRegistry],
) -> None:
    def write(number: int) -> tuple[str, object]:
        name = f"U{number // 2}"
        return name, post(pair[number % 2], name, user(name=name))["id"]

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(write, range(60)))
    # Each schema was sent to both; both gave the same id, and no two schemas share one.
    assert len(set(ids)) == 30
    assert len({schema_id for _, schema_id in ids}) == 30
    catch_up(*pair)
    catch_up(*reversed(pair))
    assert everything(pair[0]) == everything(pair[1])


def test_a_registry_that_was_asleep_cannot_write_over_the_others_work(
    pair: tuple[HeadraceRegistry, HeadraceRegistry],
) -> None:
    one, two = pair
    post(one, "a", user())
    one.pause()
    assert post(two, "a", user(AGE_WITH_DEFAULT)) == {**post(two, "a", user(AGE_WITH_DEFAULT))}
    assert post(two, "b", '"string"')["id"] == 3
    one.wake()
    assert post(one, "c", '"bytes"')["id"] == 4
    assert post(one, "a", user(AGE_WITH_DEFAULT))["version"] == 2
    catch_up(two, one)
    assert everything(one) == everything(two)


def test_the_topic_is_compacted_and_holds_records_that_other_registries_read(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    with HeadraceRegistry(bootstrap, tmp_path, topic=topic) as registry:
        post(registry, "a", user())
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        assert json.loads(key) == {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
        assert json.loads(value)["id"] == 1
    finally:
        consumer.close()
