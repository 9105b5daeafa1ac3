"""The route table of the REST interface, with ksqlDB's paths.

Statements need different roles, which `call.py` checks when it has read them.
"""

from headrace.security.roles import Role
from headrace.service.routes import HttpRoute
from headrace.sql.rest import inserts_api, queries_api, server_api, statements_api
from headrace.sql.rest.call import SqlCall

READ, ADMIN = Role.READ, Role.ADMIN

ROUTES: tuple[HttpRoute[SqlCall], ...] = (
    HttpRoute("GET", "/", server_api.root),
    HttpRoute("GET", "/info", server_api.info),
    HttpRoute("GET", "/healthcheck", server_api.healthcheck),
    HttpRoute("GET", "/clusterStatus", server_api.cluster_status),
    HttpRoute("GET", "/headrace/export", server_api.export),
    HttpRoute("POST", "/ksql", statements_api.run, READ),
    HttpRoute("POST", "/ksql/terminate", statements_api.terminate_cluster, ADMIN),
    HttpRoute("GET", "/status", statements_api.statuses),
    HttpRoute("GET", "/status/{type}/{entity}/{action}", statements_api.status),
    HttpRoute("GET", "/is_valid_property/{property}", statements_api.is_valid_property),
    HttpRoute("POST", "/query", queries_api.query, READ),
    HttpRoute("POST", "/query-stream", queries_api.query_stream, READ),
    HttpRoute("POST", "/close-query", queries_api.close_query, READ),
    HttpRoute("POST", "/inserts-stream", inserts_api.inserts_stream),
)
