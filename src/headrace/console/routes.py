"""The route table of the console's HTTP API. The pages are in `assets.py`.

The group of a row decides about its role and about the audit log: views of metadata (VIEW), reads
of records (READ, audited), changes (WRITE, audited), and views and changes of access (ADMIN,
audited). Rows of SQL queries are read by many requests, of which the first is audited.
"""

from typing import TYPE_CHECKING

from headrace.console.audited_requests import Handler, audited
from headrace.console.console_request import ConsoleRequest
from headrace.console.lazy_handlers import MODULES, LazyModule
from headrace.security.roles import Role
from headrace.service.routes import HttpRoute

if TYPE_CHECKING:
    from headrace.console import (
        access_api,
        brokers_api,
        client_metrics_api,
        connectors_api,
        dead_letters_api,
        groups_api,
        lineage_api,
        overview_api,
        produce_api,
        queries_api,
        records_api,
        retention_api,
        schemas_api,
        sql_api,
        topics_api,
        transactions_api,
    )
else:
    globals().update({name: LazyModule(name) for name in MODULES})

Row = tuple[str, str, Handler]

_VIEWS: tuple[Row, ...] = (
    ("GET", "/api/session", overview_api.get_session),
    ("GET", "/api/cluster", overview_api.get_cluster),
    ("GET", "/api/topics", topics_api.list_topics),
    ("POST", "/api/topic-numbers", topics_api.get_numbers),
    ("GET", "/api/topics/{topic}", topics_api.get_topic),
    ("GET", "/api/topics/{topic}/configs", topics_api.get_topic_configs),
    ("GET", "/api/topics/{topic}/groups", topics_api.get_topic_groups),
    ("GET", "/api/topics/{topic}/volume", topics_api.get_volume),
    ("GET", "/api/groups", groups_api.list_all),
    ("GET", "/api/groups/{group}", groups_api.get_group),
    ("POST", "/api/groups/{group}/reset-plan", groups_api.plan_reset),
    ("GET", "/api/retention", retention_api.get_forecast),
    ("GET", "/api/queries", queries_api.list_queries),
    ("GET", "/api/queries/{query}", queries_api.get_query),
    ("GET", "/api/lineage", lineage_api.get_lineage),
    ("GET", "/api/dead-letters", dead_letters_api.list_topics),
    ("GET", "/api/dead-letters/{topic}/job", dead_letters_api.get_job),
    ("GET", "/api/schemas", schemas_api.list_subjects),
    ("GET", "/api/schemas/{subject}", schemas_api.get_subject),
    ("POST", "/api/schemas/{subject}/check", schemas_api.check_schema),
    ("GET", "/api/brokers", brokers_api.get_brokers),
    ("GET", "/api/brokers/{broker}/configs", brokers_api.get_broker_configs),
    ("GET", "/api/reassignments", brokers_api.get_reassignments),
    ("GET", "/api/log-folders", brokers_api.get_log_folders),
    ("GET", "/api/connectors", connectors_api.list_connectors),
    ("GET", "/api/connectors/{name}", connectors_api.get_connector),
    ("GET", "/api/connector-plugins", connectors_api.list_plugins),
    ("GET", "/api/connector-plugins/{plugin}", connectors_api.get_definitions),
    ("GET", "/api/sql", sql_api.get_server),
    ("GET", "/api/sql/sources", sql_api.list_sources),
    ("GET", "/api/sql/sources/{name}", sql_api.get_source),
    ("GET", "/api/sql/queries", sql_api.list_queries),
    ("GET", "/api/sql/queries/{query}", sql_api.get_query),
    ("GET", "/api/client-metrics", client_metrics_api.list_all),
    ("GET", "/api/metrics-clients", client_metrics_api.list_clients),
    ("GET", "/api/metrics-clients/{instance}", client_metrics_api.get_client),
    ("GET", "/api/transactions", transactions_api.list_open),
    ("GET", "/api/held-partitions", transactions_api.list_held),
)

_RECORDS: tuple[Row, ...] = (
    ("GET", "/api/topics/{topic}/records", records_api.list_records),
    ("GET", "/api/topics/{topic}/records/{partition}/{offset}", records_api.get_record),
    ("GET", "/api/topics/{topic}/records/{partition}/{offset}/{part}", records_api.download),
    ("GET", "/api/topics/{topic}/download", records_api.download_list),
    ("GET", "/api/topics/{topic}/tail", records_api.follow),
    ("GET", "/api/topics/{topic}/search", records_api.search),
    ("GET", "/api/dead-letters/{topic}", dead_letters_api.get_causes),
    ("POST", "/api/dead-letters/{topic}/plan", dead_letters_api.plan),
    ("GET", "/api/dead-letters/{topic}/{partition}/{offset}", dead_letters_api.get_letter),
    ("POST", "/api/sql/statements", sql_api.read),
    ("POST", "/api/sql/rows", sql_api.start_rows),
)

_ROWS: tuple[Row, ...] = (
    ("GET", "/api/sql/rows/{id}", sql_api.take_rows),
    ("DELETE", "/api/sql/rows/{id}", sql_api.end_rows),
)
"""Of a query whose start is in the audit log: a page asks several times a second."""

_ACCESS: tuple[Row, ...] = (
    ("GET", "/api/users", access_api.list_users),
    ("GET", "/api/acls", access_api.list_acls),
    ("GET", "/api/quotas", access_api.list_all_quotas),
)

_CHANGES: tuple[Row, ...] = (
    ("POST", "/api/topics", topics_api.create_topic),
    ("PATCH", "/api/topics/{topic}/configs", topics_api.change_topic_configs),
    ("PATCH", "/api/topics/{topic}/partitions", topics_api.change_partitions),
    ("DELETE", "/api/topics/{topic}", topics_api.delete_topic),
    ("POST", "/api/topics/{topic}/records", produce_api.produce_record),
    ("POST", "/api/dead-letters/{topic}/send", dead_letters_api.send),
    ("POST", "/api/dead-letters/{topic}/stop", dead_letters_api.stop),
    ("POST", "/api/dead-letters/{topic}/{partition}/{offset}", dead_letters_api.send_letter),
    ("POST", "/api/groups/{group}/reset", groups_api.reset),
    ("DELETE", "/api/groups/{group}", groups_api.delete),
    ("POST", "/api/schemas/{subject}", schemas_api.register_schema),
    ("PUT", "/api/schemas/{subject}/compatibility", schemas_api.change_compatibility),
    ("DELETE", "/api/schemas/{subject}/{version}", schemas_api.delete_version),
    ("POST", "/api/preferred-leaders", brokers_api.elect_preferred),
    # Plug-ins may connect to other systems to check settings.
    ("POST", "/api/connector-plugins/{plugin}/check", connectors_api.check_configs),
    ("POST", "/api/connectors", connectors_api.create_connector),
    ("PUT", "/api/connectors/{name}/configs", connectors_api.change_configs),
    ("POST", "/api/connectors/{name}/{action}", connectors_api.act),
    ("POST", "/api/connectors/{name}/tasks/{task}", connectors_api.restart_task),
    ("DELETE", "/api/connectors/{name}/offsets", connectors_api.reset_offsets),
    ("DELETE", "/api/connectors/{name}", connectors_api.delete_connector),
    ("POST", "/api/sql/changes", sql_api.change),
    ("POST", "/api/sql/queries/{query}/{action}", sql_api.act),
)

_ADMINISTRATION: tuple[Row, ...] = (
    ("PATCH", "/api/brokers/{broker}/configs", brokers_api.change_broker_configs),
    ("PUT", "/api/reassignments/{topic}/{partition}", brokers_api.start_reassignment),
    ("DELETE", "/api/reassignments/{topic}/{partition}", brokers_api.cancel_reassignment),
    ("PUT", "/api/client-metrics/{name}", client_metrics_api.put_subscription),
    ("DELETE", "/api/client-metrics/{name}", client_metrics_api.delete_subscription),
    ("DELETE", "/api/transactions/{id}", transactions_api.abort),
    ("POST", "/api/held-partitions/abort", transactions_api.abort_in_partition),
    ("PUT", "/api/users/{user}", access_api.put_user),
    ("DELETE", "/api/users/{user}", access_api.remove_user),
    ("POST", "/api/acls", access_api.add_acl),
    ("POST", "/api/acls/delete", access_api.remove_acl),
    ("PATCH", "/api/quotas", access_api.change_quotas),
)


def routes(*, read_only: bool) -> tuple[HttpRoute[ConsoleRequest], ...]:
    """The rows that this console has; a read-only console has none that changes something."""
    found = [HttpRoute(*row, Role.VIEW) for row in _VIEWS]
    found += [_audited(row, Role.ADMIN, "access_read") for row in _ACCESS]
    found += [_audited(row, Role.READ, "records_read") for row in _RECORDS]
    found += [HttpRoute(*row, Role.READ) for row in _ROWS]
    if not read_only:
        found += [_audited(row, Role.WRITE, "console_change") for row in _CHANGES]
        found += [_audited(row, Role.ADMIN, "console_change") for row in _ADMINISTRATION]
    return tuple(found)


def _audited(row: Row, role: Role, event: str) -> HttpRoute[ConsoleRequest]:
    method, pattern, handler = row
    return HttpRoute(method, pattern, audited(method, pattern, handler, event), role)
