"""The one table of the registry's HTTP interface, and how a path finds its row.

Paths are taken apart before they are decoded, so that a subject may hold a slash (`%2F`), and `..`
is a name like any other. A leading `/contexts/NAME/` puts everything behind it into that context.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import unquote

from headrace.registry import names, operations_api, schemas_api, settings_api, subjects_api
from headrace.registry.call import Call
from headrace.registry.failures import RegistryError

Handler = Callable[[Call], Awaitable[object]]

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", operations_api.root),
    ("GET", "/health", operations_api.get_health),
    ("GET", "/v1/metadata/id", operations_api.get_cluster_id),
    ("GET", "/v1/metadata/version", operations_api.get_version),
    ("GET", "/subjects", subjects_api.list_subjects),
    ("POST", "/subjects/{subject}", subjects_api.look_up),
    ("DELETE", "/subjects/{subject}", subjects_api.delete_subject),
    ("GET", "/subjects/{subject}/metadata", subjects_api.get_latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", subjects_api.list_versions),
    ("POST", "/subjects/{subject}/versions", subjects_api.register),
    ("GET", "/subjects/{subject}/versions/{version}", subjects_api.get_version),
    ("DELETE", "/subjects/{subject}/versions/{version}", subjects_api.delete_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", subjects_api.get_version_schema),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects_api.get_referrers),
    ("POST", "/compatibility/subjects/{subject}/versions", subjects_api.check_subject),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects_api.check_version),
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
    ("PUT", "/config", settings_api.put_config),
    ("DELETE", "/config", settings_api.delete_config),
    ("GET", "/config/{subject}", settings_api.get_config),
    ("PUT", "/config/{subject}", settings_api.put_config),
    ("DELETE", "/config/{subject}", settings_api.delete_config),
    ("GET", "/mode", settings_api.get_mode),
    ("PUT", "/mode", settings_api.put_mode),
    ("DELETE", "/mode", settings_api.delete_mode),
    ("GET", "/mode/{subject}", settings_api.get_mode),
    ("PUT", "/mode/{subject}", settings_api.put_mode),
    ("DELETE", "/mode/{subject}", settings_api.delete_mode),
)


@dataclass(frozen=True, slots=True)
class Found:
    """The row for a request."""

    pattern: str
    handler: Handler
    path: dict[str, str]
    context: str | None


class Router:
    """Rows by the number of parts of their path; fixed parts are looked at before names."""

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[list[str], str, dict[str, Handler]]]] = {}
        by_pattern: dict[str, dict[str, Handler]] = {}
        for method, pattern, handler in ROUTES:
            assert method not in by_pattern.setdefault(pattern, {}), f"{method} {pattern} twice"
            by_pattern[pattern][method] = handler
        for pattern, handlers in by_pattern.items():
            parts = _parts(pattern)
            self._rows.setdefault(len(parts), []).append((parts, pattern, handlers))

    def find(self, method: str, raw_path: str) -> Found:
        """The row, or RegistryError 404 or 405."""
        parts = _parts(raw_path)
        context = None
        if len(parts) > 2 and parts[0] == "contexts":
            context = names.context_name(unquote(parts[1]))
            parts = parts[2:]
        for pattern_parts, pattern, handlers in self._rows.get(len(parts), ()):
            path = _match(pattern_parts, parts)
            if path is None:
                continue
            handler = handlers.get(method)
            if handler is None:
                raise RegistryError(405, f"HTTP 405 Method Not Allowed: {method} {pattern}")
            return Found(pattern, handler, path, context)
        raise RegistryError(404, "HTTP 404 Not Found")


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


def _match(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for wanted, given in zip(pattern, parts, strict=True):
        if wanted[:1] == "{":
            found[wanted[1:-1]] = unquote(given, errors="strict") if "%" in given else given
        elif wanted != given:
            return None
    return found
