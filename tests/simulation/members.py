"""Members of groups in the simulation, of both protocols, and a client that reads offsets.

They retry like clients. A member joins, commits offsets, and leaves on request; it dies with the
end of its task, without notice.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse

from headrace.client.errors import ClientError
from headrace.cluster.image import Topic
from headrace.errors import ErrorCode
from headrace.wire import codec
from headrace.wire.primitives import GroupId, TopicName, i32, i64, milliseconds
from tests.simulation.clients import Client
from tests.simulation.group_judge import GroupJudge, Place
from tests.simulation.loop import Process
from tests.simulation.network import Network

_Response = TypeVar("_Response")

ASK_S = 2.0
HEARTBEAT_S = 0.4
CLASSIC_SESSION_MS = 6000
REBALANCE_MS = 3000
_JOIN_S = 8.0
"""A join is answered when all members have joined, at the latest after the rebalance time-out."""
_PROTOCOL, _PROTOCOL_TYPE = "in-order", "simulated"
_LEAVING = -1
_ATTEMPTS_TO_LEAVE = 10

_NOT_DONE = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Answers to a commit that has not happened and will not."""


class CoordinatorClient(Client):
    """Asks one broker after the other until it has found the coordinator."""

    async def ask(
        self,
        request: object,
        shape: type[_Response],
        timeout_s: float = ASK_S,
        version: int | None = None,
    ) -> _Response | None:
        """The answer; None if nobody knows what became of the request.

        Without a version it is the newest that both sides have.
        """
        try:
            peer = await self.connected()
            peer.timeout_s = timeout_s
            if version is None:
                return await peer.ask(request, shape)
            key: int = request.__api_key__  # type: ignore[attr-defined]
            body = codec.encode_request(version, request)
            return peer.conversation.decode(await peer.ask_encoded(key, version, body), shape)
        except ClientError:
            await self.elsewhere()
            return None


class Member(CoordinatorClient):
    """What members of both protocols do the same way."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        group: str,
        topic: Topic,
        judge: GroupJudge,
    ) -> None:
        super().__init__(process, network, random, nodes)
        self.group = group
        self.member_id = ""
        self.owned: frozenset[int] = frozenset()
        self.stable = False
        """Whether it knows of no rebalance that is under way."""
        self.leaving = False
        self._topic = topic
        self._judge = judge
        self.commit_chance = 0.7
        """How often it commits an offset after a heartbeat."""

    async def run(self) -> None:
        while not self.leaving:
            await self._take_part()
        # As a client that is closed: it is gone whatever its coordinator answers.
        for _ in range(_ATTEMPTS_TO_LEAVE):
            if await self._leave():
                return
            await self.elsewhere()

    async def _take_part(self) -> None:
        """Join, and stay for as long as the coordinator accepts the membership."""
        raise NotImplementedError

    async def _leave(self) -> bool:
        """Tell the coordinator; whether it has answered."""
        raise NotImplementedError

    async def _commit(self, generation: int) -> ErrorCode:
        """Commit an offset of one partition, again and again until it is known what happened.

        It does so only sometimes.
        """
        if not self.owned or self._random.random() >= self.commit_chance:
            return ErrorCode.NONE
        commit = self._judge.begin_commit(
            Place(self.group, self._random.choice(sorted(self.owned)))
        )
        partition = OffsetCommitRequestPartition(
            partition_index=i32(commit.place.partition),
            committed_offset=i64(commit.offset),
            committed_metadata="",
        )
        request = OffsetCommitRequest(
            group_id=GroupId(self.group),
            generation_id_or_member_epoch=i32(generation),
            member_id=self.member_id,
            topics=(
                OffsetCommitRequestTopic(name=TopicName(self._topic.name), partitions=(partition,)),
            ),
        )
        sent = 0
        while not self.leaving:
            answer = await self.ask(request, OffsetCommitResponse)
            sent += 1
            if answer is None:
                continue
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                self._judge.acknowledge(commit)
                return code
            if code in _NOT_DONE:
                # An earlier attempt whose answer was lost may have succeeded.
                commit.refused = sent == 1
                return code
            await self.elsewhere()
        return ErrorCode.NONE


class ClassicMember(Member):
    """A member of the classic protocol; its leader assigns partitions in turn."""

    async def _take_part(self) -> None:
        self.stable = False
        joined = await self._join()
        if joined is None:
            return
        generation = joined.generation_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            assignments = self._assign(sorted(one.member_id for one in joined.members))
        request = SyncGroupRequest(
            group_id=GroupId(self.group),
            generation_id=generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assignments,
        )
        synced = await self.ask(request, SyncGroupResponse, _JOIN_S)
        if synced is None:
            return
        if synced.error_code:
            await self._refused(ErrorCode(synced.error_code))
            return
        self.owned = frozenset(synced.assignment)
        self._judge.assigned(self.group, generation, self.member_id, self.owned)
        self.stable = True
        await self._stay(generation)
        self.owned = frozenset()

    async def _join(self) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=GroupId(self.group),
            session_timeout=milliseconds(CLASSIC_SESSION_MS),
            rebalance_timeout=milliseconds(REBALANCE_MS),
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=(JoinGroupRequestProtocol(name=_PROTOCOL, metadata=b""),),
        )
        joined = await self.ask(request, JoinGroupResponse, _JOIN_S)
        if joined is None:
            return None
        code = ErrorCode(joined.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return joined if code is ErrorCode.NONE else None
        await self._refused(code)
        return None

    def _assign(self, members: list[str]) -> tuple[SyncGroupRequestAssignment, ...]:
        count = len(self._topic.partitions)
        return tuple(
            SyncGroupRequestAssignment(
                member_id=one, assignment=bytes(range(index, count, len(members)))
            )
            for index, one in enumerate(members)
        )

    async def _refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code not in _NOT_DONE:
            await self.elsewhere()

    async def _stay(self, generation: int) -> None:
        request = HeartbeatRequest(
            group_id=GroupId(self.group), generation_id=i32(generation), member_id=self.member_id
        )
        while not self.leaving:
            await asyncio.sleep(self._random.uniform(0, HEARTBEAT_S))
            code = await self._commit(generation)
            if code is ErrorCode.NONE:
                answer = await self.ask(request, HeartbeatResponse)
                if answer is None:
                    continue
                code = ErrorCode(answer.error_code)
            if code in _NOT_DONE:
                await self._refused(code)
                return
            if code is not ErrorCode.NONE:
                await self.elsewhere()

    async def _leave(self) -> bool:
        if not self.member_id:
            return True
        gone = MemberIdentity(member_id=self.member_id)
        request = LeaveGroupRequest(group_id=GroupId(self.group), members=(gone,))
        answer = await self.ask(request, LeaveGroupResponse)
        return answer is not None and ErrorCode(answer.error_code) != ErrorCode.NOT_COORDINATOR


class ConsumerMember(Member):
    """A member of the consumer protocol (KIP-848)."""

    epoch = 0
    _says_everything = True
    """Whether the next heartbeat has all fields, as after an answer that was lost: then the
    coordinator repeats the assignment."""

    async def _take_part(self) -> None:
        if not self.member_id:
            self.member_id = f"{self.group}-{self._random.getrandbits(64):016x}"
        while not self.leaving:
            began_s = self._network.loop.time()
            request, self._says_everything = self._heartbeat(), True
            answer = await self.ask(request, ConsumerGroupHeartbeatResponse)
            if answer is not None:
                await self._heed(answer, began_s)
            await asyncio.sleep(self._random.uniform(0, HEARTBEAT_S))
            if self.epoch > 0:
                code = await self._commit(self.epoch)
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self._begin_again()

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        everything = self.epoch == 0 or self._says_everything
        partitions = tuple(map(i32, sorted(self.owned)))
        owned = TopicPartitions(topic_id=self._topic.id, partitions=partitions)
        return ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.group),
            member_id=self.member_id,
            member_epoch=i32(self.epoch),
            rebalance_timeout=milliseconds(2 * REBALANCE_MS if everything else -1),
            subscribed_topic_names=(TopicName(self._topic.name),) if everything else None,
            topic_partitions=(owned,) if partitions else (),
        )

    async def _heed(self, answer: ConsumerGroupHeartbeatResponse, began_s: float) -> None:
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._begin_again()
        elif code is not ErrorCode.NONE:
            await self.elsewhere()
        else:
            self.epoch = answer.member_epoch
            self._says_everything = False
            assigned = self.owned
            if answer.assignment is not None:
                assigned = frozenset(
                    index for one in answer.assignment.topic_partitions for index in one.partitions
                )
                self._judge.assigned(self.group, self.epoch, self.member_id, assigned)
            self._give_up(self.owned - assigned)
            self.owned = assigned
            self.stable = True
            self._judge.owns(self.group, self.member_id, assigned, began_s)

    def _give_up(self, partitions: frozenset[int]) -> None:
        self.owned -= partitions
        self._judge.gives_up(self.group, self.member_id, partitions)

    def _begin_again(self) -> None:
        self._give_up(self.owned)
        self.epoch = 0
        self.stable = False

    async def _leave(self) -> bool:
        self._give_up(self.owned)
        if self.epoch == 0:
            return True
        request = ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.group),
            member_id=self.member_id,
            member_epoch=i32(_LEAVING),
            topic_partitions=None,
        )
        answer = await self.ask(request, ConsumerGroupHeartbeatResponse)
        return answer is not None and ErrorCode(answer.error_code) != ErrorCode.NOT_COORDINATOR


class Leader(NamedTuple):
    """The broker that leads a group's partition, as the store has it."""

    node: int
    epoch: int


class OffsetReader(CoordinatorClient):
    """Reads the committed offsets of groups, and has them judged."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        groups: tuple[str, ...],
        topic: Topic,
        judge: GroupJudge,
        coordinator_of: Callable[[str], Leader],
    ) -> None:
        super().__init__(process, network, random, nodes)
        self._groups = groups
        self._topic = topic
        self._judge = judge
        self._coordinator_of = coordinator_of

    async def run(self) -> None:
        while not self.stopping:
            await self.read(self._random.choice(self._groups))
            await asyncio.sleep(self._random.expovariate(3))

    async def read(self, group: str) -> bool:
        """Ask for all offsets of a group; whether they were told and judged.

        A broker that was the coordinator and has not heard of its successor may answer with what
        was committed before; such an answer is not judged.
        """
        wanted = OffsetFetchRequestTopics(
            name=TopicName(self._topic.name),
            partition_indexes=tuple(i32(one) for one in range(len(self._topic.partitions))),
        )
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=(wanted,)),)
        )
        since_s, node = self._network.loop.time(), self._node
        coordinator = self._coordinator_of(group)
        answer = await self.ask(request, OffsetFetchResponse)
        if answer is None:
            return False
        (found,) = answer.groups
        if found.error_code:
            await self.elsewhere()
            return False
        if coordinator.node != node or self._coordinator_of(group) != coordinator:
            return False
        for one in found.topics[0].partitions:
            self._judge.found(Place(group, one.partition_index), one.committed_offset, since_s)
        return True
