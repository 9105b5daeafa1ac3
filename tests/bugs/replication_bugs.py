"""Deliberate bugs in replication, which the simulator and the checker have to find."""

from weakref import WeakSet

from headrace.cluster.image import PartitionState
from headrace.cluster.membership import Membership, Rules
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Change
from headrace.replication.fetcher import Fetcher
from headrace.replication.leadership import Leadership
from headrace.replication.replica import LocalReplica
from headrace.types import BrokerId, Offset
from tests.bugs.swaps import swap


def _commit_at_once() -> None:
    """The high watermark is the log's end, whoever has what."""

    def own_end(_self: Leadership, own_end: Offset, _min_isr: int) -> Offset:
        return own_end

    swap(Leadership, "committed", own_end)


def _never_truncate() -> None:
    """A follower keeps what its leader does not have."""

    def keep(_self: LocalReplica, _offset: Offset) -> None: ...

    swap(LocalReplica, "truncate_to", keep)


def _acknowledge_early() -> None:
    """acks=all is answered as soon as the leader has the batch."""

    def always(_self: LocalReplica, _offset: Offset) -> bool:
        return True

    swap(LocalReplica, "is_committed", always)


def _truncate_to_watermark() -> None:
    """A follower cuts to its own high watermark, as Kafka did before KIP-101."""
    cut = Fetcher._truncate_one

    def cut_to_watermark(self: Fetcher, one: object, _answer: tuple[int, int]) -> int | None:
        return cut(self, one, (-1, -1))  # type: ignore[arg-type] # its own class

    swap(Fetcher, "_truncate_one", cut_to_watermark)


def _join_unseen() -> None:
    """Every follower is in sync, however far behind it is."""

    def everybody(self: Leadership, _high_watermark: Offset) -> tuple[BrokerId, ...]:
        return tuple(
            broker
            for broker, follower in self.followers.items()
            if broker not in self.isr and follower.end >= 0
        )

    swap(Leadership, "joining", everybody)


def _trust_after_crash() -> None:
    """A broker that stopped uncleanly still counts as in sync."""

    def as_before(_self: Membership, state: PartitionState, _rules: Rules) -> PartitionState:
        return state

    swap(Membership, "_after_unclean_stop", as_before)


def _trust_old_controllers() -> None:
    """Whoever was the controller once goes on electing."""
    guard, is_controller = Metadata._guard, vars(Membership)["is_controller"].fget
    once: WeakSet[Membership] = WeakSet()

    def was_controller(self: Membership) -> bool:
        if is_controller(self):
            once.add(self)
        return self in once

    def unguarded(self: Metadata, as_controller: bool) -> list[Change]:
        return [] if as_controller else guard(self, as_controller)

    swap(Membership, "is_controller", property(was_controller))
    swap(Metadata, "_guard", unguarded)


REPLICATION_BUGS = {
    "watermark": _commit_at_once,
    "truncation": _never_truncate,
    "early-ack": _acknowledge_early,
    "truncation-epoch": _truncate_to_watermark,
    "joining": _join_unseen,
    "unclean": _trust_after_crash,
    "controller": _trust_old_controllers,
}
