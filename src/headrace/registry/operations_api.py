"""Endpoints that describe the registry itself: version and cluster id."""

from headrace import __version__
from headrace.registry.call import Call


async def root(_: Call) -> object:
    return {}


async def get_version(_: Call) -> object:
    return {"version": f"headrace-{__version__}", "commitId": ""}


async def get_cluster_id(call: Call) -> object:
    return {
        "id": "",
        "scope": {"path": [], "clusters": {"kafka-topic": call.registry.location.topic}},
    }
