"""A worker as a member of the group: joins, assigns slots if it is the leader, sends heartbeats.

It is a static member of an ordinary consumer group with cooperative rebalances: a member keeps its
slots while the group rebalances, and a slot is given to another worker only after its holder has
released it. The subscription of a member has the URL of its worker as user data, and an assignment
has the owners of all slots. All of this runs in a thread; results are passed to the event loop.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.client.cluster import GROUP, Cluster
from headrace.client.config import ClientConfig
from headrace.client.consumer_protocol import (
    MalformedProtocol,
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headrace.client.errors import ClientError, check
from headrace.connect.sharing.slots import share
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import GroupId, i32, milliseconds

if TYPE_CHECKING:
    from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
    from kio.schema.sync_group.v5.request import SyncGroupRequestAssignment

log = logging.getLogger("headrace.connect")

PROTOCOL_TYPE, PROTOCOL = "consumer", "cooperative-sticky"
LONGEST_PAUSE_S = 2.0
JOIN_SLACK_S = 5.0
"""How much longer than a rebalance the response to JoinGroup may take."""

_LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""The group no longer counts this member, so its slots may belong to others."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The group, and this worker in it."""

    group: str
    topic: str
    """The topic whose partitions are the slots."""
    instance_id: str
    """HOST:PORT of the worker. A worker that is started again takes its old place."""
    url: str
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """What the group says: the slots of this worker, and the URLs of all owners."""

    slots: frozenset[int]
    owners: Mapping[int, str]


class SlotMember:
    """One membership, from `start` to `stop`."""

    def __init__(
        self,
        config: ClientConfig,
        options: MemberOptions,
        occupied: Callable[[], frozenset[int]],
        take: Callable[[SlotAssignment | None], None],
    ) -> None:
        """`take` is called in the event loop; with None if the membership is lost, so that others
        may own the slots. `occupied` has the slots with connectors, and is called in a thread."""
        session_s = options.session_timeout_ms / 1000
        self._config = replace(config, request_timeout_s=session_s / 3)
        # The response to JoinGroup waits for all members.
        self._joining_config = replace(config, request_timeout_s=session_s + JOIN_SLACK_S)
        self._options = options
        self._occupied = occupied
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._member_id = ""
        self._generation = -1
        self._responded = time.monotonic()
        """When the coordinator last confirmed the membership."""
        self._lock = threading.Lock()
        """Guards the three fields below."""
        self._held: frozenset[int] = frozenset()
        self._assigned: frozenset[int] = frozenset()
        self._must_join = True
        self.problem = ""
        """Why the worker is not in the group; empty if it is, or is joining."""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="connect-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group. Blocks until the coordinator has responded, or cannot be reached."""
        self._stopping.set()
        self._wake.set()
        try:
            self._leave()
        except (KafkaError, ClientError) as error:
            log.info("group %s was not left: %s", self._options.group, error)
        self._thread.join(JOIN_SLACK_S)

    def released(self, slots: frozenset[int]) -> None:
        """The connectors of these slots have stopped, so that other workers may own the slots."""
        with self._lock:
            gone = slots - self._assigned
            self._held -= gone
            self._must_join |= bool(gone)
        self._wake.set()

    # ---------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        joining, beating = Cluster(self._joining_config), Cluster(self._config)
        pause_s = self._config.retry_backoff_s
        try:
            while not self._stopping.is_set():
                try:
                    if self._joins():
                        self._join(joining)
                    else:
                        self._beat(beating)
                    self._responded = time.monotonic()
                    self.problem = ""
                    pause_s = self._config.retry_backoff_s
                    if not self._joins():
                        self._wait(self._options.heartbeat_interval_ms / 1000)
                except Exception as error:
                    if self._stopping.is_set():
                        return
                    # Without heartbeats the slots would belong to others, so the thread goes on.
                    if not isinstance(error, (KafkaError, ClientError)):
                        log.exception("an error in the membership of the group")
                    if self._must_end(error):
                        return
                    if not _is_rebalance(error):
                        joining.renew()
                        beating.renew()
                        self._wait(pause_s)
                        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            joining.close()
            beating.close()

    def _wait(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _joins(self) -> bool:
        with self._lock:
            return self._must_join

    def _join_again(self) -> None:
        with self._lock:
            self._must_join = True

    def _must_end(self, error: Exception) -> bool:
        """Notes an error; whether the membership cannot be continued."""
        group = self._options.group
        if _is_rebalance(error):
            self._join_again()
            return False
        code = error.code if isinstance(error, KafkaError) else None
        is_over = time.monotonic() - self._responded > self._options.session_timeout_ms / 1000
        if code in _LOST or is_over:
            self._lose(error)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.problem = (
                f"Another worker of group {group} has the address {self._options.instance_id}. "
                "Set rest.advertised.host.name and rest.advertised.port, and restart this worker"
            )
            log.error(self.problem)
            return True
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            self.problem = (
                f"Group {group} has members of another kind, such as workers of Kafka Connect. "
                "Stop them, or set another group.id"
            )
        elif is_over:
            self.problem = f"The worker is not in group {group}: {error}"
        log.warning("group %s: %s", group, error)
        return False

    def _lose(self, error: Exception) -> None:
        with self._lock:
            lost, self._held, self._assigned = self._held, frozenset(), frozenset()
        if isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        self._generation = -1
        self._join_again()
        if lost:
            log.warning("the membership in group %s is lost: %s", self._options.group, error)
            self._loop.call_soon_threadsafe(self._take, None)

    def _beat(self, cluster: Cluster) -> None:
        from kio.schema.heartbeat.v4.request import HeartbeatRequest
        from kio.schema.heartbeat.v4.response import HeartbeatResponse

        request = HeartbeatRequest(
            group_id=GroupId(self._options.group),
            generation_id=i32(self._generation),
            member_id=self._member_id,
            group_instance_id=self._options.instance_id,
        )
        answer = cluster.ask(request, HeartbeatResponse, self._coordinator(cluster))
        check(int(answer.error_code), "heartbeat")

    def _coordinator(self, cluster: Cluster) -> int:
        return cluster.coordinator(GROUP, self._options.group)

    def _leave(self) -> None:
        from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
        from kio.schema.leave_group.v5.response import LeaveGroupResponse

        # The thread may be waiting for a response on its own connection.
        with Cluster(self._config) as cluster:
            member = MemberIdentity(
                member_id=self._member_id,
                group_instance_id=self._options.instance_id,
                reason="the worker stops",
            )
            request = LeaveGroupRequest(group_id=GroupId(self._options.group), members=(member,))
            cluster.ask(request, LeaveGroupResponse, self._coordinator(cluster))

    # ------------------------------------------------------------------------------------- joining

    def _join(self, cluster: Cluster) -> None:
        with self._lock:
            self._must_join = False
            held = self._held
        try:
            self._accept(self._join_once(cluster, held))
        except BaseException:
            self._join_again()
            raise

    def _join_once(self, cluster: Cluster, held: frozenset[int]) -> MemberAssignment:
        from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
        from kio.schema.join_group.v9.response import JoinGroupResponse
        from kio.schema.sync_group.v5.request import SyncGroupRequest
        from kio.schema.sync_group.v5.response import SyncGroupResponse

        options = self._options
        protocol = JoinGroupRequestProtocol(
            name=PROTOCOL, metadata=encode_subscription(self._subscription(held))
        )
        join = JoinGroupRequest(
            group_id=GroupId(options.group),
            session_timeout=milliseconds(options.session_timeout_ms),
            rebalance_timeout=milliseconds(options.session_timeout_ms),
            member_id=self._member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
            reason="a worker shares the connectors",
        )
        joined = cluster.ask(join, JoinGroupResponse, self._coordinator(cluster))
        self._member_id = joined.member_id or self._member_id
        check(int(joined.error_code), f"joining group {options.group}")
        self._generation = int(joined.generation_id)
        sync = SyncGroupRequest(
            group_id=GroupId(options.group),
            generation_id=joined.generation_id,
            member_id=self._member_id,
            group_instance_id=options.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=self._assignments(joined),
        )
        synced = cluster.ask(sync, SyncGroupResponse, self._coordinator(cluster))
        check(int(synced.error_code), f"joining group {options.group}")
        return decode_assignment(synced.assignment)

    def _subscription(self, held: frozenset[int]) -> MemberSubscription:
        topic = self._options.topic
        owned = frozenset(TopicPartition(topic, slot) for slot in held)
        return MemberSubscription((topic,), self._options.url.encode(), owned)

    def _accept(self, assignment: MemberAssignment) -> None:
        mine = self._options.topic
        slots = frozenset(each.partition for each in assignment.partitions if each.topic == mine)
        with self._lock:
            self._assigned = slots
            self._held |= slots
        owners = _decode_owners(assignment.user_data)
        self._loop.call_soon_threadsafe(self._take, SlotAssignment(slots, owners))

    def _assignments(self, joined: "JoinGroupResponse") -> "tuple[SyncGroupRequestAssignment, ...]":
        """Those that the leader of the group decides; other members send none."""
        from kio.schema.sync_group.v5.request import SyncGroupRequestAssignment

        if joined.leader != joined.member_id or joined.skip_assignment:
            return ()
        decided = assign(joined.members, self._options.topic, self._occupied())
        return tuple(
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(each))
            for member, each in decided.items()
        )


def assign(
    members: "Sequence[JoinGroupResponseMember]", own_topic: str, occupied: frozenset[int]
) -> dict[str, MemberAssignment]:
    """The assignment of every member. `occupied` is known for the leader's own topic only.

    Workers of other clusters, with slots in another topic, may use the same group by mistake; each
    topic is shared by its own members.
    """
    decided = {str(each.member_id): MemberAssignment(()) for each in members}
    by_topic: dict[str, dict[str, MemberSubscription]] = {}
    for each in members:
        try:
            found = decode_subscription(each.metadata)
        except MalformedProtocol as error:
            log.warning("member %s of the group is no worker: %s", each.member_id, error)
            continue
        if found.user_data and found.topics:
            by_topic.setdefault(found.topics[0], {})[str(each.member_id)] = found
    for topic, subscriptions in by_topic.items():
        held = {
            member: frozenset(one.partition for one in found.owned or () if one.topic == topic)
            for member, found in subscriptions.items()
        }
        shares = share(held, occupied if topic == own_topic else frozenset())
        urls = {member: (found.user_data or b"") for member, found in subscriptions.items()}
        owners = {urls[member].decode(): sorted(slots) for member, slots in shares.items()}
        for member, slots in shares.items():
            partitions = tuple(TopicPartition(topic, slot) for slot in sorted(slots))
            decided[member] = MemberAssignment(partitions, json.dumps(owners).encode())
    return decided


def _decode_owners(data: bytes | None) -> dict[int, str]:
    found = json.loads(data) if data else {}
    return {slot: url for url, slots in found.items() for slot in slots}


def _is_rebalance(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
