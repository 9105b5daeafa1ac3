"""The route table of the REST interface. Every path also matches with a trailing slash.

Only the worker that runs a connector changes it; other workers forward such requests (`by_owner`).
"""

from headrace.connect.rest import (
    connectors_api,
    dead_letters_api,
    offsets_api,
    plugins_api,
    worker_api,
)
from headrace.connect.rest.call import ConnectCall
from headrace.connect.rest.owners import by_owner
from headrace.security.roles import Role
from headrace.service.routes import HttpRoute

READ, ADMIN = Role.READ, Role.ADMIN
LETTERS = "/connectors/{connector}/dead-letters"

ROUTES: tuple[HttpRoute[ConnectCall], ...] = (
    HttpRoute("GET", "/", worker_api.root),
    HttpRoute("GET", "/health", worker_api.health),
    HttpRoute("GET", "/connectors", connectors_api.list_connectors),
    HttpRoute("POST", "/connectors", by_owner(connectors_api.create, connectors_api.name_in_body)),
    HttpRoute("GET", "/connectors/{connector}", connectors_api.get),
    HttpRoute("DELETE", "/connectors/{connector}", by_owner(connectors_api.delete)),
    HttpRoute("GET", "/connectors/{connector}/config", connectors_api.get_config),
    HttpRoute("PUT", "/connectors/{connector}/config", by_owner(connectors_api.put_config)),
    HttpRoute("PATCH", "/connectors/{connector}/config", by_owner(connectors_api.patch_config)),
    HttpRoute("GET", "/connectors/{connector}/status", connectors_api.get_status),
    HttpRoute("POST", "/connectors/{connector}/restart", by_owner(connectors_api.restart)),
    HttpRoute("PUT", "/connectors/{connector}/pause", by_owner(connectors_api.pause)),
    HttpRoute("PUT", "/connectors/{connector}/resume", by_owner(connectors_api.resume)),
    HttpRoute("PUT", "/connectors/{connector}/stop", by_owner(connectors_api.stop)),
    HttpRoute("GET", "/connectors/{connector}/tasks", connectors_api.get_tasks),
    HttpRoute("GET", "/connectors/{connector}/tasks/{task}/status", connectors_api.get_task_status),
    HttpRoute(
        "POST",
        "/connectors/{connector}/tasks/{task}/restart",
        by_owner(connectors_api.restart_task),
    ),
    HttpRoute("GET", "/connectors/{connector}/offsets", offsets_api.get_offsets),
    HttpRoute("PATCH", "/connectors/{connector}/offsets", by_owner(offsets_api.alter_offsets)),
    HttpRoute("DELETE", "/connectors/{connector}/offsets", by_owner(offsets_api.reset_offsets)),
    HttpRoute("GET", "/connectors/{connector}/topics", offsets_api.get_topics),
    HttpRoute("PUT", "/connectors/{connector}/topics/reset", offsets_api.reset_topics),
    HttpRoute("GET", LETTERS, by_owner(dead_letters_api.list_groups)),
    HttpRoute("GET", f"{LETTERS}/records", by_owner(dead_letters_api.list_records)),
    HttpRoute("POST", f"{LETTERS}/replay", by_owner(dead_letters_api.replay)),
    HttpRoute("POST", f"{LETTERS}/discard", by_owner(dead_letters_api.discard)),
    HttpRoute("GET", f"{LETTERS}/run", by_owner(dead_letters_api.get_run)),
    HttpRoute("DELETE", f"{LETTERS}/run", by_owner(dead_letters_api.stop_run)),
    HttpRoute("GET", "/connector-plugins", plugins_api.list_plugins),
    HttpRoute("GET", "/connector-plugins/{plugin}/config", plugins_api.get_options),
    HttpRoute("PUT", "/connector-plugins/{plugin}/config/validate", plugins_api.validate, READ),
    HttpRoute("GET", "/admin/loggers", worker_api.list_loggers),
    HttpRoute("GET", "/admin/loggers/{logger}", worker_api.get_logger),
    HttpRoute("PUT", "/admin/loggers/{logger}", worker_api.put_logger, ADMIN),
)
