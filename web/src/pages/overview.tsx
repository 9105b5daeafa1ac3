import type { JSX } from "preact";
import { useData } from "../api";
import { Shown } from "../components/states";
import { Table, byNumber } from "../components/table";
import type { TopicRow } from "./topics";
import { count } from "../numbers";
import type { Flow } from "../flow";
import { FlowOf } from "./lineage";

interface Broker {
  id: number;
  host: string;
  port: number;
  rack: string | null;
}

interface ClusterInfo {
  cluster_id: string;
  controller: number | null;
  brokers: Broker[];
}

/** The page of the lineage has more. */
const MOST_NODES = 40;

export default function Overview(): JSX.Element {
  const cluster = useData<ClusterInfo>("/cluster", 5000);
  const topics = useData<{ topics: TopicRow[] }>("/topics", 10000);
  const flow = useData<Flow>(`/lineage?most=${MOST_NODES}`, 1000);
  const rows = topics.data?.topics ?? [];
  const sum = (value: (row: TopicRow) => number) => rows.reduce((total, row) => total + value(row), 0);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Overview</h1>
      </div>
      <Shown of={cluster}>
        {(data) => (
          <>
            <div class="cards">
              <Figure value={count(data.brokers.length)} label="brokers" />
              <Figure value={topics.data && count(rows.filter((row) => !row.internal).length)} label="topics" />
              <Figure value={topics.data && count(sum((row) => row.partitions))} label="partitions" />
              <Figure value={topics.data && count(sum((row) => row.under_replicated))} label="under-replicated" />
              <Figure value={topics.data && count(sum((row) => row.offline))} label="without a leader" />
            </div>
            <h2>Data flow</h2>
            <FlowOf flow={flow} />
            <h2>Brokers</h2>
            <Table
              label="Brokers"
              rows={data.brokers}
              id={(row) => String(row.id)}
              columns={[
                { key: "id", title: "Broker", cell: (row) => row.id, compare: byNumber((row) => row.id) },
                { key: "host", title: "Address", cell: (row) => `${row.host}:${row.port}` },
                { key: "rack", title: "Rack", cell: (row) => row.rack ?? "", optional: true },
                { key: "role", title: "Role", cell: (row) => (row.id === data.controller ? "controller" : "") },
              ]}
            />
          </>
        )}
      </Shown>
    </div>
  );
}

function Figure({ value, label }: { value: string | undefined; label: string }): JSX.Element {
  return (
    <div class="card">
      <span class="figure">{value ?? "…"}</span>
      <span>{label}</span>
    </div>
  );
}
