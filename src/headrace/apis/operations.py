"""What a caller may do with a resource, as answers carry it: a bit for each operation.

There are no ACLs yet, so a caller who asks may do everything.
"""

NOT_ASKED = -(1 << 31)
"""In answers to callers who did not ask."""

(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE) = (1 << n for n in range(3, 9))
(_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE) = (
    1 << n for n in range(9, 13)
)
_BOTH = _CREATE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS

ON_TOPIC = _BOTH | _READ | _WRITE | _DELETE
ON_CLUSTER = _BOTH | _CLUSTER_ACTION | _IDEMPOTENT_WRITE
ON_GROUP = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
