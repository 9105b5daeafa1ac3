import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { rate } from "../numbers";
import { Link, path } from "../router";
import type { Flow, FlowEdge, FlowNode } from "../flow";

const NODE_WIDTH = 190;
const NODE_HEIGHT = 48;
const TITLE_LENGTH = 24;

interface Position {
  x: number;
  y: number;
}

interface Placed {
  width: number;
  height: number;
  nodes: Map<string, Position>;
  edges: Map<string, Position[]>;
}

/** The flow as a picture, from left to right. The library that places the nodes is loaded when the first picture is shown. */
export function FlowPicture({ flow }: { flow: Flow }): JSX.Element {
  const [placed, setPlaced] = useState<Placed | null>(null);
  const structure = JSON.stringify([flow.nodes.map((node) => node.key), flow.edges.map(edgeKey)]);
  useEffect(() => {
    let ended = false;
    void place(flow).then((found) => {
      if (!ended) setPlaced(found);
    });
    return () => {
      ended = true;
    };
  }, [structure]);
  if (placed === null) return <p class="loading">Drawing…</p>;
  return (
    <div class="flow-scroll" tabIndex={0} role="region" aria-label="Flow picture">
      <svg class="flow" viewBox={`0 0 ${placed.width} ${placed.height}`} width={placed.width} height={placed.height} role="group" aria-label="Data flow. The table below has the same flows.">
        {flow.edges.map((edge) => (
          <Edge key={edgeKey(edge)} edge={edge} points={placed.edges.get(edgeKey(edge))} />
        ))}
        {flow.nodes.map((node) => (
          <Node key={node.key} node={node} at={placed.nodes.get(node.key)} />
        ))}
      </svg>
    </div>
  );
}

async function place(flow: Flow): Promise<Placed> {
  const dagre = await import("@dagrejs/dagre");
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 110, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of flow.nodes) graph.setNode(node.key, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const edge of flow.edges) graph.setEdge(edge.from, edge.to);
  dagre.layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  const node = (key: string) => graph.node(key) as Position;
  return {
    width: Math.ceil(size.width ?? 0),
    height: Math.ceil(size.height ?? 0),
    nodes: new Map(flow.nodes.map(({ key }) => [key, node(key)])),
    edges: new Map(flow.edges.map((edge) => [edgeKey(edge), line(node(edge.from), node(edge.to), (graph.edge(edge.from, edge.to) as { points: Position[] }).points)])),
  };
}

function edgeKey(edge: FlowEdge): string {
  return `${edge.from}\n${edge.to}`;
}

function Edge({ edge, points }: { edge: FlowEdge; points: Position[] | undefined }): JSX.Element | null {
  if (points === undefined) return null;
  const moving = edge.records_per_s !== null && edge.records_per_s > 0;
  const width = moving ? 1.5 + Math.min(4, Math.log10(1 + edge.records_per_s!)) : 1.5;
  const middle = (points.length - 1) / 2;
  const before = points[Math.floor(middle)]!;
  const after = points[Math.ceil(middle)]!;
  return (
    <g class={moving ? "flow-edge moving" : "flow-edge"}>
      <title>{edge.known_from}</title>
      <path d={curve(points)} stroke-width={width} />
      {edge.records_per_s !== null && (
        <text x={(before.x + after.x) / 2} y={(before.y + after.y) / 2 - 6} text-anchor="middle">
          {rate(edge.records_per_s)}
        </text>
      )}
    </g>
  );
}

/** A smooth line that is horizontal at each point. */
function curve(points: Position[]): string {
  const at = (x: number, y: number) => `${x.toFixed(1)},${y.toFixed(1)}`;
  return points
    .map((point, index) => {
      const last = points[index - 1];
      if (last === undefined) return `M${at(point.x, point.y)}`;
      const middle = (last.x + point.x) / 2;
      return `C${at(middle, last.y)} ${at(middle, point.y)} ${at(point.x, point.y)}`;
    })
    .join(" ");
}

/** From the right side of a node to the left side of the next one, around the nodes between them. */
function line(from: Position, to: Position, found: Position[]): Position[] {
  const between = found.length > 3 ? found.slice(1, -1) : [];
  const sides = from.x < to.x ? 1 : -1;
  return [{ x: from.x + (sides * NODE_WIDTH) / 2, y: from.y }, ...between, { x: to.x - (sides * NODE_WIDTH) / 2, y: to.y }];
}

function Node({ node, at }: { node: FlowNode; at: Position | undefined }): JSX.Element | null {
  if (at === undefined) return null;
  const left = at.x - NODE_WIDTH / 2;
  const top = at.y - NODE_HEIGHT / 2;
  const to = nodeAddress(node);
  const short = node.title.length > TITLE_LENGTH ? `${node.title.slice(0, TITLE_LENGTH - 1)}…` : node.title;
  const body = (
    <g class={`flow-node ${node.kind} ${node.trouble === "" ? "" : "trouble"}`}>
      <title>{[node.title, node.detail, node.trouble].filter(Boolean).join(" · ")}</title>
      <rect x={left} y={top} width={NODE_WIDTH} height={NODE_HEIGHT} rx={node.kind === "query" ? NODE_HEIGHT / 2 : 8} />
      <text class="flow-title" x={at.x} y={at.y - 3} text-anchor="middle">
        {short}
      </text>
      <text class="flow-detail" x={at.x} y={at.y + 14} text-anchor="middle">
        {node.kind}
        {node.trouble !== "" ? " · needs attention" : node.records_per_s === null ? "" : ` · ${rate(node.records_per_s)} in`}
      </text>
    </g>
  );
  return to === null ? body : <Link to={to}>{body}</Link>;
}

/** The page of a node; null for tables and paths, which the console does not have. */
export function nodeAddress(node: FlowNode): string | null {
  if (node.kind === "topic") return path("topics", node.id);
  if (node.kind === "query") return path("queries", node.id);
  if (node.kind === "connector") return path("connectors", node.id);
  return node.kind === "group" ? path("groups", node.id) : null;
}
