"""The operations that a client may perform on a resource, as responses list them: a bit for each.

There are no ACLs yet, so a client that asks may perform all operations.
"""

from headrace.security.acls import SUPPORTED, ResourceType

NOT_ASKED = -(1 << 31)
"""In responses to clients that did not ask."""


def _all_on(kind: ResourceType) -> int:
    return sum(1 << operation for operation in SUPPORTED[kind])


ON_TOPIC = _all_on(ResourceType.TOPIC)
ON_CLUSTER = _all_on(ResourceType.CLUSTER)
ON_GROUP = _all_on(ResourceType.GROUP)
