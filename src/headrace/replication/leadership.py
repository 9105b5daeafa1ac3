"""A leader's view of its followers: fetch offsets, the ISR and the committed offset. Pure.

A follower's fetch offset says that it has everything below. Records that all in-sync replicas have
are committed, if there are enough of them (`min.insync.replicas`): a record that a later leader may
lack is never acknowledged.
"""

from headrace.cluster.elections import effective_min_isr
from headrace.cluster.image import PartitionState
from headrace.types import BrokerId, Offset

UNKNOWN = -1


class Follower:
    """The fetch offset of one follower, and when it was last caught up."""

    __slots__ = ("caught_up_ms", "end", "epoch", "fetched_ms", "leader_end")

    def __init__(self, now_ms: int) -> None:
        self.end: Offset = UNKNOWN
        self.epoch = UNKNOWN
        """The broker epoch of the fetch; a restarted broker has another one."""
        self.leader_end: Offset = 0
        self.fetched_ms = now_ms
        self.caught_up_ms = now_ms

    def fetched(self, offset: Offset, epoch: int, leader_end: Offset, now_ms: int) -> None:
        """The follower fetched from `offset`, so it holds everything below."""
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
        """The ISR in the cluster's metadata."""
        return self._state.isr

    @property
    def partition_epoch(self) -> int:
        """The partition epoch in the cluster's metadata, as far as this broker knows."""
        return self._state.partition_epoch

    def use(self, state: PartitionState, now_ms: int) -> None:
        """Apply the replicas and the ISR from the cluster's metadata."""
        self._state = state
        self._proposed = ()
        others = [broker for broker in state.replicas if broker != self._me]
        self.followers = {one: self.followers.get(one) or Follower(now_ms) for one in others}

    def propose(self, joining: tuple[BrokerId, ...]) -> None:
        """Propose these replicas as in sync.

        Until the outcome is known, nothing is committed without them: other brokers may already see
        them in the ISR and elect them.
        """
        self._proposed = joining

    def settle(self) -> None:
        """The proposal was committed, or never will be."""
        self._proposed = ()

    def committed(self, own_end: Offset, min_isr: int) -> Offset:
        """The offset up to which all in-sync replicas have the records; -1 if not known yet."""
        isr = self._state.isr
        if len(isr) < effective_min_isr(self._state, min_isr) or self._me not in isr:
            return UNKNOWN
        needed = (*isr, *self._proposed) if self._proposed else isr
        ends = [self.followers[broker].end for broker in needed if broker != self._me]
        return min([own_end, *ends])

    def joining(self, high_watermark: Offset) -> tuple[BrokerId, ...]:
        """Followers outside the ISR that hold everything that was committed."""
        bound = max(high_watermark, self.epoch_start)
        return tuple(
            broker
            for broker, follower in self.followers.items()
            if broker not in self._state.isr and follower.end >= bound
        )

    def lagging(self, leader_end: Offset, now_ms: int, max_lag_ms: int) -> tuple[BrokerId, ...]:
        """In-sync followers that have not been caught up for too long."""
        return tuple(
            broker
            for broker, follower in self.followers.items()
            if broker in self._state.isr
            and follower.end < leader_end
            and now_ms - follower.caught_up_ms > max_lag_ms
        )

    def note_caught_up(self, leader_end: Offset, now_ms: int) -> None:
        """Followers that have everything now are caught up, even without a recent fetch."""
        for follower in self.followers.values():
            if follower.end >= leader_end:
                follower.caught_up_ms = now_ms
