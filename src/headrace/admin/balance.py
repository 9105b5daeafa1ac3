"""Plans to balance a cluster, to drain a broker, and to change the replication factor.

Pure: takes the replicas of all partitions, returns moves with their reasons. A plan balances, in
this order: racks (replicas of a partition in as many racks as possible), the replicas of each
topic, all replicas, and the leaders. It moves as few replicas as possible, and none where brokers
differ by one. It counts replicas, without their sizes and load. The first replica of a partition is
its preferred leader, so leaders are balanced by changing the order, without copying anything.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from headrace.types import BrokerId, TopicPartition

Replicas = tuple[BrokerId, ...]


class TooFewBrokers(Exception):
    """A topic needs more brokers than would remain."""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the replicas of a partition, or of their order."""

    partition: TopicPartition
    before: Replicas
    after: Replicas
    why: str

    @property
    def copies(self) -> int:
        """The number of replicas to copy; 0 if only the leader changes."""
        return len(set(self.after) - set(self.before))


@dataclass(frozen=True, slots=True)
class Share:
    """The number of replicas on a broker, and of those that are preferred leaders."""

    replicas: int
    leaders: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, and every broker's share before and after."""

    moves: tuple[Move, ...]
    before: Mapping[BrokerId, Share]
    after: Mapping[BrokerId, Share]


def even_out(racks: Mapping[BrokerId, str | None], held: Mapping[TopicPartition, Replicas]) -> Plan:
    """Spread replicas and leaders over all live brokers.

    `racks` has the live brokers. Replicas on other brokers stay, because these may return.
    """
    board = _Board(racks, held)
    topics = sorted({partition.topic for partition in held})
    board.spread_racks()
    for topic in (*topics, None):
        board.spread_replicas(topic)
    # A change for all topics may allow one for a single topic; each round improves the balance.
    changed = True
    while changed:
        changed = False
        for topic in (*topics, None):
            changed |= board.spread_leaders(topic)
    return board.plan()


def drain(
    racks: Mapping[BrokerId, str | None],
    held: Mapping[TopicPartition, Replicas],
    leaving: BrokerId,
) -> Plan:
    """Move all replicas off one broker; TooFewBrokers if a topic needs it."""
    board = _Board({broker: rack for broker, rack in racks.items() if broker != leaving}, held)
    for partition in sorted(held):
        if leaving not in board.replicas[partition]:
            continue
        new = board.best_for(partition)
        if new is None:
            raise TooFewBrokers(
                f"topic {partition.topic} has replication factor {len(held[partition])}, and "
                f"without broker {leaving} only {len(board.racks)} broker(s) are left"
            )
        board.swap(partition, leaving, new, f"broker {leaving} is drained")
        board.lead_by_idlest(partition, only_if_first=new)
    return board.plan()


def resize(
    racks: Mapping[BrokerId, str | None],
    held: Mapping[TopicPartition, Replicas],
    topic: str,
    factor: int,
) -> Plan:
    """Give every partition of a topic this many replicas; TooFewBrokers if there are fewer.

    The leader stays. Dead brokers are removed first.
    """
    board = _Board(racks, held)
    for partition in sorted(one for one in held if one.topic == topic):
        why = f"replication factor {len(held[partition])} to {factor}"
        while len(board.replicas[partition]) < factor:
            new = board.best_for(partition)
            if new is None:
                raise TooFewBrokers(
                    f"replication factor {factor} needs {factor} brokers, and {len(racks)} are "
                    "alive"
                )
            board.set(partition, (*board.replicas[partition], new), why)
        while len(board.replicas[partition]) > factor:
            board.set(partition, board.without_one(partition), why)
    return board.plan()


class _Board:
    """The replicas of all brokers while a plan is made."""

    def __init__(
        self, racks: Mapping[BrokerId, str | None], held: Mapping[TopicPartition, Replicas]
    ) -> None:
        self.racks = racks
        self.replicas = dict(held)
        self._held = held
        self._why: dict[TopicPartition, list[str]] = {}
        # By broker and by topic; None for all topics together.
        self._on: dict[tuple[BrokerId, str | None], set[TopicPartition]] = defaultdict(set)
        self._led: dict[tuple[BrokerId, str | None], set[TopicPartition]] = defaultdict(set)
        for partition in held:
            self._note(partition)
        self._before = self._shares()

    def plan(self) -> Plan:
        moves = [
            Move(partition, before, self.replicas[partition], "; ".join(self._why[partition]))
            for partition, before in sorted(self._held.items())
            if self.replicas[partition] != before
        ]
        return Plan(tuple(moves), self._before, self._shares())

    def _shares(self) -> dict[BrokerId, Share]:
        brokers = {*self.racks, *(broker for broker, topic in self._on if topic is None)}
        return {
            broker: Share(len(self._on[broker, None]), len(self._led[broker, None]))
            for broker in sorted(brokers)
        }

    # ------------------------------------------------------------------------------- changing

    def set(self, partition: TopicPartition, replicas: Replicas, why: str) -> None:
        self._forget(partition)
        self.replicas[partition] = replicas
        self._note(partition)
        reasons = self._why.setdefault(partition, [])
        if why not in reasons:
            reasons.append(why)

    def swap(self, partition: TopicPartition, old: BrokerId, new: BrokerId, why: str) -> None:
        replicas = tuple(new if one == old else one for one in self.replicas[partition])
        self.set(partition, replicas, why)

    def _note(self, partition: TopicPartition) -> None:
        replicas = self.replicas[partition]
        for topic in (partition.topic, None):
            self._led[replicas[0], topic].add(partition)
            for broker in replicas:
                self._on[broker, topic].add(partition)

    def _forget(self, partition: TopicPartition) -> None:
        replicas = self.replicas[partition]
        for topic in (partition.topic, None):
            self._led[replicas[0], topic].discard(partition)
            for broker in replicas:
                self._on[broker, topic].discard(partition)

    # -------------------------------------------------------------------------------- choosing

    def best_for(self, partition: TopicPartition) -> BrokerId | None:
        """The broker for one more replica: in another rack, then with the fewest replicas."""
        replicas = self.replicas[partition]
        taken = {self.racks[one] for one in replicas if one in self.racks}
        return min(
            (broker for broker in self.racks if broker not in replicas),
            key=lambda broker: (
                self.racks[broker] in taken,
                len(self._on[broker, partition.topic]),
                len(self._on[broker, None]),
                broker,
            ),
            default=None,
        )

    def without_one(self, partition: TopicPartition) -> Replicas:
        """The replicas without the least useful one; the first stays if it is alive."""
        replicas = self.replicas[partition]
        places = range(len(replicas)) if replicas[0] not in self.racks else range(1, len(replicas))

        def key(place: int) -> tuple[bool, int, int, int]:
            rest = replicas[:place] + replicas[place + 1 :]
            broker = replicas[place]
            return (
                broker not in self.racks,
                self._rack_count(rest),
                len(self._on[broker, None]),
                place,
            )

        place = max(places, key=key)
        return replicas[:place] + replicas[place + 1 :]

    def lead_by_idlest(self, partition: TopicPartition, only_if_first: BrokerId) -> None:
        """If that broker is first, put the one with the fewest leaders first."""
        replicas = self.replicas[partition]
        if replicas[0] != only_if_first:
            return
        alive = [broker for broker in replicas if broker in self.racks]
        first = min(alive, key=lambda one: len(self._led[one, None] - {partition}))
        self.set(partition, _led_by(replicas, first), self._why[partition][-1])

    def _rack_count(self, replicas: Iterable[BrokerId]) -> int:
        return len({self.racks[one] for one in replicas if one in self.racks})

    # --------------------------------------------------------------------------------- balancing

    def spread_racks(self) -> None:
        """Move one of two replicas that share a rack, if another rack is free."""
        racks = len(set(self.racks.values()))
        for partition in sorted(self.replicas):
            while self._rack_count(self.replicas[partition]) < min(
                racks, len([one for one in self.replicas[partition] if one in self.racks])
            ):
                seen: set[str | None] = set()
                twin = None
                for broker in self.replicas[partition]:
                    if broker in self.racks:
                        if self.racks[broker] in seen:
                            twin = broker
                        seen.add(self.racks[broker])
                new = self.best_for(partition)
                assert twin is not None
                assert new is not None, "a rack is free, so a broker is"
                why = f"two replicas in rack {self.racks[twin]}, none in {self.racks[new]}"
                self.swap(partition, twin, new, why)

    def spread_replicas(self, topic: str | None) -> None:
        """Move replicas, of a topic or of all topics, until brokers differ by at most one."""
        while True:
            counts = {broker: len(self._on[broker, topic]) for broker in self.racks}
            totals = {broker: len(self._on[broker, None]) for broker in self.racks}
            order = sorted(self.racks, key=lambda one: (counts[one], totals[one], one))
            pairs = [
                (over, under)
                for over in reversed(order)
                for under in order
                if counts[over] - counts[under] >= 2
            ]
            if not any(self._move_one(over, under, topic) for over, under in pairs):
                return

    def _move_one(self, over: BrokerId, under: BrokerId, topic: str | None) -> bool:
        """Move one replica from one broker to another, if no other balance gets worse."""

        def key(partition: TopicPartition) -> tuple[int, TopicPartition]:
            mine, theirs = self._on[over, partition.topic], self._on[under, partition.topic]
            return len(theirs) - len(mine), partition

        def keeps_racks(partition: TopicPartition) -> bool:
            replicas = self.replicas[partition]
            moved = [under if one == over else one for one in replicas]
            return self._rack_count(moved) >= self._rack_count(replicas)

        candidates = self._on[over, topic] - self._on[under, topic]
        best = min(filter(keeps_racks, candidates), key=key, default=None)
        if best is None or key(best)[0] >= 0:  # the balance of the topic would get worse
            return False
        what = f"replicas of {topic}" if topic is not None else "replicas"
        why = (
            f"broker {over} holds {len(self._on[over, topic])} {what}, broker {under} "
            f"{len(self._on[under, topic])}"
        )
        self.swap(best, over, under, why)
        return True

    def spread_leaders(self, topic: str | None) -> bool:
        """Change the order of replicas until leaders are balanced; returns whether any changed."""
        changed = False
        while True:
            counts = {broker: len(self._led[broker, topic]) for broker in self.racks}
            for over in sorted(self.racks, key=lambda one: (-counts[one], one)):
                path = self._path(over, topic, counts)
                if path:
                    break
            else:
                return changed
            changed = True
            why = f"broker {path[0]} leads {counts[path[0]]}, broker {path[-1]} {counts[path[-1]]}"
            for giver, taker in pairwise(path):
                partition = self._to_hand_over(giver, taker, topic)
                assert partition is not None, "the path was found by it"
                self.set(partition, _led_by(self.replicas[partition], taker), why)

    def _path(
        self, over: BrokerId, topic: str | None, counts: Mapping[BrokerId, int]
    ) -> list[BrokerId]:
        """A chain of brokers: each can give a leader to the next; the last leads two fewer."""
        came: dict[BrokerId, BrokerId | None] = {over: None}
        queue = deque([over])
        while queue:
            here = queue.popleft()
            if counts[over] - counts[here] >= 2:
                path = [here]
                while (before := came[path[-1]]) is not None:
                    path.append(before)
                return path[::-1]
            for there in sorted(self.racks, key=lambda one: (counts[one], one)):
                if there not in came and self._to_hand_over(here, there, topic) is not None:
                    came[there] = here
                    queue.append(there)
        return []

    def _to_hand_over(
        self, giver: BrokerId, taker: BrokerId, topic: str | None
    ) -> TopicPartition | None:
        """A partition that one broker leads and the other has a replica of.

        Of the topic with the most such leaders; None if the balance of its topic would get worse.
        """

        def key(partition: TopicPartition) -> tuple[int, TopicPartition]:
            mine, theirs = self._led[giver, partition.topic], self._led[taker, partition.topic]
            return len(theirs) - len(mine), partition

        best = min(self._led[giver, topic] & self._on[taker, topic], key=key, default=None)
        if best is None or (topic is None and key(best)[0] >= 0):
            return None
        return best


def _led_by(replicas: Replicas, first: BrokerId) -> Replicas:
    return (first, *(one for one in replicas if one != first))
