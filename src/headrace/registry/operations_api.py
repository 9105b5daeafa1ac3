"""For those who run the registry: is it well, what does it count, which one is it."""

from headrace import __version__
from headrace.registry.call import Call
from headrace.registry.failures import RegistryError


async def root(_: Call) -> object:
    return {}


async def get_health(call: Call) -> object:
    """Answered only once the topic has been read to its end."""
    if not call.registry.follower.is_following:
        raise RegistryError(503, "The topic is not followed any more; restart the registry")
    return {
        "status": "UP",
        "topic": call.registry.where.topic,
        "offset": call.registry.follower.next_offset,
        "subjects": len(call.registry.state.subjects),
    }


async def get_version(_: Call) -> object:
    return {"version": f"headrace-{__version__}", "commitId": ""}


async def get_cluster_id(call: Call) -> object:
    return {"id": "", "scope": {"path": [], "clusters": {"kafka-topic": call.registry.where.topic}}}
