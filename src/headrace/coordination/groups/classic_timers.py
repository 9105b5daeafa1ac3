"""The keys of a classic group's timers."""

from headrace.coordination.groups.group import CLASSIC
from headrace.coordination.groups.roster import ClassicMember
from headrace.coordination.outcome import Timer

MEMBER, JOIN, SYNC = "member", "join", "sync"
"""Third part of a timer's key: a member's session (the fourth part is its id), a phase's end."""
REBALANCE = "rebalance"
"""The same: the group was a consumer group until now, and has lost members."""


class ClassicTimers:
    """Makes the timers of one group."""

    __slots__ = ("_group_id",)

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def at(self, at_ms: int | None, *key: str) -> Timer:
        """Set or stop a timer."""
        return Timer((CLASSIC, self._group_id, *key), at_ms)

    def session(self, member: ClassicMember, now_ms: int) -> Timer:
        """The member is alive: it has its session timeout from now on."""
        return self.at(now_ms + member.session_timeout_ms, MEMBER, member.member_id)
