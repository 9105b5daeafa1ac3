"""Decides requests that change the cluster. Pure: takes an image, returns the changes.

Contains Kafka's rules for topic names, partition counts, replica assignments and configs, with the
error code of each rule. `metadata.py` writes the result to the store.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from headrace.cluster.fork_rules import (
    FORK_OF,
    check_unchanged,
    fork_configs,
    fork_partitions,
    with_parent_id,
)
from headrace.cluster.image import Image, PartitionState, Topic, fold
from headrace.cluster.placement import place
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.settings import (
    GROUP_TABLE,
    TABLE,
    TOPIC_TABLE,
    Setting,
    Settings,
    Type,
    check_broker_config,
    check_client_metrics_configs,
    check_group_configs,
    check_topic_configs,
)
from headrace.settings.listeners import LISTENER_PREFIX
from headrace.settings.resolve import listener_row
from headrace.settings.security_table import DYNAMIC_PER_LISTENER
from headrace.settings.setting import check_words, format_value
from headrace.types import BrokerId

MAX_NAME = 249
MAX_PARTITIONS = 100_000
"""Partitions per topic. Kafka has no limit, but fails at a lower number than this."""

_MIN_ISR = "min.insync.replicas"
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 is the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Defaults:
    """The broker's defaults for -1 in a `NewTopic`."""

    partitions: int
    replication_factor: int


class Operation(IntEnum):
    """What to do with one config, by the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One operation on one config of a topic, broker or group."""

    name: str
    operation: Operation
    value: str | None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes to the configs of one resource; `fresh` replaces all existing ones.

    `broker` has the bounds for the configs of a group.
    """

    of: Literal["topic", "broker", "group", "client-metrics"]
    name: str
    changes: tuple[ConfigChange, ...]
    fresh: bool = False
    broker: Settings | None = None


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """All configs that a resource has after an alteration; all brokers have the name ""."""

    of: Literal["broker", "group", "client-metrics"]
    name: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic and its new number of partitions."""

    name: str
    count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


def check_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION unless this can be a topic's name."""
    if not name:
        reason = "a topic needs a name that is not empty"
    elif name in (".", ".."):
        reason = f"'{name}' cannot be the name of a topic"
    elif len(name) > MAX_NAME:
        reason = f"a topic's name has at most {MAX_NAME} characters, this has {len(name)}"
    elif not _NAME.fullmatch(name):
        reason = f"topic name {name!r} may hold only ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def create_topics(
    image: Image,
    wanted: Sequence[NewTopic],
    defaults: Defaults,
    new_id: Callable[[], uuid.UUID],
) -> list[Topic | KafkaError]:
    """The new topic or an error, for each request."""
    results: list[Topic | KafkaError] = []
    # Names of earlier topics of the same request. The image does not change: the commit of this
    # decision may fail.
    taken_forms: dict[str, str] = {}
    taken = set()
    start = len(image.topics)
    states: dict[tuple[BrokerId, ...], PartitionState] = {}
    for number, new in enumerate(wanted):
        try:
            check_topic_name(new.name)
            if new.name in image.topics or new.name in taken:
                raise KafkaError(
                    ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists."
                )
            _check_collision(new.name, image.folded)
            _check_collision(new.name, taken_forms)
            configs = with_parent_id(image, new.name, _creation_configs(new))
            if parent := image.topics.get(configs.get(FORK_OF, "")):
                partitions = fork_partitions(
                    parent, new.partitions, new.replication_factor, assigned=bool(new.assignments)
                )
            else:
                replicas = _replicas(image, new, defaults, start + number)
                partitions = tuple([_first_state(brokers, states) for brokers in replicas])
            results.append(Topic(new.name, new_id(), partitions, configs))
        except KafkaError as error:
            results.append(error)
            continue
        taken.add(new.name)
        if "." in new.name or "_" in new.name:
            taken_forms[fold(new.name)] = new.name
    return results


def grow_topic(image: Image, growth: Growth) -> Topic:
    """The topic with its new partitions; KafkaError if the number or the assignment is invalid."""
    name, count, assignments = growth.name, growth.count, growth.assignments
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic '{name}'")
    known = len(topic.partitions)
    if count == known:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"topic '{name}' already has {known} partition(s)"
        )
    if count < known:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic '{name}' has {known} partition(s) and cannot shrink to {count}",
        )
    _check_count(count)
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        _check_factor(image, factor)
        replicas = place(image.brokers.values(), count - known, factor, len(image.topics) + known)
    else:
        if len(assignments) != count - known:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{count - known} partition(s) are to be added to '{name}', but "
                f"{len(assignments)} assignment(s) were given",
            )
        for brokers in assignments:
            _check_assignment(image, brokers, factor)
        replicas = list(assignments)
    states = {state.replicas: state for state in topic.partitions if _is_first(state)}
    added = [_first_state(brokers, states) for brokers in replicas]
    return replace(topic, partitions=(*topic.partitions, *added))


def alter_configs(image: Image, alteration: Alteration) -> Topic | AlteredConfigs:
    """The altered topic, or the altered configs of another resource; KafkaError if refused."""
    match alteration.of:
        case "topic":
            return _alter_topic(image, alteration)
        case "group":
            return AlteredConfigs("group", alteration.name, _alter_group(image, alteration))
        case "client-metrics":
            configs = _alter_client_metrics(image, alteration)
            return AlteredConfigs("client-metrics", alteration.name, configs)
    return AlteredConfigs("broker", alteration.name, _alter_broker(image, alteration))


def _alter_topic(image: Image, alteration: Alteration) -> Topic:
    """The topic with its configs altered; INVALID_CONFIG if a name or value is invalid."""
    topic = image.topics.get(alteration.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"The topic '{alteration.name}' does not exist.",
        )
    current = fork_configs(topic.configs) if alteration.fresh else topic.configs
    configs = _alter(current, alteration.changes, TOPIC_TABLE)
    check_unchanged(topic.configs, configs)
    _check_configs(configs)
    return replace(topic, configs=configs)


def _alter_broker(image: Image, alteration: Alteration) -> Mapping[str, str]:
    """A broker's live configs, altered; INVALID_REQUEST for configs that need a restart."""
    current = {} if alteration.fresh else image.broker_configs.get(alteration.name, {})
    configs = _alter(current, alteration.changes, TABLE)
    try:
        for name, value in configs.items():
            row = check_broker_config(name, value)
            if row is not None:
                check_words(row, value)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    _check_dynamic(configs, of_one=bool(alteration.name))
    if alteration.name and _MIN_ISR in configs:
        # The controller uses one value for the whole cluster to decide which leaders are eligible.
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Broker-level {_MIN_ISR} cannot be altered; set it for all brokers or for a topic",
        )
    return configs


def _check_dynamic(configs: Iterable[str], *, of_one: bool) -> None:
    """INVALID_REQUEST if one of these configs cannot be altered for one broker, or for all."""
    of_listeners = [name for name in configs if name.startswith(LISTENER_PREFIX)]
    fixed = [name for name in configs if not _is_dynamic(name)]
    if fixed:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]; "
            "set them in the broker's settings and restart",
        )
    if bare := [name for name in configs if name in DYNAMIC_PER_LISTENER]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the "
            f"listener prefix: [{', '.join(bare)}]; use {LISTENER_PREFIX}NAME.{bare[0]}",
        )
    if of_listeners and not of_one:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(of_listeners)}]",
        )


def _is_dynamic(name: str) -> bool:
    """Whether a running broker can use another value of this config."""
    if not name.startswith(LISTENER_PREFIX):
        return name in TABLE and TABLE[name].live
    row = listener_row(name)
    return row is not None and row.name in DYNAMIC_PER_LISTENER


def _alter_group(image: Image, alteration: Alteration) -> Mapping[str, str]:
    """A group's configs, altered; INVALID_CONFIG if a name or value is invalid."""
    assert alteration.broker is not None, "an alteration of a group has the broker's settings"
    current = {} if alteration.fresh else image.group_configs.get(alteration.name, {})
    configs = _alter(current, alteration.changes, GROUP_TABLE)
    try:
        check_group_configs(alteration.broker, configs)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return configs


def _alter_client_metrics(image: Image, alteration: Alteration) -> Mapping[str, str]:
    """The configs of a subscription to client metrics, altered; KafkaError if one is invalid."""
    current = {} if alteration.fresh else image.client_metrics.get(alteration.name, {})
    # Kafka's controller does not know the types of these configs, so none is a list to append to.
    configs = _alter(current, alteration.changes, {})
    check_client_metrics_configs(configs)
    return configs


# --- Validation rules -----------------------------------------------------------------------------


def _check_collision(name: str, folded: Mapping[str, str]) -> None:
    if "." not in name and "_" not in name:
        return
    other = folded.get(fold(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {other}",
        )


def _creation_configs(new: NewTopic) -> Mapping[str, str]:
    nulls = [name for name, value in new.configs if value is None]
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    configs = {name: value for name, value in new.configs if value is not None}
    _check_configs(configs)
    return configs


def _check_configs(configs: Mapping[str, str]) -> None:
    try:
        check_topic_configs(configs)
    except SettingError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _replicas(
    image: Image, new: NewTopic, defaults: Defaults, start: int
) -> Sequence[tuple[BrokerId, ...]]:
    if new.assignments:
        return _manual_replicas(image, new)
    if new.replication_factor < -1 or new.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partitions < -1 or new.partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "The number of partitions must be larger than 0, or -1 to use the default value.",
        )
    partitions = defaults.partitions if new.partitions == -1 else new.partitions
    factor = defaults.replication_factor if new.replication_factor == -1 else new.replication_factor
    _check_count(partitions)
    _check_factor(image, factor)
    return place(image.brokers.values(), partitions, factor, start)


def _manual_replicas(image: Image, new: NewTopic) -> Sequence[tuple[BrokerId, ...]]:
    for what, value in (
        ("replication factor", new.replication_factor),
        ("number of partitions", new.partitions),
    ):
        if value != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a topic with replica assignments of its own needs -1 as {what}, not {value}",
            )
    by_index: dict[int, tuple[BrokerId, ...]] = {}
    factor = None
    for index, brokers in new.assignments:
        if index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"partition {index} is assigned more than once",
            )
        _check_assignment(image, brokers, factor)
        factor = len(brokers)
        by_index[index] = brokers
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_index[index] for index in range(len(by_index))]


def _check_assignment(image: Image, brokers: tuple[BrokerId, ...], factor: int | None) -> None:
    if not brokers:
        reason = "an assignment has no replicas"
    elif unknown := [broker for broker in brokers if broker not in image.brokers]:
        reason = f"an assignment names broker {unknown[0]}, which is not registered"
    elif len(set(brokers)) != len(brokers):
        reason = f"an assignment names a broker more than once: {list(brokers)}"
    elif factor is not None and len(brokers) != factor:
        reason = f"an assignment has {len(brokers)} replica(s), others have {factor}"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _check_count(partitions: int) -> None:
    if partitions > MAX_PARTITIONS:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic can have at most {MAX_PARTITIONS} partitions, not {partitions}",
        )


def _check_factor(image: Image, factor: int) -> None:
    if factor > len(image.brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): only {len(image.brokers)} "
            "broker(s) are registered.",
        )


def _first_state(
    replicas: tuple[BrokerId, ...], states: dict[tuple[BrokerId, ...], PartitionState]
) -> PartitionState:
    """The state of a partition that begins with these replicas, one object for all equal ones."""
    state = states.get(replicas)
    if state is None:
        state = states[replicas] = PartitionState(replicas[0], 0, replicas, replicas)
    return state


def _is_first(state: PartitionState) -> bool:
    return state == PartitionState(state.replicas[0], 0, state.replicas, state.replicas)


def _alter(
    current: Mapping[str, str], changes: Iterable[ConfigChange], table: Mapping[str, Setting]
) -> dict[str, str]:
    configs = dict(current)
    for change in changes:
        name = change.name
        if change.operation is Operation.DELETE:
            configs.pop(name, None)
            continue
        value = change.value or ""
        if change.operation is not Operation.SET:
            value = _alter_list(table, name, configs.get(name), change)
        configs[name] = value
    return configs


def _alter_list(
    table: Mapping[str, Setting], name: str, current: str | None, change: ConfigChange
) -> str:
    row = table.get(name)
    if row is None or row.type is not Type.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {change.operation.name} to key {name} because its type is not LIST.",
        )
    text = format_value(row.default) if current is None else current
    words = [word for word in (text or "").split(",") if word]
    given = (change.value or "").split(",")
    if change.operation is Operation.APPEND:
        words += [word for word in dict.fromkeys(given) if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)
