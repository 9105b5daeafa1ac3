"""ListPartitionReassignments (46), version 0.

The partitions whose replicas are on the move. Not done: moving replicas, so there are none.
"""

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
)

from headrace.apis.context import Caller, Services
from headrace.wire.primitives import NO_ERROR, NO_THROTTLE


def list_partition_reassignments(
    _services: Services, _request: ListPartitionReassignmentsRequest, _caller: Caller
) -> ListPartitionReassignmentsResponse:
    """None."""
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=NO_ERROR, error_message=None, topics=()
    )
