"""What every page needs to know about the cluster and the console itself."""

from headrace import __version__
from headrace.client.brokers import describe_cluster
from headrace.console.console_request import ConsoleRequest
from headrace.security.roles import Role


async def get_session(request: ConsoleRequest) -> object:
    """What this console can do; the pages leave out the rest. It asks no other server."""
    options = request.console.options
    return {
        "version": __version__,
        "bootstrap": options.bootstrap,
        "principal": request.principal,
        "role": (request.role or Role.ADMIN).name.lower(),
        "read_only": options.read_only,
        "has_registry": options.registry is not None,
        "has_connect": options.connect is not None,
        "has_sql": not options.without_sql,
    }


async def get_cluster(request: ConsoleRequest) -> object:
    """The brokers."""
    found = await request.console.cluster.run(describe_cluster)
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [
            {"id": each.id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in found.brokers.values()
        ],
    }
