"""Lineage with rates: topics, queries, tables and consumer groups, and how data flows."""

from collections.abc import Sequence

from headrace.console.connect.connectors import ConnectorView
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.console.flow.flow_rates import FlowRates
from headrace.console.flow.lineage import MOST_NODES, FlowEdge, FlowNode, NodeKind, build_graph
from headrace.console.flow.query_progress import now_ms
from headrace.service.errors import HttpError


async def get_lineage(request: ConsoleRequest) -> object:
    """The graph. What could not be read is named in `missing`, and the rest is returned."""
    console = request.console
    missing: dict[str, str] = {}
    try:
        queries = [each.query for each in await console.queries.queries()]
    except HttpError as error:
        queries, missing["queries"] = [], error.message
    try:
        groups = list(await console.observer.groups())
        if console.observer.problem:
            missing["some groups"] = console.observer.problem
    except HttpError as error:
        groups, missing["groups"] = [], error.message
    connectors: list[tuple[ConnectorView, Sequence[str]]] = []
    if console.connectors.is_configured:
        try:
            used = await console.connectors.used_topics()
            views = await console.connectors.views()
            connectors = [(each, used.get(each.name, ())) for each in views]
        except HttpError as error:
            missing["connectors"] = error.message
    most = whole_number("most", request.text("most", str(MOST_NODES)), 2, MOST_NODES)
    graph = build_graph(queries, groups, now_ms(), connectors, text=request.text("q"), most=most)
    rates = console.flow_rates
    try:
        await rates.sample(
            [each.id for each in graph.nodes if each.kind is NodeKind.TOPIC],
            [each.id for each in graph.nodes if each.kind is NodeKind.GROUP],
        )
    except HttpError as error:
        missing["rates"] = error.message
    return {
        "nodes": [_node(each, rates) for each in graph.nodes],
        "edges": [_edge(each, rates) for each in graph.edges],
        "left_out": graph.left_out,
        "missing": missing,
    }


def _node(node: FlowNode, rates: FlowRates) -> dict[str, object]:
    return {
        "key": node.key,
        "kind": node.kind,
        "id": node.id,
        "title": node.title,
        "detail": node.detail,
        "trouble": node.trouble,
        "records_per_s": rates.topic(node.id) if node.kind is NodeKind.TOPIC else None,
    }


def _edge(edge: FlowEdge, rates: FlowRates) -> dict[str, object]:
    measured = None
    if edge.target.kind is NodeKind.GROUP:
        measured = rates.group(edge.target.id, edge.source.id)
    return {
        "from": edge.source.key,
        "to": edge.target.key,
        "known_from": edge.known_from,
        "lag": None if edge.lag_records is None else str(edge.lag_records),
        "lag_gap": edge.lag_gap,
        "records_per_s": edge.reported_rows_per_s if measured is None else measured,
    }
