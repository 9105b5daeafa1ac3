"""A query as a consumer group: its finished epochs are the group's committed offsets.

The driver is the group's one member, so that every tool shows who reads, how far, and how far
behind. The checkpoint stays the truth: the group is told after an epoch is finished, never before,
and when telling it fails the query goes on.
"""

import logging
from collections.abc import Mapping

from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.client.membership import Fenced, GroupMember
from headrace.errors import KafkaError
from headrace.pipelines.options import GroupOptions
from headrace.types import TopicPartition

log = logging.getLogger(__name__)


class QueryGroup:
    """The driver's membership, and the commits of finished epochs."""

    def __init__(self, client: ClientConfig, options: GroupOptions) -> None:
        self._name = options.name
        self._shown: frozenset[TopicPartition] = frozenset()
        self._member: GroupMember | None = GroupMember(
            client,
            options.name,
            options.instance_id,
            options.session_timeout_ms,
            options.heartbeat_interval_ms,
        )

    def shows(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Let the member's assignment be what the query reads."""
        now = frozenset(partitions)
        if self._member is not None and now != self._shown:
            self._shown = now
            self._member.assign(now)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit a finished epoch; trouble is a warning, because the checkpoint has it."""
        if self._member is None:
            return
        try:
            self._member.commit(offsets)
        except Fenced as error:
            log.warning("%s; this query does not show its progress any more", error)
            self.close()
        except (ClientError, KafkaError) as error:
            log.warning("group %s does not show the last epoch: %s", self._name, error)

    def close(self) -> None:
        """Leave the group; its offsets stay."""
        if self._member is not None:
            self._member.close()
            self._member = None
