"""The server itself: `/info`, `/healthcheck`, `/clusterStatus`."""

import time

from headrace.service.responses import HttpAnswer, HttpContent
from headrace.sql.exporting import export_script
from headrace.sql.rest.call import SqlCall


async def info(call: SqlCall) -> object:
    server = call.engine.server
    return {
        "KsqlServerInfo": {
            "version": server.version,
            "kafkaClusterId": server.commands.cluster_id,
            "ksqlServiceId": server.options.service,
            "serverStatus": "ERROR" if server.problem else "RUNNING",
        }
    }


async def export(call: SqlCall) -> object:
    """All statements as a script."""
    server = call.engine.server
    what = f"All statements of the service {server.options.service}."
    text = export_script(server.catalog, what)
    return HttpContent(text.encode(), "text/plain; charset=utf-8")


async def root(call: SqlCall) -> object:
    """Clients follow it to `/info`."""
    return HttpAnswer(307, None, {"location": "/info"})


async def healthcheck(call: SqlCall) -> object:
    server = call.engine.server
    reads = server.commands.is_running
    is_healthy = reads and not server.problem
    return {
        "isHealthy": is_healthy,
        "details": {
            "metastore": {"isHealthy": not server.problem},
            "kafka": {"isHealthy": reads},
            "commandRunner": {"isHealthy": is_healthy},
        },
        "serverState": "READY" if is_healthy else "ERROR",
    }


async def cluster_status(call: SqlCall) -> object:
    """This server is the only one of its service."""
    server = call.engine.server
    now = int(time.time() * 1000)
    return {
        "clusterStatus": {
            server.address: {
                "hostAlive": not server.problem,
                "lastStatusUpdateMs": now,
                "activeStandbyPerQuery": {
                    each.id: {
                        "activeStores": [],
                        "activePartitions": [],
                        "standByStores": [],
                        "standByPartitions": [],
                    }
                    for each in server.catalog.queries()
                },
                "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": now},
            }
        }
    }
