"""One static member of a classic group: joins, sends heartbeats in the background, commits offsets.

It is for readers that choose their partitions themselves and want to appear in group tools: as the
leader of the group, the member assigns the given partitions to itself. With its instance id, a
restarted reader takes its old place immediately, and a second reader with the same id fences the
first.
"""

import threading
from collections.abc import Iterable, Mapping

from headrace.client.cluster import GROUP, Cluster
from headrace.client.config import ClientConfig
from headrace.client.consumer_protocol import (
    MemberAssignment,
    MemberSubscription,
    encode_assignment,
    encode_subscription,
)
from headrace.client.errors import ClientError, check, is_retriable
from headrace.client.groups import Committed, GroupMembership, commit_offsets
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import GroupId, i32, milliseconds

PROTOCOL_TYPE, PROTOCOL = "consumer", "range"
COMMIT_WITHIN_S = 15.0

_REJOIN = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)


class Fenced(ClientError):
    """Another member with this instance id has joined the group; this one cannot rejoin."""


class GroupMember:
    """A member of a group, with a thread that joins and sends heartbeats."""

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        instance_id: str,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
    ) -> None:
        self._group = group
        self._instance_id = instance_id
        self._session_timeout_ms = session_timeout_ms
        self._interval_s = heartbeat_interval_ms / 1000
        self._cluster = Cluster(config)
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._member_id = ""
        self._generation = -1
        self._fenced: Fenced | None = None
        # Guards all fields above; held during a call to the coordinator.
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the partitions of the member; it joins in the background."""
        with self._lock:
            self._wanted = frozenset(partitions)
            self._generation = -1
        if self._thread is None:
            name = f"group {self._group}"
            self._thread = threading.Thread(target=self._keep_alive, name=name, daemon=True)
            self._thread.start()
        self._wake.set()

    @property
    def is_in(self) -> bool:
        """Whether the member has joined, so that a commit need not join first."""
        return self._generation >= 0

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as the member; joins first if necessary. Raises Fenced."""
        committed = {at: Committed(offset) for at, offset in offsets.items()}
        with self._lock:
            for last in (False, False, True):
                self._join_if_needed()
                member = GroupMembership(self._generation, self._member_id, self._instance_id)
                try:
                    commit_offsets(self._cluster, self._group, committed, member, COMMIT_WITHIN_S)
                    return
                except KafkaError as error:
                    self._judge(error)
                    if error.code not in _REJOIN or last:
                        raise

    def close(self) -> None:
        """Leave the group in one attempt; the committed offsets remain."""
        from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
        from kio.schema.leave_group.v5.response import LeaveGroupResponse

        self._closed = True
        self._wake.set()
        with self._lock:
            try:
                if self._member_id and self._fenced is None:
                    member = MemberIdentity(
                        member_id=self._member_id,
                        group_instance_id=self._instance_id,
                        reason="the query has ended",
                    )
                    request = LeaveGroupRequest(group_id=GroupId(self._group), members=(member,))
                    self._cluster.ask(request, LeaveGroupResponse, self._coordinator())
            except (ClientError, KafkaError):
                pass  # the session will time out
            self._cluster.close()
        if self._thread is not None:
            self._thread.join()

    def _coordinator(self) -> int:
        return self._cluster.coordinator(GROUP, self._group)

    def _judge(self, error: KafkaError) -> None:
        """Update the membership after an error of the coordinator."""
        if error.code == ErrorCode.FENCED_INSTANCE_ID:
            self._fenced = Fenced(
                f"group {self._group}: another query has joined as {self._instance_id!r}"
            )
            raise self._fenced from error
        if error.code in _REJOIN:
            self._generation = -1
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if is_retriable(error):
            self._cluster.forget()

    # ------------------------------------------------------------------------------- background

    def _keep_alive(self) -> None:
        while not self._closed:
            try:
                with self._lock:
                    if self._fenced is not None or self._closed:
                        return
                    self._beat()
            except (ClientError, KafkaError):
                pass  # the next heartbeat retries; commits report permanent errors
            self._wake.wait(self._interval_s)
            self._wake.clear()

    def _beat(self) -> None:
        from kio.schema.heartbeat.v4.request import HeartbeatRequest
        from kio.schema.heartbeat.v4.response import HeartbeatResponse

        if self._generation < 0:
            self._join_if_needed()
            return
        request = HeartbeatRequest(
            group_id=GroupId(self._group),
            generation_id=i32(self._generation),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        try:
            answer = self._cluster.ask(request, HeartbeatResponse, self._coordinator())
            check(int(answer.error_code), f"heartbeat of group {self._group}")
        except KafkaError as error:
            self._judge(error)
            if error.code in _REJOIN:
                self._join_if_needed()

    # ---------------------------------------------------------------------------------- joining

    def _join_if_needed(self) -> None:
        if self._fenced is not None:
            raise self._fenced
        if self._generation < 0:
            self._cluster.retry(f"joining group {self._group}", self._join, 2 * COMMIT_WITHIN_S)

    def _join(self) -> None:
        """Join and sync until the group is stable with the wanted assignment."""
        for _ in range(5):
            try:
                generation, assigned, leads = self._join_once()
            except KafkaError as error:
                self._judge(error)
                if error.code not in _REJOIN:
                    raise
                continue
            # A leader that rejoins as a static member gets the old assignment; joining again as the
            # leader makes the coordinator request a new one.
            if assigned == _assignment(self._wanted) or not leads:
                self._generation = generation
                return
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self._group} does not settle")

    def _join_once(self) -> tuple[int, bytes, bool]:
        from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
        from kio.schema.join_group.v9.response import JoinGroupResponse
        from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
        from kio.schema.sync_group.v5.response import SyncGroupResponse

        topics = tuple(sorted({each.topic for each in self._wanted}))
        subscription = encode_subscription(MemberSubscription(topics))
        join = JoinGroupRequest(
            group_id=GroupId(self._group),
            session_timeout=milliseconds(self._session_timeout_ms),
            rebalance_timeout=milliseconds(self._session_timeout_ms),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription),),
            reason="a query shows what it reads",
        )
        joined = self._cluster.ask(join, JoinGroupResponse, self._coordinator())
        if joined.member_id:
            self._member_id = joined.member_id
        check(int(joined.error_code), f"joining group {self._group}")
        leads = joined.leader == joined.member_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if leads and not joined.skip_assignment:
            # Other members get no partitions, because a query reads all of them itself.
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member.member_id,
                    assignment=_assignment(
                        self._wanted if member.member_id == self._member_id else ()
                    ),
                )
                for member in joined.members
            )
        sync = SyncGroupRequest(
            group_id=GroupId(self._group),
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        synced = self._cluster.ask(sync, SyncGroupResponse, self._coordinator())
        check(int(synced.error_code), f"joining group {self._group}")
        return int(joined.generation_id), synced.assignment, leads


def _assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return encode_assignment(MemberAssignment(tuple(partitions)))
