"""Endpoints for operators: health, version, cluster id."""

from headrace import __version__
from headrace.registry.call import Call
from headrace.registry.failures import RegistryError


async def root(_: Call) -> object:
    return {}


async def get_health(call: Call) -> object:
    """UP while the topic is read; requests are accepted only after the first read to its end."""
    if not call.registry.reader.is_running:
        raise RegistryError(503, "The schemas topic is no longer read; restart the registry")
    return {
        "status": "UP",
        "topic": call.registry.location.topic,
        "offset": call.registry.reader.next_offset,
        "subjects": len(call.registry.state.subjects),
    }


async def get_version(_: Call) -> object:
    return {"version": f"headrace-{__version__}", "commitId": ""}


async def get_cluster_id(call: Call) -> object:
    return {
        "id": "",
        "scope": {"path": [], "clusters": {"kafka-topic": call.registry.location.topic}},
    }
