"""Handlers of `/connectors/N/offsets` and `/connectors/N/topics`."""

from headrace.connect.errors import bad_request
from headrace.connect.rest.call import ConnectCall
from headrace.connect.storage.records import OffsetEntry, TopicUse
from headrace.service.errors import HttpError
from headrace.service.responses import HttpAnswer


async def get_offsets(call: ConnectCall) -> object:
    """The partitions of a connector with their offsets."""
    found = await call.worker.offsets(call.name)
    return {"offsets": [{"partition": part, "offset": at} for part, at in found]}


async def alter_offsets(call: ConnectCall) -> object:
    """Set the offsets of some partitions; null removes one."""
    given = call.fields().get("offsets")
    if not isinstance(given, list) or not given:
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    await call.worker.alter_offsets(call.name, [_entry(each) for each in given])
    return {"message": "The offsets for this connector have been altered successfully"}


async def reset_offsets(call: ConnectCall) -> object:
    """Forget all offsets."""
    await call.worker.reset_offsets(call.name)
    return {"message": "The offsets for this connector have been reset successfully"}


def _entry(value: object) -> OffsetEntry:
    match value:
        case {"partition": dict(partition), **rest}:
            offset = rest.get("offset")
            if offset is None or isinstance(offset, dict):
                return partition, offset
    raise bad_request(
        "Each entry of offsets must be an object with a partition, which is an object, and an "
        "offset, which is an object or null"
    )


async def get_topics(call: ConnectCall) -> object:
    """The topics that a connector has used."""
    if not call.worker.options.tracks_topics:
        raise HttpError(403, "Topic tracking is disabled.")
    return {call.name: {"topics": list(call.worker.store.topics_in_use.of(call.name))}}


async def reset_topics(call: ConnectCall) -> object:
    """Forget the topics that a connector has used."""
    if not call.worker.options.tracks_topics:
        raise HttpError(403, "Topic tracking is disabled.")
    if not call.worker.options.resets_topics:
        raise HttpError(403, "Topic tracking reset is disabled.")
    topics = call.worker.store.topics_in_use.of(call.name)
    await call.worker.store.write_topics([TopicUse(topic, call.name, -1) for topic in topics])
    return HttpAnswer(202)
