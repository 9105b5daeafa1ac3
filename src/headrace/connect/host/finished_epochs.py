"""The last epoch that a sink has finished, committed to its group after its query has ended.

The source commits an epoch when Spark asks for the next one, so that the group lacks the last epoch
of a query that is stopped. Another worker, which has no checkpoint, would write it again.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.groups import Committed, commit_offsets
from headrace.client.membership import GroupMember
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.source.options import parse_options
from headrace.pipelines.source.ranges import Offsets, from_stored

FIRST_SOURCE_LINE = 2
"""A file of the checkpoint with offsets: a version, metadata, and a line for each source."""
WITHIN_S = 5.0

log = logging.getLogger(__name__)


def commit_finished(options: Mapping[str, str], checkpoint: Path) -> None:
    """Commit with the options of the sink's source; a failure is a warning."""
    try:
        end = _last_end(checkpoint)
        if end:
            _commit(options, end)
    except (ClientError, KafkaError, OSError, ValueError) as error:
        log.warning("group %s lacks the last epoch: %s", options["group.id"], error)


def _last_end(checkpoint: Path) -> Offsets:
    """The end of the last finished epoch; empty if there is none."""
    names = [each.name for each in (checkpoint / "commits").glob("*")]
    finished = [int(name) for name in names if name.isdigit()]
    if not finished:
        return {}
    lines = (checkpoint / "offsets" / str(max(finished))).read_text().splitlines()
    return from_stored(json.loads(lines[FIRST_SOURCE_LINE])).offsets


def _commit(options: Mapping[str, str], end: Offsets) -> None:
    parsed = parse_options(options, streaming=True)
    assert parsed.group is not None, "a sink has a group"
    group = parsed.group
    offsets = {at: Committed(offset) for at, offset in end.items()}
    try:
        with Cluster(parsed.client) as cluster:
            commit_offsets(cluster, group.name, offsets, timeout_s=WITHIN_S)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise
        # The query's member has not left the group; this one takes its place.
        member = GroupMember(parsed.client, group.name, group.instance_id)
        try:
            member.assign(end)
            member.commit(end)
        finally:
            member.close()
