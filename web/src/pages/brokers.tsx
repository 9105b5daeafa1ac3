import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, remove, useData, type Long } from "../api";
import { ConfigTable } from "../components/config_table";
import { Dialog, kafkaTool } from "../components/dialog";
import { notify } from "../components/notices";
import { Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { Tabs } from "../components/tabs";
import { bytes, count } from "../numbers";
import { Link, path } from "../router";
import { mayAdminister, mayChange } from "../session";
import { reassignmentLine } from "./topic_forms";

interface BrokerRow {
  id: number;
  host: string;
  port: number;
  rack: string | null;
  controller: boolean;
  leaders: number;
  replicas: number;
  leader_skew_percent: number;
}

interface Problem {
  count: number;
  partitions: string[];
}

interface BrokersInfo {
  cluster_id: string;
  brokers: BrokerRow[];
  absent_brokers: number[];
  under_replicated: Problem;
  under_min_isr: Problem;
  offline: Problem;
  moving: Problem;
  not_led_by_first_replica: number;
  features: Record<string, number>;
}

interface Folder {
  broker: number;
  path: string;
  error: string;
  partitions: number;
  bytes: Long;
  total_bytes: Long | null;
  usable_bytes: Long | null;
}

interface Move {
  topic: string;
  partition: number;
  replicas: number[];
  adding: number[];
  removing: number[];
}

const PARTS: Record<string, string> = { list: "Brokers", folders: "Log folders", reassignments: "Reassignments" };

/** `/brokers`, `/brokers/folders`, `/brokers/reassignments` and `/brokers/ID`. */
export default function Brokers({ parts }: { parts: string[] }): JSX.Element {
  const part = parts[0] ?? "list";
  const isBroker = /^\d+$/.test(part);
  return (
    <div class="page">
      <div class="page-head">
        <h1>{isBroker ? `Broker ${part}` : "Brokers"}</h1>
      </div>
      {!isBroker && <Tabs label="Parts" tabs={Object.entries(PARTS).map(([key, title]) => ({ to: key === "list" ? "/brokers" : path("brokers", key), title, current: key === part }))} />}
      {isBroker ? <ConfigTable place={`/brokers/${part}/configs`} command={`broker ${part}`} own="broker" /> : part === "folders" ? <Folders /> : part === "reassignments" ? <Reassignments /> : <List />}
    </div>
  );
}

function List(): JSX.Element {
  const brokers = useData<BrokersInfo>("/brokers", 5000);
  const [electing, setElecting] = useState(false);
  return (
    <Shown of={brokers}>
      {(data) => (
        <>
          <Problems data={data} />
          <Table
            label="Brokers"
            rows={data.brokers}
            id={(row) => String(row.id)}
            columns={[
              { key: "id", title: "Broker", cell: (row) => <Link to={path("brokers", row.id)}>{row.id}</Link>, compare: byNumber((row) => row.id) },
              { key: "address", title: "Address", cell: (row) => `${row.host}:${row.port}`, compare: byText((row) => row.host) },
              { key: "role", title: "Role", cell: (row) => (row.controller ? <Badge kind="ok">controller</Badge> : "") },
              { key: "rack", title: "Rack", cell: (row) => row.rack ?? "", optional: true },
              { key: "leaders", title: "Leads", cell: (row) => count(row.leaders), compare: byNumber((row) => row.leaders), number: true },
              { key: "replicas", title: "Replicas", cell: (row) => count(row.replicas), compare: byNumber((row) => row.replicas), number: true },
              { key: "skew", title: "Leads more than its share", cell: (row) => `${row.leader_skew_percent > 0 ? "+" : ""}${row.leader_skew_percent} %`, compare: byNumber((row) => row.leader_skew_percent), number: true, optional: true },
            ]}
          />
          {data.not_led_by_first_replica > 0 && (
            <p>
              {count(data.not_led_by_first_replica)} partitions are not led by their preferred replica.{" "}
              {mayChange() && (
                <button type="button" onClick={() => setElecting(true)}>
                  Elect preferred leaders
                </button>
              )}
            </p>
          )}
          <p class="muted">
            Cluster {data.cluster_id}
            {Object.entries(data.features).map(([name, level]) => `, ${name} ${level}`)}
          </p>
          {electing && (
            <Dialog
              title="Elect preferred leaders"
              action="Elect"
              command={kafkaTool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")}
              onClose={() => setElecting(false)}
              onSubmit={async () => {
                const { refused } = await post<{ refused: Record<string, string> }>("/preferred-leaders", {});
                notify(Object.keys(refused).length === 0 ? "The preferred leaders were elected." : `Not elected: ${Object.keys(refused).join(", ")}`);
                brokers.reload();
              }}
            >
              <p>Each partition whose preferred replica is in sync gets it as its leader. Clients find the new leaders by themselves.</p>
            </Dialog>
          )}
        </>
      )}
    </Shown>
  );
}

function Problems({ data }: { data: BrokersInfo }): JSX.Element {
  const found: [string, Problem][] = [
    ["without a leader", data.offline],
    ["with fewer in-sync replicas than min.insync.replicas", data.under_min_isr],
    ["under-replicated", data.under_replicated],
  ];
  const bad = found.filter(([, problem]) => problem.count > 0);
  if (bad.length === 0 && data.absent_brokers.length === 0) return <p><Badge kind="ok">All partitions have a leader and all replicas are in sync.</Badge></p>;
  return (
    <div class="card">
      {data.absent_brokers.length > 0 && <p class="error">Brokers that hold replicas and are not there: {data.absent_brokers.join(", ")}</p>}
      {bad.map(([title, problem]) => (
        <details key={title}>
          <summary>
            {count(problem.count)} partitions {title}
          </summary>
          <p>{problem.partitions.join(", ")}{problem.count > problem.partitions.length && " and more"}</p>
        </details>
      ))}
    </div>
  );
}

function Folders(): JSX.Element {
  const folders = useData<{ folders: Folder[] }>("/log-folders", 10_000);
  return (
    <Shown of={folders}>
      {(data) => (
        <Table
          label="Log folders"
          rows={data.folders}
          id={(row) => `${row.broker} ${row.path}`}
          sort="broker"
          columns={[
            { key: "broker", title: "Broker", cell: (row) => <Link to={path("brokers", row.broker)}>{row.broker}</Link>, compare: byNumber((row) => row.broker) },
            { key: "path", title: "Folder", cell: (row) => <code>{row.path}</code>, compare: byText((row) => row.path) },
            { key: "state", title: "State", cell: (row) => (row.error === "" ? <Badge kind="ok">ok</Badge> : <Badge kind="bad">{row.error}</Badge>) },
            { key: "partitions", title: "Partitions", cell: (row) => count(row.partitions), compare: byNumber((row) => row.partitions), number: true },
            { key: "bytes", title: "Size", cell: (row) => bytes(row.bytes), compare: byNumber((row) => BigInt(row.bytes)), number: true },
            { key: "free", title: "Free", cell: (row) => (row.usable_bytes === null ? <span class="muted">unknown</span> : `${bytes(row.usable_bytes)} of ${bytes(row.total_bytes)}`), number: true },
          ]}
        />
      )}
    </Shown>
  );
}

function Reassignments(): JSX.Element {
  const moves = useData<{ moves: Move[] }>("/reassignments", 2000);
  const [cancelling, setCancelling] = useState<Move | null>(null);
  return (
    <>
      <Shown of={moves}>
        {(data) => (
          <Table
            label="Reassignments"
            rows={data.moves}
            id={(row) => `${row.topic}-${row.partition}`}
            empty="No partition is being moved."
            columns={[
              { key: "place", title: "Partition", cell: (row) => <Link to={path("topics", row.topic, "partitions")}>{`${row.topic}-${row.partition}`}</Link>, compare: byText((row) => row.topic) },
              { key: "replicas", title: "Replicas", cell: (row) => row.replicas.join(", ") },
              { key: "adding", title: "Added", cell: (row) => row.adding.join(", ") },
              { key: "removing", title: "Removed", cell: (row) => row.removing.join(", ") },
              {
                key: "action",
                title: "Action",
                cell: (row) =>
                  mayAdminister() && (
                    <button type="button" class="link" aria-label={`Cancel the reassignment of ${row.topic}-${row.partition}`} onClick={() => setCancelling(row)}>
                      Cancel
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      {cancelling !== null && (
        <Dialog
          title={`Cancel the reassignment of ${cancelling.topic}-${cancelling.partition}`}
          action="Cancel the reassignment"
          dangerous
          command={reassignmentLine(cancelling.topic, cancelling.partition, cancelling.replicas, "--cancel")}
          onClose={() => setCancelling(null)}
          onSubmit={async () => {
            await remove(`/reassignments/${encodeURIComponent(cancelling.topic)}/${cancelling.partition}`);
            notify("The reassignment was cancelled.");
            moves.reload();
          }}
        >
          <p>The partition keeps the replicas that it had before. What the new replicas have copied is deleted.</p>
        </Dialog>
      )}
    </>
  );
}
