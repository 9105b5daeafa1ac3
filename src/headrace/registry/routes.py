"""The route table of the registry's HTTP API.

Every path except the root also exists below `/contexts/{context}`, which selects a context.
"""

from collections.abc import Awaitable, Callable

from headrace.registry import operations_api, schemas_api, settings_api, subjects_api
from headrace.registry.call import Call
from headrace.security.roles import Role
from headrace.service.routes import HttpRoute

READ, ADMIN = Role.READ, Role.ADMIN

Handler = Callable[[Call], Awaitable[object]]

_ROWS: tuple[tuple[str, str, Handler] | tuple[str, str, Handler, Role], ...] = (
    ("GET", "/", operations_api.root),
    ("GET", "/v1/metadata/id", operations_api.get_cluster_id),
    ("GET", "/v1/metadata/version", operations_api.get_version),
    ("GET", "/subjects", subjects_api.list_subjects),
    ("POST", "/subjects/{subject}", subjects_api.look_up, READ),
    ("DELETE", "/subjects/{subject}", subjects_api.delete_subject),
    ("GET", "/subjects/{subject}/metadata", subjects_api.get_latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", subjects_api.list_versions),
    ("POST", "/subjects/{subject}/versions", subjects_api.register),
    ("GET", "/subjects/{subject}/versions/{version}", subjects_api.get_version),
    ("DELETE", "/subjects/{subject}/versions/{version}", subjects_api.delete_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", subjects_api.get_version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects_api.get_referrers),
    ("POST", "/compatibility/subjects/{subject}/versions", subjects_api.check_subject, READ),
    (
        "POST",
        "/compatibility/subjects/{subject}/versions/{version}",
        subjects_api.check_version,
        READ,
    ),
    ("GET", "/schemas", schemas_api.list_schemas),
    ("GET", "/schemas/types", schemas_api.list_types),
    ("GET", "/schemas/ids/{id}", schemas_api.get_schema),
    ("GET", "/schemas/ids/{id}/schema", schemas_api.get_schema_text),
    ("GET", "/schemas/ids/{id}/subjects", schemas_api.get_subjects),
    ("GET", "/schemas/ids/{id}/versions", schemas_api.get_versions),
    ("GET", "/schemas/guids/{guid}", schemas_api.get_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", schemas_api.get_ids_of_guid),
    ("GET", "/contexts", schemas_api.list_contexts),
    ("GET", "/config", settings_api.get_config),
    ("PUT", "/config", settings_api.put_config, ADMIN),
    ("DELETE", "/config", settings_api.delete_config, ADMIN),
    ("GET", "/config/{subject}", settings_api.get_config),
    ("PUT", "/config/{subject}", settings_api.put_config),
    ("DELETE", "/config/{subject}", settings_api.delete_config),
    ("GET", "/mode", settings_api.get_mode),
    ("PUT", "/mode", settings_api.put_mode, ADMIN),
    ("DELETE", "/mode", settings_api.delete_mode, ADMIN),
    ("GET", "/mode/{subject}", settings_api.get_mode),
    ("PUT", "/mode/{subject}", settings_api.put_mode, ADMIN),
    ("DELETE", "/mode/{subject}", settings_api.delete_mode, ADMIN),
)

ROUTES: tuple[HttpRoute[Call], ...] = (
    *(HttpRoute(*row) for row in _ROWS),
    *(
        HttpRoute(method, f"/contexts/{{context}}{pattern}", *rest)
        for method, pattern, *rest in _ROWS
        if pattern != "/"
    ),
)
