"""The route table of the REST interface. Every path also matches with a trailing slash."""

from headrace.connect.rest import connectors_api, offsets_api, plugins_api, worker_api
from headrace.connect.rest.call import ConnectCall
from headrace.security.roles import Role
from headrace.service.routes import HttpRoute

READ, ADMIN = Role.READ, Role.ADMIN

ROUTES: tuple[HttpRoute[ConnectCall], ...] = (
    HttpRoute("GET", "/", worker_api.root),
    HttpRoute("GET", "/health", worker_api.health),
    HttpRoute("GET", "/connectors", connectors_api.list_connectors),
    HttpRoute("POST", "/connectors", connectors_api.create),
    HttpRoute("GET", "/connectors/{connector}", connectors_api.get),
    HttpRoute("DELETE", "/connectors/{connector}", connectors_api.delete),
    HttpRoute("GET", "/connectors/{connector}/config", connectors_api.get_config),
    HttpRoute("PUT", "/connectors/{connector}/config", connectors_api.put_config),
    HttpRoute("PATCH", "/connectors/{connector}/config", connectors_api.patch_config),
    HttpRoute("GET", "/connectors/{connector}/status", connectors_api.get_status),
    HttpRoute("POST", "/connectors/{connector}/restart", connectors_api.restart),
    HttpRoute("PUT", "/connectors/{connector}/pause", connectors_api.pause),
    HttpRoute("PUT", "/connectors/{connector}/resume", connectors_api.resume),
    HttpRoute("PUT", "/connectors/{connector}/stop", connectors_api.stop),
    HttpRoute("GET", "/connectors/{connector}/tasks", connectors_api.get_tasks),
    HttpRoute("GET", "/connectors/{connector}/tasks/{task}/status", connectors_api.get_task_status),
    HttpRoute("POST", "/connectors/{connector}/tasks/{task}/restart", connectors_api.restart_task),
    HttpRoute("GET", "/connectors/{connector}/offsets", offsets_api.get_offsets),
    HttpRoute("PATCH", "/connectors/{connector}/offsets", offsets_api.alter_offsets),
    HttpRoute("DELETE", "/connectors/{connector}/offsets", offsets_api.reset_offsets),
    HttpRoute("GET", "/connectors/{connector}/topics", offsets_api.get_topics),
    HttpRoute("PUT", "/connectors/{connector}/topics/reset", offsets_api.reset_topics),
    HttpRoute("GET", "/connector-plugins", plugins_api.list_plugins),
    HttpRoute("GET", "/connector-plugins/{plugin}/config", plugins_api.get_options),
    HttpRoute("PUT", "/connector-plugins/{plugin}/config/validate", plugins_api.validate, READ),
    HttpRoute("GET", "/admin/loggers", worker_api.list_loggers),
    HttpRoute("GET", "/admin/loggers/{logger}", worker_api.get_logger),
    HttpRoute("PUT", "/admin/loggers/{logger}", worker_api.put_logger, ADMIN),
)
