import type { JSX } from "preact";
import { useData, type Loaded } from "../api";
import { Filter } from "../components/field";
import { FlowPicture, nodeAddress } from "../components/flow_picture";
import { Amount, Badge, Shown, Unavailable } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import type { Flow, FlowEdge, FlowNode } from "../flow";
import { count, rate } from "../numbers";
import { Link, param, setParams } from "../router";

export default function Lineage(): JSX.Element {
  const text = param("q");
  const flow = useData<Flow>(`/lineage?q=${encodeURIComponent(text)}`, 1000);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Lineage</h1>
      </div>
      <div class="toolbar">
        <Filter label="Filter by name" value={text} onInput={(value) => setParams({ q: value })} />
        {flow.data !== undefined && (
          <span class="muted">
            {count(flow.data.nodes.length)} nodes, {count(flow.data.edges.length)} flows
          </span>
        )}
      </div>
      <FlowOf flow={flow} empty={text === "" ? undefined : "Nothing with this name is part of a flow."} />
      {flow.data !== undefined && flow.data.edges.length > 0 && <Flows flow={flow.data} />}
    </div>
  );
}

const NOTHING = "No flow is known yet: a flow is a consumer group with committed offsets, a connector, or a Spark query that has reported its progress.";

/** The picture, what is left out of it, and what could not be read. */
export function FlowOf({ flow, empty = NOTHING }: { flow: Loaded<Flow>; empty?: string | undefined }): JSX.Element {
  return (
    <Shown of={flow}>
      {(data) => (
        <>
          {Object.entries(data.missing).map(([what, why]) => (
            <Unavailable key={what} why={`${what}: ${why}`} />
          ))}
          {data.nodes.length === 0 ? <p class="empty">{empty}</p> : <FlowPicture flow={data} />}
          <LeftOut of={data.left_out} />
        </>
      )}
    </Shown>
  );
}

const PLURAL: Record<string, string> = { topic: "topics", query: "queries", table: "tables or paths", group: "consumer groups", connector: "connectors" };

function LeftOut({ of }: { of: Flow["left_out"] }): JSX.Element | null {
  const parts = Object.entries(of).map(([kind, number]) => `${count(number)} ${PLURAL[kind] ?? kind}`);
  if (parts.length === 0) return null;
  return (
    <p class="muted" role="note">
      Not shown, because the picture is bounded: {parts.join(", ")}. <Link to="/lineage">Filter by name</Link> to see them.
    </p>
  );
}

function Flows({ flow }: { flow: Flow }): JSX.Element {
  const nodes = new Map(flow.nodes.map((node) => [node.key, node]));
  const title = (key: string) => nodes.get(key)?.title ?? key;
  return (
    <>
      <h2>Flows</h2>
      <Table
        label="Flows"
        rows={flow.edges}
        id={(row) => `${row.from}\n${row.to}`}
        columns={[
          { key: "from", title: "From", cell: (row) => <NodeName node={nodes.get(row.from)} />, compare: byText((row) => title(row.from)) },
          { key: "to", title: "To", cell: (row) => <NodeName node={nodes.get(row.to)} />, compare: byText((row) => title(row.to)) },
          { key: "rate", title: "Rate", cell: rateText, compare: byNumber((row) => row.records_per_s), number: true },
          { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={row.lag_gap} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
          { key: "known", title: "Known from", cell: (row) => row.known_from, compare: byText((row) => row.known_from), optional: true },
        ]}
      />
    </>
  );
}

function rateText(edge: FlowEdge): string {
  return edge.records_per_s === null ? "unknown" : rate(edge.records_per_s);
}

function NodeName({ node }: { node: FlowNode | undefined }): JSX.Element | null {
  if (node === undefined) return null;
  const to = nodeAddress(node);
  return (
    <>
      <Badge kind={node.trouble === "" ? "" : "bad"}>{node.kind}</Badge> {to === null ? <bdi>{node.title}</bdi> : <Link to={to}>{node.title}</Link>}
    </>
  );
}
