"""This broker's registration in the cluster, and the controller's work while it is the controller.

Any broker may become the controller: the first that finds none. After each change the controller
applies `elections.py` and `moves.py` to every partition and writes the results to the store. It
keeps no state in memory that the next controller needs.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import NamedTuple

from headrace.cluster import elections, moves
from headrace.cluster.image import Broker, Image, PartitionState, Topic
from headrace.cluster.metadata import Metadata
from headrace.cluster.registration import Registration
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, Epoch, TopicPartition

logger = logging.getLogger(__name__)


class Rules(NamedTuple):
    """The settings of a topic that concern its replicas."""

    min_isr: int
    unclean: bool


class IsrChange(NamedTuple):
    """A leader's proposal of an ISR, valid while the partition's epochs are unchanged."""

    partition: TopicPartition
    leader_epoch: Epoch
    partition_epoch: int
    isr: tuple[BrokerId, ...]
    starts: tuple[tuple[BrokerId, int], ...] = ()
    """The replicas to add to the ISR, each with the broker epoch that caught up."""


class Membership:
    """Registers this broker, and does the controller's work while it is the controller."""

    def __init__(
        self, metadata: Metadata, node_id: BrokerId, rules: Callable[[Topic], Rules]
    ) -> None:
        self._metadata = metadata
        self._registration = Registration(metadata)
        self._node_id = node_id
        self._rules = rules

    def join(self, broker: Broker, folder: str, *, clean: bool) -> Broker:
        """Register; after an unclean stop this broker leaves all ISRs.

        Both happen in one commit, so that this broker is never seen as alive and in sync with
        records that it may have lost.
        """

        def others(image: Image) -> list[Topic]:
            return [] if clean else self._each(image, self._after_unclean_stop)

        return self._registration.join(broker, folder, others)

    def _after_unclean_stop(self, state: PartitionState, rules: Rules) -> PartitionState:
        if self._node_id not in state.replicas or len(state.replicas) == 1:
            return state
        return elections.without(state, (self._node_id,), rules.min_isr, uncleanly=True)

    @property
    def is_registered(self) -> bool:
        """Whether this broker is registered, according to its image."""
        return self._node_id in self._metadata.image.brokers

    # -------------------------------------------------------------------------- the controller

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, according to its image."""
        return self._metadata.image.controller_id == self._node_id

    def look(self) -> None:
        """After a change: become the controller if there is none, and elect missing leaders."""
        image = self._metadata.image
        if not self.is_registered:
            return
        if image.controller_id not in image.brokers:
            if not self._registration.become_controller():
                return
            logger.info("broker %d became the controller", self._node_id)
        if self.is_controller:
            self._as_controller(self.settle)

    def settle(self, image: Image) -> list[Topic]:
        """The topics whose partition states change, given the brokers that are alive."""
        alive = image.brokers.keys()

        def settled(state: PartitionState, rules: Rules) -> PartitionState:
            gone = [broker for broker in {*state.isr, state.leader} if broker not in alive]
            if gone:
                state = elections.without(state, gone, rules.min_isr)
            state = moves.finish(state, alive)
            return elections.elect(state, alive, unclean=rules.unclean)

        return self._each(image, settled)

    def balance_leaders(self) -> None:
        """Elect the preferred leaders where they are in sync."""
        if self.is_controller:
            self._as_controller(self._balanced)

    def _balanced(self, image: Image) -> list[Topic]:
        alive = image.brokers.keys()
        return self._each(image, lambda state, _: elections.prefer(state, alive))

    def _as_controller(self, decide: Callable[[Image], list[Topic]]) -> None:
        try:
            self._metadata.alter_partitions(decide, as_controller=True)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            logger.info("broker %d is no longer the controller", self._node_id)

    # ---------------------------------------------------------------------- requests of brokers

    def alter_isr(self, wanted: Iterable[IsrChange]) -> None:
        """Write ISR changes, for partitions whose epochs are as their leader knew them.

        Otherwise a replica that has lost records since could return to the ISR. The leader sees
        the result in the image.
        """
        changes = list(wanted)
        starts = {start for change in changes for start in change.starts}

        def decide(image: Image) -> list[Topic]:
            changed: dict[str, list[PartitionState]] = {}
            for (name, index), epoch, partition_epoch, isr, _ in changes:
                topic = image.topics.get(name)
                if topic is None or index >= len(topic.partitions):
                    continue
                state = changed.get(name, topic.partitions)[index]
                if (state.leader, state.leader_epoch) != (self._node_id, epoch):
                    continue
                if state.partition_epoch != partition_epoch:
                    continue
                # A cancelled reassignment may have removed a replica.
                present = tuple(
                    broker for broker in isr if broker in image.brokers and broker in state.replicas
                )
                after = elections.with_isr(state, present, self._rules(topic).min_isr)
                if after is not state:
                    changed.setdefault(name, list(topic.partitions))[index] = after
            return [
                replace(image.topics[name], partitions=tuple(states))
                for name, states in changed.items()
            ]

        self._metadata.alter_partitions(decide, starts=sorted(starts))

    def retire(self, partitions: Iterable[TopicPartition]) -> None:
        """Move leadership away from replicas that are offline because a disk has failed."""
        self._alter(
            partitions,
            lambda state, alive, min_isr: elections.retire(state, self._node_id, alive, min_isr),
        )

    def give_up_damaged(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove this broker's replicas from the ISR, where another one can lead."""
        self._alter(
            partitions,
            lambda state, alive, _: elections.without_damaged(state, self._node_id, alive),
        )

    def _alter(
        self,
        partitions: Iterable[TopicPartition],
        rule: Callable[[PartitionState, Collection[BrokerId], int], PartitionState],
    ) -> None:
        names = set(partitions)

        def decide(image: Image) -> list[Topic]:
            changed = []
            for name in {partition.topic for partition in names} & image.topics.keys():
                topic = image.topics[name]
                min_isr = self._rules(topic).min_isr
                states = tuple(
                    rule(state, image.brokers.keys(), min_isr)
                    if TopicPartition(name, index) in names
                    else state
                    for index, state in enumerate(topic.partitions)
                )
                if any(a is not b for a, b in zip(states, topic.partitions, strict=True)):
                    changed.append(replace(topic, partitions=states))
            return changed

        self._metadata.alter_partitions(decide)

    def hand_over(self) -> None:
        """Controlled shutdown: move leadership to other brokers where possible."""

        def decide(image: Image) -> list[Topic]:
            alive = image.brokers.keys()
            return self._each(
                image, lambda state, _: elections.hand_over(state, self._node_id, alive)
            )

        self._metadata.alter_partitions(decide)

    def _each(
        self, image: Image, decide: Callable[[PartitionState, Rules], PartitionState]
    ) -> list[Topic]:
        """The topics that `decide` changes; it is called once for equal states."""
        changed = []
        for topic in image.topics.values():
            rules = self._rules(topic)
            after: dict[PartitionState, PartitionState] = {}
            for state in topic.partitions:
                if state not in after:
                    after[state] = decide(state, rules)
            if any(old is not new for old, new in after.items()):
                partitions = tuple(after[state] for state in topic.partitions)
                changed.append(replace(topic, partitions=partitions))
        return changed
