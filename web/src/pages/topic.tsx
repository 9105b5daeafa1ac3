import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { remove, useData, type Long } from "../api";
import { ConfigTable } from "../components/config_table";
import { Dialog, quoted } from "../components/dialog";
import { TextField } from "../components/field";
import { GroupStatus } from "../components/group_status";
import { notify } from "../components/notices";
import { Amount, Badge, Shown, Unavailable } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { Tabs } from "../components/tabs";
import { bytes, count } from "../numbers";
import { Link, navigate, path } from "../router";
import { has, mayAdminister, mayChange, restriction } from "../session";
import { durationText } from "../time";
import { Produce } from "../components/produce_dialog";
import { Records } from "./records";
import { AddPartitions, MoveReplicas } from "./topic_forms";

interface PartitionRow {
  partition: number;
  leader: number | null;
  replicas: number[];
  in_sync: number[];
  begin: Long | null;
  end: Long | null;
  bytes: Long | null;
}

interface TopicInfo {
  name: string;
  id: string | null;
  internal: boolean;
  replication_factor: number;
  partitions: PartitionRow[];
}

const PARTS: Record<string, string> = { records: "Records", partitions: "Partitions", groups: "Groups", settings: "Settings" };

export function TopicPage({ name, part }: { name: string; part: string }): JSX.Element {
  const [deleting, setDeleting] = useState(false);
  const [producing, setProducing] = useState(false);
  const [adding, setAdding] = useState(false);
  return (
    <div class="page">
      <div class="page-head">
        <h1>{name}</h1>
        {mayChange() && (
          <>
            <button type="button" onClick={() => setAdding(true)}>
              Add partitions
            </button>
            <button type="button" class="primary" onClick={() => setProducing(true)}>
              Produce
            </button>
            <button type="button" class="danger" onClick={() => setDeleting(true)}>
              Delete topic
            </button>
          </>
        )}
      </div>
      <Tabs
        label="Parts of the topic"
        tabs={Object.entries(PARTS).map(([key, title]) => ({ to: path("topics", name, key), title, current: key === part }))}
      />
      {part === "settings" ? <ConfigTable place={`/topics/${encodeURIComponent(name)}/configs`} command={`topic ${quoted(name)}`} own="topic" /> : part === "partitions" ? <Partitions name={name} /> : part === "groups" ? <TopicGroups name={name} /> : has("read") ? <Records topic={name} /> : <Unavailable why={restriction()} />}
      {producing && <Produce topic={name} onClose={() => setProducing(false)} />}
      {adding && <AddPartitions topic={name} onClose={() => setAdding(false)} />}
      {deleting && <DeleteTopic name={name} onClose={() => setDeleting(false)} />}
    </div>
  );
}

function Partitions({ name }: { name: string }): JSX.Element {
  const topic = useData<TopicInfo>(`/topics/${encodeURIComponent(name)}`, 5000);
  const [moving, setMoving] = useState<PartitionRow | null>(null);
  return (
    <>
    <Shown of={topic}>
      {(data) => (
        <Table
          label="Partitions"
          rows={data.partitions}
          id={(row) => String(row.partition)}
          columns={[
            { key: "partition", title: "Partition", cell: (row) => row.partition, compare: byNumber((row) => row.partition), number: true },
            { key: "leader", title: "Leader", cell: (row) => (row.leader === null ? <Badge kind="bad">none</Badge> : row.leader), compare: byNumber((row) => row.leader) },
            { key: "replicas", title: "Replicas", cell: (row) => row.replicas.join(", ") },
            { key: "in_sync", title: "In sync", cell: (row) => (row.in_sync.length < row.replicas.length ? <Badge kind="warning">{row.in_sync.join(", ")}</Badge> : row.in_sync.join(", ")) },
            { key: "begin", title: "First offset", cell: (row) => <Amount value={count(row.begin)} gap={row.begin === null ? "no leader" : ""} />, number: true },
            { key: "end", title: "End offset", cell: (row) => <Amount value={count(row.end)} gap={row.end === null ? "no leader" : ""} />, number: true },
            { key: "bytes", title: "Size", cell: (row) => <Amount value={bytes(row.bytes)} gap={row.bytes === null ? "no broker tells it" : ""} />, compare: byNumber((row) => (row.bytes === null ? null : BigInt(row.bytes))), number: true },
            {
              key: "action",
              title: "Action",
              cell: (row) =>
                mayAdminister() && (
                  <button type="button" class="link" aria-label={`Move the replicas of partition ${row.partition}`} onClick={() => setMoving(row)}>
                    Move
                  </button>
                ),
            },
          ]}
        />
      )}
    </Shown>
    {moving !== null && (
      <MoveReplicas
        topic={name}
        partition={moving.partition}
        replicas={moving.replicas}
        onClose={() => {
          setMoving(null);
          topic.reload();
        }}
      />
    )}
    </>
  );
}

interface TopicGroup {
  name: string;
  state: string;
  members: number;
  lag: Long | null;
  lag_gap: string;
  lag_seconds: number | null;
  status: string;
  status_complete: boolean;
}

function TopicGroups({ name }: { name: string }): JSX.Element {
  const groups = useData<{ groups: TopicGroup[]; problem: string }>(`/topics/${encodeURIComponent(name)}/groups`, 5000);
  return (
    <Shown of={groups}>
      {(data) => (
        <>
        {data.problem !== "" && <p class="error">Groups may be missing or out of date: {data.problem}</p>}
        <Table
          label="Groups"
          rows={data.groups}
          id={(row) => row.name}
          empty={data.problem === "" ? "No consumer group reads this topic." : "No consumer group that is known reads this topic."}
          columns={[
            { key: "name", title: "Group", cell: (row) => <Link to={path("groups", row.name)}>{row.name}</Link>, compare: byText((row) => row.name) },
            { key: "status", title: "Status", cell: (row) => <GroupStatus status={row.status} complete={row.status_complete} />, compare: byText((row) => row.status) },
            { key: "members", title: "Members", cell: (row) => count(row.members), compare: byNumber((row) => row.members), number: true },
            { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={row.lag_gap} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
            { key: "seconds", title: "Lag in time", cell: (row) => (row.lag_seconds === null ? "unknown" : durationText(row.lag_seconds * 1000)), compare: byNumber((row) => row.lag_seconds), number: true },
          ]}
        />
        </>
      )}
    </Shown>
  );
}

function DeleteTopic({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const [typed, setTyped] = useState("");
  const submit = async () => {
    await remove(`/topics/${encodeURIComponent(name)}`);
    notify(`Topic ${name} was deleted.`);
    navigate("/topics");
  };
  return (
    <Dialog title={`Delete topic ${name}`} action="Delete" dangerous command={`headrace topics delete ${quoted(name)} --yes`} disabled={typed !== name} onSubmit={submit} onClose={onClose}>
      <p>All records of the topic are deleted. This cannot be undone.</p>
      <TextField label="Enter the name of the topic" value={typed} onInput={setTyped} />
    </Dialog>
  );
}
