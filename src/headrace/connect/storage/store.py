"""The internal topics as one object: what they say, and the only way to change it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.committed_records import TopicRecord
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.connect.storage import records
from headrace.connect.storage.records import (
    ConfigChange,
    SourceOffsetChange,
    StatusRecord,
    TopicUse,
)
from headrace.connect.storage.state import ConfigState, OffsetState, TopicState
from headrace.errors import KafkaError
from headrace.service.errors import HttpError, TopicUnusable
from headrace.service.internal_topics import (
    Follow,
    InternalTopic,
    KeyValue,
    TopicFollower,
    TopicWriter,
    make_topics,
)

START_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class StoreTopics:
    """Three topics with records, and one whose partitions are the slots of connectors."""

    configs: InternalTopic
    offsets: InternalTopic
    status: InternalTopic
    slots: InternalTopic


class ConnectStore:
    """Follows the topics; methods and callbacks run in the event loop."""

    def __init__(
        self,
        config: ClientConfig,
        topics: StoreTopics,
        changed: Callable[[ConfigChange], None],
    ) -> None:
        """`changed` is called after each change of the config topic is replayed."""
        self.configs = ConfigState()
        self.offsets = OffsetState()
        self.topics_in_use = TopicState()
        self.cluster_id = ""
        self._config = config
        self._topics = topics
        self._changed = changed
        self._config_follower: TopicFollower
        self._other_follower: TopicFollower
        self._writer: TopicWriter

    async def start(self) -> None:
        """Creates what does not exist, and reads all to its end; StartFailure if that fails."""
        topics = self._topics
        counts = await asyncio.to_thread(self._prepare)
        if counts[topics.configs.name] != 1:
            raise TopicUnusable(
                f"topic {topics.configs.name} ({topics.configs.setting}) has "
                f"{counts[topics.configs.name]} partitions but must have exactly one, because its "
                "records need a total order"
            )
        if counts[topics.slots.name] < topics.slots.partitions:
            raise TopicUnusable(
                f"topic {topics.slots.name} has {counts[topics.slots.name]} partitions but must "
                f"have {topics.slots.partitions}. Workers share connectors with it, and it has no "
                "records: delete it while no worker runs"
            )
        self._writer = TopicWriter(self._config, counts)
        self._config_follower = TopicFollower(
            self._config, [Follow(topics.configs.name, 1, self._take_config)]
        )
        self._other_follower = TopicFollower(
            self._config,
            [
                Follow(topics.offsets.name, counts[topics.offsets.name], self._take_offset),
                Follow(topics.status.name, counts[topics.status.name], self._take_status),
            ],
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                for follower in (self._config_follower, self._other_follower):
                    follower.start()
                await asyncio.gather(self.refresh_configs(), self.refresh_offsets())
        except (TimeoutError, HttpError):
            raise TopicUnusable(
                f"the internal topics could not be read to their end within {START_TIMEOUT_S:.0f} s"
            ) from None

    def _prepare(self) -> dict[str, int]:
        topics = self._topics
        with Cluster(self._config) as cluster:
            wanted = [topics.configs, topics.offsets, topics.status, topics.slots]
            counts = make_topics(cluster, wanted)
            self.cluster_id = cluster.metadata(()).cluster_id or ""
        return counts

    async def stop(self) -> None:
        """Returns when nothing is read or written any more."""
        for follower in (self._config_follower, self._other_follower):
            await asyncio.to_thread(follower.stop)
        await asyncio.to_thread(self._writer.close)

    @property
    def slots_topic(self) -> str:
        """The topic whose partitions are the slots."""
        return self._topics.slots.name

    @property
    def is_running(self) -> bool:
        return self._config_follower.is_running and self._other_follower.is_running

    async def refresh_configs(self) -> None:
        """Returns when everything that is in the config topic now is replayed."""
        await self._refresh(self._config_follower)

    async def refresh_offsets(self) -> None:
        """The same for the offsets topic and the status topic."""
        await self._refresh(self._other_follower)

    async def _refresh(self, follower: TopicFollower) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await follower.reached(await self._writer.ends(follower.partitions))
        except (KafkaError, ClientError, TimeoutError) as error:
            raise HttpError(500, f"The internal topics cannot be read: {error}") from error

    async def write_configs(self, *changes: ConfigChange) -> None:
        """Returns when the changes are stored and replayed."""
        rows = [records.encode_config(change) for change in changes]
        await self._write(self._topics.configs.name, rows, self._config_follower)

    async def write_offsets(self, changes: Sequence[SourceOffsetChange]) -> None:
        """Returns when the offsets are stored and replayed."""
        if changes:
            rows = [records.encode_offset(change) for change in changes]
            await self._write(self._topics.offsets.name, rows, self._other_follower)

    async def write_topics(self, uses: Sequence[TopicUse]) -> None:
        """Returns when the topics in use are stored and replayed."""
        if uses:
            rows = [records.encode_topic_use(use) for use in uses]
            await self._write(self._topics.status.name, rows, self._other_follower)

    async def write_statuses(
        self, statuses: Sequence[tuple[str, int | None, StatusRecord | None]]
    ) -> None:
        """Stores states of connectors and tasks, for tools that read the status topic."""
        if statuses:
            rows = [records.encode_status(*each) for each in statuses]
            await self._write(self._topics.status.name, rows, self._other_follower)

    async def _write(self, topic: str, rows: Sequence[KeyValue], follower: TopicFollower) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await follower.reached(await self._writer.write(topic, rows))
        except (KafkaError, ClientError) as error:
            raise HttpError(500, f"Topic {topic} cannot be written: {error}") from error
        except TimeoutError:
            raise HttpError(
                500,
                f"Topic {topic} could not be written and read back within {WRITE_TIMEOUT_S:.0f} s; "
                "it is unknown whether the change is stored. The request may be repeated",
            ) from None

    def _take_config(self, record: TopicRecord) -> None:
        change = records.decode_config(record.key, record.value)
        if change is not None:
            self.configs.replay(change)
            self._changed(change)

    def _take_offset(self, record: TopicRecord) -> None:
        self.offsets.replay(records.decode_offset(record.key, record.value))

    def _take_status(self, record: TopicRecord) -> None:
        use = records.decode_topic_use(record.key, record.value)
        if use is not None:
            self.topics_in_use.replay(use)
