"""Handlers of the worker itself: `/`, `/health` and `/admin/loggers`."""

from headrace.connect import log_levels
from headrace.connect.errors import bad_request, not_found
from headrace.connect.rest.call import ConnectCall
from headrace.connect.storage.records import LoggerChange
from headrace.service.responses import HttpAnswer

EQUAL_TO = "4.3.1"
"""The version of Kafka Connect that clients may take this worker for."""


async def root(call: ConnectCall) -> object:
    """Versions, and the cluster."""
    return {
        "version": EQUAL_TO,
        "commit": f"headrace-{call.worker.version}",
        "kafka_cluster_id": call.worker.store.cluster_id,
    }


async def health(call: ConnectCall) -> object:
    """KIP-1017."""
    problem = call.worker.ownership.problem
    if call.worker.store.is_running and not problem and call.worker.ownership.is_starting:
        text = "Worker is still starting up."
        return HttpAnswer(503, {"status": "starting", "message": text})
    if call.worker.store.is_running and not problem:
        text = "Worker has completed startup and is ready to handle requests."
        return {"status": "healthy", "message": text}
    if not call.worker.store.is_running:
        problem = "Worker no longer reads its internal topics. Restart it."
    return HttpAnswer(500, {"status": "unhealthy", "message": problem})


async def list_loggers(call: ConnectCall) -> object:
    """Loggers with a level of their own."""
    return log_levels.all_levels()


async def get_logger(call: ConnectCall) -> object:
    """The level of a logger."""
    name = call.path["logger"]
    found = log_levels.level_of(name)
    if found is None:
        raise not_found(f"Logger {name} not found.")
    return found


async def put_logger(call: ConnectCall) -> object:
    """Set the level of a logger, of this worker or of all."""
    name = call.path["logger"]
    level = call.fields().get("level")
    if level is None:
        raise bad_request("Desired 'level' parameter was not specified in request.")
    if str(level).upper() not in log_levels.LEVELS:
        raise not_found(f"invalid log level '{level}'.")
    if call.text("scope", "worker").lower() == "cluster":
        await call.worker.store.write_configs(LoggerChange(name, str(level).upper()))
        return HttpAnswer(204)
    return log_levels.set_level(name, str(level))
