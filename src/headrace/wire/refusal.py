"""The response to a request that is refused as a whole, with the error in it.

If the response has no top-level error, every item of the request gets the error: items are matched
by the names of their fields, which are nearly always the same in request and response.
"""

from headrace.errors import KafkaError
from headrace.wire import codec, codec_fields

_WITHOUT_ITEMS = frozenset({13, 47, 55, 78, 79})
"""LeaveGroup, OffsetDelete, DescribeQuorum, ShareFetch, ShareAcknowledge: a top-level error has no
items."""

_OTHER_NAMES = {
    "coordinators": ("coordinator_keys",),
    "groups": ("group_ids",),
    "responses": ("topics", "resources"),
    "filter_results": ("filters",),
    "results": ("topics", "resources", "creations", "users"),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "partitions": ("partition_indexes",),
}
_PLAIN = {"key": str, "group_id": str, "partition_index": int, "partition_id": int}
"""Fields of a response whose items are plain values in the request."""


def refusal(api_key: int, request: object, error: KafkaError) -> object:
    """The response with `error`, of the newest class of its API."""
    source = None if api_key in _WITHOUT_ITEMS else request
    return _mirror(codec.response_class(api_key), source, error)


def _mirror(shape: type, source: object, error: KafkaError) -> object:
    values: dict[str, object] = {}
    for field in codec_fields.fields(shape):
        if field.name == "error_code":
            values[field.name] = int(error.code)
        elif field.name == "error_message":
            values[field.name] = error.message
        elif field.name == "user":
            values[field.name] = getattr(source, "name", field.default)
        elif isinstance(source, _PLAIN.get(field.name, ())):
            values[field.name] = source
        elif field.name == "topic_name" and hasattr(source, "name"):
            values[field.name] = source.name
        elif field.array and field.entity is not None:
            items = _items(source, field.name)
            values[field.name] = tuple(_mirror(field.entity, item, error) for item in items)
        elif field.array:
            values[field.name] = field.default
        else:
            values[field.name] = getattr(source, field.name, field.default)
    return shape(**values)


def _items(source: object, name: str) -> tuple[object, ...]:
    if name == "results" and hasattr(source, "dirs"):
        # AlterReplicaLogDirs: the topics of all folders.
        return tuple(topic for one in source.dirs for topic in one.topics)
    for candidate in (name, *_OTHER_NAMES.get(name, ())):
        found = getattr(source, candidate, None)
        if isinstance(found, tuple):
            return found
    return ()
