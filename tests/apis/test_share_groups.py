"""ShareGroupHeartbeat, ShareFetch and ShareAcknowledge: sessions, waits, limits and releases."""

import asyncio
import datetime
import uuid
from collections.abc import Awaitable, Callable
from inspect import iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.schema.share_acknowledge.v2 import request as acknowledge
from kio.schema.share_fetch.v2 import request as fetch
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from headrace.apis.context import Caller, RequestContext
from headrace.apis.groups.delete_groups import delete_groups
from headrace.apis.shares.share_acknowledge import share_acknowledge
from headrace.apis.shares.share_fetch import share_fetch
from headrace.apis.shares.share_group_heartbeat import share_group_heartbeat
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.coordination.committed import delivered_here
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import GroupId, TopicName, i8, i32, i64
from tests.apis.one_broker import NOW, OneBroker

if TYPE_CHECKING:
    from headrace.security.guard import Permissions

GROUP = "workers"
ACCEPT, RENEW = 1, 4
WAIT = datetime.timedelta(seconds=60)
AT_ONCE = datetime.timedelta(0)


class ShareBroker:
    """One broker with a topic, and the requests of members."""

    def __init__(self, broker: OneBroker, partitions: int) -> None:
        self.broker = broker
        self.topic_id = broker.create("jobs", partitions).id
        self.callers: dict[str, Caller] = {}

    async def ask(self, handler: Callable[..., Any], request: object, member: str) -> Any:
        caller = self.callers.setdefault(member, Caller("127.0.0.1:1"))
        answer = handler(self.broker.services, request, RequestContext(2, member, caller))
        return await answer if iscoroutine(answer) else answer

    async def beat(
        self, member: str, epoch: int, topics: tuple[str, ...] | None = ("jobs",)
    ) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=GroupId(GROUP),
            member_id=member,
            member_epoch=i32(epoch),
            subscribed_topic_names=None if topics is None else tuple(map(TopicName, topics)),
        )
        return await self.ask(share_group_heartbeat, request, member)

    async def fetch(self, member: str, epoch: int, **more: Any) -> Any:
        partition = fetch.FetchPartition(partition_index=i32(0), acknowledgement_batches=())
        fields: dict[str, Any] = {
            "max_wait": AT_ONCE,
            "max_records": 100,
            "share_acquire_mode": 0,
            **more,
        }
        request = fetch.ShareFetchRequest(
            group_id=GroupId(GROUP),
            member_id=member,
            share_session_epoch=i32(epoch),
            min_bytes=i32(1),
            batch_size=i32(100),
            topics=(fetch.FetchTopic(topic_id=self.topic_id, partitions=(partition,)),),
            forgotten_topics_data=(),
            **fields,
        )
        return await self.ask(share_fetch, request, member)

    async def acquired(self, member: str, epoch: int, **more: Any) -> list[tuple[int, int, int]]:
        """The ranges that a fetch acquired; the state is read in the background first."""
        for _ in range(100):
            response = await self.fetch(member, epoch, **more)
            rows = [row for topic in response.responses for row in topic.partitions]
            assert all(not row.error_code for row in rows), rows
            if rows or epoch:
                return [
                    (one.first_offset, one.last_offset, one.delivery_count)
                    for row in rows
                    for one in row.acquired_records
                ]
            await asyncio.sleep(0.01)
        return []

    async def acknowledge(self, member: str, epoch: int, *batches: tuple[int, int, int]) -> Any:
        rows = tuple(
            acknowledge.AcknowledgementBatch(
                first_offset=i64(first),
                last_offset=i64(last),
                acknowledge_types=(i8(kind),),
            )
            for first, last, kind in batches
        )
        partition = acknowledge.AcknowledgePartition(
            partition_index=i32(0), acknowledgement_batches=rows
        )
        request = acknowledge.ShareAcknowledgeRequest(
            group_id=GroupId(GROUP),
            member_id=member,
            share_session_epoch=i32(epoch),
            topics=(acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=(partition,)),),
        )
        response = await self.ask(share_acknowledge, request, member)
        return response.responses[0].partitions[0].error_code


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a scenario on a new broker whose group begins with the first record."""

    def run(
        scenario: Callable[[ShareBroker], Awaitable[None]], partitions: int = 1, **settings: str
    ) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        broker = OneBroker(tmp_path, given)
        earliest = ConfigChange("share.auto.offset.reset", Operation.SET, "earliest")
        given_to = Alteration("group", GROUP, (earliest,), broker=broker.services.settings)
        assert broker.metadata.alter_configs([given_to]) == [None]

        async def main() -> None:
            broker.shares.start()
            try:
                await scenario(ShareBroker(broker, partitions))
            finally:
                broker.shares.stop()

        try:
            asyncio.run(main())
        finally:
            broker.close()

    return run


Run = Callable[..., None]


class _Refused:
    def __init__(self, code: ErrorCode) -> None:
        self.code = code

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, KafkaError), f"{self.code.name} was expected"
        assert error.code is self.code
        return True


def test_partitions_are_assigned_in_the_first_response(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        first = await here.beat("a", 0)
        assert [set(one.partitions) for one in first.assignment.topic_partitions] == [{0, 1, 2}]
        second = await here.beat("b", 0)
        again = await here.beat("a", first.member_epoch, None)
        sizes = [
            len(answer.assignment.topic_partitions[0].partitions) for answer in (second, again)
        ]
        assert sorted(sizes) == [1, 2]
        left = await here.beat("b", -1, None)
        assert left.member_epoch == -1
        alone = await here.beat("a", again.member_epoch, None)
        assert len(alone.assignment.topic_partitions[0].partitions) == 3

    run(scenario, partitions=3)


def test_members_with_a_wrong_epoch_or_of_no_group_are_refused(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        with _Refused(ErrorCode.GROUP_ID_NOT_FOUND):
            await here.beat("a", 4, None)
        first = await here.beat("a", 0)
        with _Refused(ErrorCode.FENCED_MEMBER_EPOCH):
            await here.beat("a", first.member_epoch + 1, None)
        with _Refused(ErrorCode.UNKNOWN_MEMBER_ID):
            await here.beat("b", 1, None)
        with _Refused(ErrorCode.INVALID_REQUEST):
            await here.beat("b", 0, None)

    run(scenario)


def test_the_group_is_full_at_its_largest_size(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        await here.beat("a", 0)
        with _Refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
            await here.beat("b", 0)

    run(scenario, group_share_max_size="1")


def test_requests_need_a_session_with_the_next_epoch(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        await here.beat("a", 0)
        with _Refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            await here.fetch("a", 1)
        await here.fetch("a", 0)
        with _Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            await here.fetch("a", 2)
        with _Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            await here.acknowledge("a", 0, (0, 0, ACCEPT))
        with _Refused(ErrorCode.SHARE_SESSION_LIMIT_REACHED):
            await here.fetch("b", 0)
        await here.fetch("a", 1)
        await here.fetch("a", -1)
        with _Refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            await here.fetch("a", 2)

    run(scenario, group_share_max_share_sessions="1")


def test_a_waiting_fetch_is_woken_by_new_records(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        await here.beat("a", 0)
        assert await here.acquired("a", 0) == []
        waiting = asyncio.ensure_future(here.acquired("a", 1, max_wait=WAIT))
        await asyncio.sleep(0)
        here.broker.append("jobs", [NOW, NOW])
        assert here.broker.services.waiting_fetches.wake()
        assert await waiting == [(0, 1, 1)]
        assert not here.broker.replicas.partition("jobs", 0).replica.watchers

    run(scenario)


def test_each_of_the_waiting_members_gets_its_part_of_a_batch(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        for member in "abc":
            await here.beat(member, 0)
            await here.fetch(member, 0)
        waiting = [
            asyncio.ensure_future(
                here.acquired(member, 1, max_wait=WAIT, max_records=1, share_acquire_mode=1)
            )
            for member in "abc"
        ]
        await asyncio.sleep(0.1)
        here.broker.append("jobs", [NOW] * 3)
        here.broker.services.waiting_fetches.wake()
        assert sorted(await asyncio.gather(*waiting)) == [[(at, at, 1)] for at in range(3)]

    run(scenario)


def test_a_waiting_fetch_is_woken_by_records_that_another_member_loses(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW, NOW])
        for member in "ab":
            await here.beat(member, 0)
        assert await here.acquired("a", 0) == [(0, 1, 1)]
        await here.fetch("b", 0)
        waiting = asyncio.ensure_future(here.acquired("b", 1, max_wait=WAIT))
        await asyncio.sleep(0)
        caller = here.callers["a"]
        assert caller.on_close is not None
        caller.on_close(caller)  # its connection is closed
        assert await waiting == [(0, 1, 2)]
        with _Refused(ErrorCode.SHARE_SESSION_NOT_FOUND):
            await here.fetch("a", 1)

    run(scenario)


def test_the_record_limit_is_exact_and_renewed_records_stay_locked(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW] * 10)
        await here.beat("a", 0)
        got = await here.acquired("a", 0, max_records=3, share_acquire_mode=1)
        assert got == [(0, 2, 1)]
        assert await here.acknowledge("a", 1, (0, 0, ACCEPT), (1, 2, RENEW)) == 0
        assert await here.acknowledge("a", 2, (1, 2, ACCEPT)) == 0
        error = await here.acknowledge("a", 3, (1, 2, ACCEPT))
        assert error == 0  # below the start offset: nothing is left to acknowledge
        assert await here.acknowledge("a", 4, (5, 5, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
        assert await here.acquired("a", 5, share_acquire_mode=1) == [(3, 9, 1)]

    run(scenario)


def test_the_final_epoch_acknowledges_and_releases_the_rest(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW] * 4)
        await here.beat("a", 0)
        assert await here.acquired("a", 0) == [(0, 3, 1)]
        assert await here.acknowledge("a", -1, (0, 1, ACCEPT)) == 0
        assert await here.acquired("b", 0) == [(2, 3, 2)]

    run(scenario)


def test_a_deleted_group_leaves_no_state(run: Run) -> None:
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest

    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW] * 4)
        await here.beat("a", 0)
        assert await here.acquired("a", 0) == [(0, 3, 1)]
        assert await here.acknowledge("a", -1, (0, 3, ACCEPT)) == 0
        request = DeleteGroupsRequest(groups_names=(GroupId(GROUP),))
        answer = await here.ask(delete_groups, request, "admin")
        assert answer.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await here.beat("a", -1, None)
        answer = await here.ask(delete_groups, request, "admin")
        assert answer.results[0].error_code == 0
        states = [one.states for one in here.broker.shares.coordinator.shards.states()]
        assert not any(states)
        await here.beat("a", 0)
        assert await here.acquired("a", 0) == [(0, 3, 1)], "a new group begins again"

    run(scenario)


class MayNotRead:
    """The permissions of a client that may not read topics."""

    def allows(
        self, operation: AclOperation, kind: ResourceType, name: str, silent: bool = False
    ) -> bool:
        return (operation, kind) != (AclOperation.READ, ResourceType.TOPIC)


def test_a_client_that_may_not_read_the_topic_gets_no_records(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW] * 2)
        await here.beat("a", 0)
        denied = here.callers["b"] = Caller("127.0.0.1:2")
        denied.permissions = cast("Permissions", MayNotRead())
        response = await here.fetch("b", 0)
        (row,) = response.responses[0].partitions
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (row.records, row.acquired_records) == (b"", ())
        error = await here.acknowledge("b", 1, (0, 0, ACCEPT))
        assert error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await here.acquired("a", 0) == [(0, 1, 1)]

    run(scenario)


def test_retention_learns_what_a_share_group_has_delivered(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        here.broker.append("jobs", [NOW] * 4)
        await here.beat("a", 0)
        assert await here.acquired("a", 0) == [(0, 3, 1)]
        assert await here.acknowledge("a", 1, (0, 1, ACCEPT)) == 0
        persister = here.broker.shares.persister
        found = await delivered_here(here.broker.groups, persister, {"jobs"})
        assert found == {"jobs": {GROUP: {0: 2}}}
        assert await delivered_here(here.broker.groups, persister, {"others"}) == {}

    run(scenario)


def test_a_partition_that_is_not_assigned_is_an_error_and_not_an_endless_loop(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        response = await here.fetch("a", 0, max_wait=WAIT)
        (row,) = response.responses[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(scenario)


def test_a_partition_that_does_not_exist_is_an_error_of_its_own(run: Run) -> None:
    async def scenario(here: ShareBroker) -> None:
        await here.beat("a", 0)
        here.topic_id = uuid.uuid4()
        response = await here.fetch("a", 0)
        (row,) = response.responses[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)
