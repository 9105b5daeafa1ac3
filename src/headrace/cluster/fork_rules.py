"""The controller's rules for forks: topics that begin with the records of another topic.

A fork has the partitions, replicas, leaders and in-sync replicas of its parent, because each broker
builds its replica from its own replica of the parent. Its first leader epochs are greater than the
parent's, because its first batches carry the epochs of the parent.
"""

from collections.abc import Mapping
from dataclasses import replace

from headrace.cluster.image import NO_LEADER, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.types import encode_uuid

FORK_OF, FORK_OF_ID, FORK_OFFSETS = "fork.of", "fork.of.id", "fork.offsets"
_FORK_CONFIGS = (FORK_OF, FORK_OF_ID, FORK_OFFSETS)


def check_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """INVALID_CONFIG if an alteration changes where a topic was forked."""
    for name in _FORK_CONFIGS:
        if before.get(name) != after.get(name):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} is set when a topic is created, and never altered",
            )


def fork_configs(configs: Mapping[str, str]) -> dict[str, str]:
    """Those of a topic's configs that say where it was forked."""
    return {name: configs[name] for name in _FORK_CONFIGS if name in configs}


def with_parent_id(image: Image, name: str, configs: Mapping[str, str]) -> Mapping[str, str]:
    """The configs of a new topic, with the id of its parent if it is a fork; KafkaError."""
    if not any(configs.get(one) for one in _FORK_CONFIGS):
        return configs
    parent = _parent(image, name, configs)
    offsets = configs.get(FORK_OFFSETS, "")
    if len(offsets.split(",")) != len(parent.partitions) or not offsets:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{FORK_OFFSETS}={offsets}: expected an offset for each of the "
            f"{len(parent.partitions)} partitions of {parent.name}",
        )
    return {**configs, FORK_OF_ID: encode_uuid(parent.id)}


def _parent(image: Image, name: str, configs: Mapping[str, str]) -> Topic:
    of = configs.get(FORK_OF, "")
    if not of:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{FORK_OFFSETS} of '{name}' needs {FORK_OF}")
    parent = image.topics.get(of)
    if parent is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{FORK_OF}={of}: there is no such topic")
    if configs.get(FORK_OF_ID, encode_uuid(parent.id)) != encode_uuid(parent.id):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{FORK_OF_ID} is not the id of {of}; leave it out"
        )
    return parent


def fork_partitions(
    parent: Topic, partitions: int, replication_factor: int, *, assigned: bool
) -> tuple[PartitionState, ...]:
    """The first state of each partition of a fork; KafkaError if others were asked for."""
    count, factor = len(parent.partitions), len(parent.partitions[0].replicas)
    if partitions not in (-1, count):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"a fork of {parent.name} has {count} partition(s), as its parent, not {partitions}",
        )
    if assigned or replication_factor not in (-1, factor):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR
            if not assigned
            else ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"a fork has the replicas of its parent {parent.name}; reassign them afterwards",
        )
    leaderless = [at for at, one in enumerate(parent.partitions) if one.leader == NO_LEADER]
    if leaderless:
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"{parent.name}-{leaderless[0]} has no leader; try again when it has one",
        )
    return tuple(_first_state(state) for state in parent.partitions)


def _first_state(parent: PartitionState) -> PartitionState:
    """Replicas that a reassignment adds or removes are left out of the fork's reassignment."""
    return replace(
        parent, leader_epoch=parent.leader_epoch + 1, partition_epoch=0, adding=(), removing=()
    )
