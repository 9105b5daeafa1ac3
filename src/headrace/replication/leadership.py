"""A leader's view of its followers: how far each is, who is in sync, what is committed. Pure.

A follower's fetch offset says that it holds everything below. What all of the in-sync set hold is
committed, if that set is large enough (`min.insync.replicas`): nothing is ever acknowledged that a
later leader may lack.
"""

from headrace.cluster.elections import effective_min_isr
from headrace.cluster.image import PartitionState
from headrace.types import BrokerId, Offset

UNKNOWN = -1


class Follower:
    """How far one follower is, and when it last was as far as its leader."""

    __slots__ = ("caught_up_ms", "end", "epoch", "fetched_ms", "leader_end")

    def __init__(self, now_ms: int) -> None:
        self.end: Offset = UNKNOWN
        self.epoch = UNKNOWN
        """Of the broker's start; one that has restarted since is not who it was."""
        self.leader_end: Offset = 0
        self.fetched_ms = now_ms
        self.caught_up_ms = now_ms

    def fetched(self, offset: Offset, epoch: int, leader_end: Offset, now_ms: int) -> None:
        """It asked for records from `offset` on, so it holds all before."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end:
            # It holds what there was at its last fetch.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.end = offset
        self.epoch = epoch
        self.leader_end = leader_end
        self.fetched_ms = now_ms


class Leadership:
    """The replicas of one partition during one leader epoch."""

    __slots__ = ("_me", "_proposed", "_state", "epoch_start", "followers")

    def __init__(
        self, me: BrokerId, state: PartitionState, epoch_start: Offset, now_ms: int
    ) -> None:
        self._me = me
        self.epoch_start = epoch_start
        """Where the log ended when this leadership began."""
        self._state = state
        self._proposed: tuple[BrokerId, ...] = ()
        self.followers: dict[BrokerId, Follower] = {}
        self.use(state, now_ms)

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """Who counts as in sync, as the cluster's metadata have it."""
        return self._state.isr

    @property
    def partition_epoch(self) -> int:
        """Of the state that the cluster's metadata have, as far as this broker knows."""
        return self._state.partition_epoch

    def use(self, state: PartitionState, now_ms: int) -> None:
        """Take over who holds the partition and who is in sync, as it was written down."""
        self._state = state
        self._proposed = ()
        others = [broker for broker in state.replicas if broker != self._me]
        self.followers = {one: self.followers.get(one) or Follower(now_ms) for one in others}

    def propose(self, joining: tuple[BrokerId, ...]) -> None:
        """These are about to be written down as in sync.

        Until it is known what became of that, nothing is committed without them: others may see
        them as in sync already, and elect them.
        """
        self._proposed = joining

    def settle(self) -> None:
        """What was proposed has been written down by now, or never will be."""
        self._proposed = ()

    def committed(self, own_end: Offset, min_isr: int) -> Offset:
        """Up to where everybody in sync has everything; -1 if that is not known yet."""
        isr = self._state.isr
        if len(isr) < effective_min_isr(self._state, min_isr) or self._me not in isr:
            return UNKNOWN
        needed = (*isr, *self._proposed) if self._proposed else isr
        ends = [self.followers[broker].end for broker in needed if broker != self._me]
        return min([own_end, *ends])

    def joining(self, high_watermark: Offset) -> tuple[BrokerId, ...]:
        """Followers that are not in sync, and hold everything that was committed."""
        bound = max(high_watermark, self.epoch_start)
        return tuple(
            broker
            for broker, follower in self.followers.items()
            if broker not in self._state.isr and follower.end >= bound
        )

    def lagging(self, leader_end: Offset, now_ms: int, max_lag_ms: int) -> tuple[BrokerId, ...]:
        """Followers in sync that have not been as far as the leader for too long."""
        return tuple(
            broker
            for broker, follower in self.followers.items()
            if broker in self._state.isr
            and follower.end < leader_end
            and now_ms - follower.caught_up_ms > max_lag_ms
        )

    def keep_time(self, leader_end: Offset, now_ms: int) -> None:
        """Whoever has everything now is up to date, though it may not have fetched for long."""
        for follower in self.followers.values():
            if follower.end >= leader_end:
                follower.caught_up_ms = now_ms
