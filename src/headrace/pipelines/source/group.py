"""A query as a consumer group: its finished epochs are the group's committed offsets.

The driver is the group's only member, so that every tool shows the query's position and lag. The
checkpoint is authoritative: offsets are committed to the group only after an epoch is finished, and
the query continues if that commit fails.
"""

import logging
import time
from collections.abc import Mapping

from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.client.membership import Fenced, GroupMember
from headrace.errors import KafkaError
from headrace.pipelines.source.options import GroupOptions
from headrace.types import TopicPartition

SETTLING_S = 20.0
"""How long a group may take to become stable before a query waits for it."""

log = logging.getLogger(__name__)


class QueryGroup:
    """The driver's membership, and the commits of finished epochs."""

    def __init__(self, client: ClientConfig, options: GroupOptions) -> None:
        self._name = options.name
        self._shown: frozenset[TopicPartition] = frozenset()
        self._committed: Mapping[TopicPartition, int] = {}
        self._patience_ends = time.monotonic() + SETTLING_S
        self._member: GroupMember | None = GroupMember(
            client,
            options.name,
            options.instance_id,
            options.session_timeout_ms,
            options.heartbeat_interval_ms,
        )

    def shows(self, partitions: Mapping[TopicPartition, int]) -> None:
        """Set the member's assignment to the partitions that the query reads."""
        now = frozenset(partitions)
        if self._member is not None and now != self._shown:
            self._shown = now
            self._member.assign(now)

    def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> None:
        """Commit a finished epoch; a failure is a warning, because the checkpoint has the offsets.

        A new group takes some seconds to become stable. Without `wait` a query does not wait for
        it: the next epoch, or the next request for offsets, commits the rest.
        """
        if self._member is None or offsets == self._committed:
            return
        if not wait and not self._member.is_in and time.monotonic() < self._patience_ends:
            return
        self._committed = dict(offsets)
        try:
            self._member.commit(offsets)
        except Fenced as error:
            log.warning("%s; this query no longer shows its progress", error)
            self.close()
        except (ClientError, KafkaError) as error:
            log.warning("group %s does not show the last epoch: %s", self._name, error)

    def close(self) -> None:
        """Leave the group; its offsets remain."""
        if self._member is not None:
            self._member.close()
            self._member = None
