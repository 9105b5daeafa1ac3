"""How data flows: topics, Spark queries, tables and paths, and consumer groups, as a graph.

Pure. Each edge says how it is known. A graph is bounded; what is left out is counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.admin.group_view import GroupView, total_lag
from headrace.console.connect.connectors import SINK, ConnectorView
from headrace.console.flow.query_progress import trouble
from headrace.pipelines.running.progress import Query, QuerySource

MOST_NODES = 200


class NodeKind(StrEnum):
    """What a node is."""

    TOPIC = "topic"
    QUERY = "query"
    TABLE = "table"
    GROUP = "group"
    CONNECTOR = "connector"


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A topic, a query, a consumer group, a connector, or a table, folder or other target."""

    kind: NodeKind
    id: str
    """Unique among the nodes of its kind."""
    title: str
    detail: str = ""
    trouble: str = ""

    @property
    def key(self) -> str:
        """Unique among all nodes."""
        return f"{self.kind}:{self.id}"


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """Data flows from one node to another."""

    source: FlowNode
    target: FlowNode
    known_from: str
    lag_records: int | None = None
    reported_rows_per_s: float | None = None
    """What a query reports; rates of topics and groups are measured (flow_rates.py)."""
    lag_gap: str = ""
    """Why the lag is unknown or too small; empty if it is exact."""


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Nodes and edges, and how many nodes of each kind are left out."""

    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...]
    left_out: dict[NodeKind, int] = field(default_factory=dict)


def build_graph(
    queries: Iterable[Query],
    groups: Iterable[GroupView],
    now_ms: int,
    connectors: Iterable[tuple[ConnectorView, Sequence[str]]] = (),
    *,
    text: str = "",
    most: int = MOST_NODES,
) -> FlowGraph:
    """The graph of everything that is connected to a topic, a query, a group or a connector.

    Connectors come with the topics that they have used.
    With `text` only edges that touch a node with this text in its name. Queries that need
    attention come first, then those that run, connectors, groups with members, and the rest.
    """
    ranked = sorted(queries, key=lambda each: (_rank(each, now_ms), each.title, each.id))
    edges = [edge for query in ranked for edge in query_edges(query, now_ms)]
    for connector, used in connectors:
        edges += connector_edges(connector, used)
    for view in sorted(groups, key=_group_rank):
        edges += group_edges(view)
    wanted = text.lower()
    if wanted:
        edges = [
            each
            for each in edges
            if wanted in each.source.title.lower() or wanted in each.target.title.lower()
        ]
    return _bounded(edges, most)


def query_edges(query: Query, now_ms: int) -> Iterator[FlowEdge]:
    """The topics that a query reads, and where it writes."""
    problem = trouble(query, now_ms)
    detail = f"{query.application}, {query.state}"
    node = FlowNode(NodeKind.QUERY, query.id, query.title, detail, problem)
    # The last rate that a silent query reported says nothing about now.
    rate = None if problem and query.state.alive else query.input_rows_per_s
    for source in query.sources:
        for name in sorted({*source.topics, *source.positions}):
            only = len({*source.topics, *source.positions}) == 1
            yield FlowEdge(
                topic_node(name),
                node,
                "offsets in the progress of the query",
                source.topics.get(name),
                # Spark reports one rate for a source, however many topics it has.
                rate if only and len(query.sources) == 1 else None,
            )
        place = _source_path(source)
        if place is not None:
            table = FlowNode(NodeKind.TABLE, place, place, "path")
            yield FlowEdge(table, node, "text of the source in the progress of the query")
    target = _sink_node(query)
    if target is not None:
        yield FlowEdge(node, *target)


def _source_path(source: QuerySource) -> str | None:
    """The folder that a source reads: streaming tables of declarative pipelines are such."""
    start, _, rest = source.description.partition("[")
    if start in ("FileStreamSource", "DeltaSource") and rest.endswith("]"):
        return rest[:-1]
    return None


def _sink_node(query: Query) -> tuple[FlowNode, str] | None:
    # Records of older programs have only Spark's text.
    target = query.sink_target
    if target is not None:
        known = "sink in the plan of the query"
        if target.topic:
            return topic_node(target.topic), known
        # Queries that read a table of a catalog report its path.
        place, title = target.path or target.table, target.table or target.path
        if place and title:
            kind = "table" if target.table else "path"
            return FlowNode(NodeKind.TABLE, place, title, f"{target.kind} {kind}"), known
    if not query.sink:
        return None
    known = "text of the sink in the progress of the query"
    start, _, rest = query.sink.partition("[")
    if rest.endswith("]") and start in ("FileSink", "DeltaSink"):
        place = rest[:-1]
        kind = "files" if start == "FileSink" else "delta path"
        return FlowNode(NodeKind.TABLE, place, place, kind), known
    # Sinks without a name of their own, such as console or foreachBatch, belong to one query.
    kind = target.kind if target is not None else "sink"
    return FlowNode(NodeKind.TABLE, f"{query.id}/sink", _short(query.sink), kind), known


def group_edges(view: GroupView) -> Iterator[FlowEdge]:
    """The topics that a consumer group reads."""
    group = view.description
    node = FlowNode(NodeKind.GROUP, group.name, group.name, group.state)
    for name in sorted({each.topic for each in view.partitions}):
        rows = [each for each in view.partitions if each.topic == name]
        lag = total_lag(rows, view.problem)
        committed = any(each.committed is not None for each in rows)
        assigned = any(each.owner is not None for each in rows)
        known = "committed offsets" if committed else "assigned partitions"
        if committed and assigned:
            known = "committed offsets and assigned partitions"
        yield FlowEdge(topic_node(name), node, known, lag.records, lag_gap=lag.gap)


def connector_edges(view: ConnectorView, used: Sequence[str]) -> Iterator[FlowEdge]:
    """The topics that a source writes or a sink reads."""
    detail = f"{view.plugin.rpartition('.')[2]}, {view.connector.state.lower()}"
    node = FlowNode(NodeKind.CONNECTOR, view.name, view.name, detail, view.problem)
    known = dict.fromkeys(used, "topics that the connector has used")
    for topic, name in view.configured_topics.items():
        known.setdefault(topic, f"setting {name} of the connector")
    for topic, reason in sorted(known.items()):
        if view.type == SINK:
            yield FlowEdge(topic_node(topic), node, reason)
        else:
            yield FlowEdge(node, topic_node(topic), reason)


def topic_node(name: str) -> FlowNode:
    return FlowNode(NodeKind.TOPIC, name, name)


def _bounded(edges: Sequence[FlowEdge], most: int) -> FlowGraph:
    """The first edges whose nodes fit."""
    nodes: dict[str, FlowNode] = {}
    left_out: dict[str, FlowNode] = {}
    shown: list[FlowEdge] = []
    for edge in edges:
        new = {each.key: each for each in (edge.source, edge.target) if each.key not in nodes}
        if len(nodes) + len(new) <= most:
            nodes |= new
            shown.append(edge)
            # A table of which one query knows only the path has the name that another one knows.
            for each in (edge.source, edge.target):
                if each.title != each.id:
                    nodes[each.key] = each
        else:
            left_out |= new
    counts: dict[NodeKind, int] = {}
    for key, node in left_out.items():
        if key not in nodes:
            counts[node.kind] = counts.get(node.kind, 0) + 1
    return FlowGraph(tuple(nodes.values()), tuple(shown), counts)


def _rank(query: Query, now_ms: int) -> int:
    return 0 if trouble(query, now_ms) else 1 if query.state.alive else 2


def _group_rank(view: GroupView) -> tuple[bool, int, str]:
    return not view.description.members, -(view.lag or 0), view.description.name


def _short(sink: str) -> str:
    """The text of a sink without the package and the address of its Java object."""
    name = sink.partition("@")[0].rstrip("$")
    return name.rpartition(".")[2] if "[" not in name else name
