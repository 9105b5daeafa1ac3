import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { ApiError, post, useData, type Long } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Filter, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Amount, Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { bytes, count } from "../numbers";
import { Link, navigate, param, path, setParams } from "../router";
import { mayChange } from "../session";
import { TopicTree } from "./topic_tree";
import type { TopicRow } from "./topics";

interface Numbers {
  records: Long | null;
  records_gap: string;
  bytes: Long | null;
  bytes_gap: string;
}

const REFRESH_MS = 10_000;

export function TopicList(): JSX.Element {
  const topics = useData<{ topics: TopicRow[] }>("/topics", REFRESH_MS);
  const numbers = useNumbers();
  const [creating, setCreating] = useState(false);
  const text = param("q").toLowerCase();
  const internal = param("internal") === "yes";
  const tree = param("view") === "tree";
  const shown = (topics.data?.topics ?? []).filter((row) => (internal || !row.internal) && row.name.toLowerCase().includes(text));
  return (
    <div class="page">
      <div class="page-head">
        <h1>Topics</h1>
        {mayChange() && (
          <button type="button" class="primary" onClick={() => setCreating(true)}>
            Create topic
          </button>
        )}
      </div>
      <div class="toolbar">
        <Filter label="Filter by name" value={param("q")} onInput={(value) => setParams({ q: value })} />
        <label>
          <input type="checkbox" checked={internal} onChange={(event) => setParams({ internal: event.currentTarget.checked ? "yes" : "" })} /> internal topics
        </label>
        <label>
          <input type="checkbox" checked={tree} onChange={(event) => setParams({ view: event.currentTarget.checked ? "tree" : "" })} /> as a tree
        </label>
        <span class="muted">{topics.data && `${count(shown.length)} of ${count(topics.data.topics.length)}`}</span>
      </div>
      <Shown of={topics}>
        {() => tree ? <TopicTree rows={shown} /> : (
          <Table
            label="Topics"
            rows={shown}
            id={(row) => row.name}
            sort="name"
            onVisible={(rows) => numbers.show(rows.map((row) => row.name))}
            empty={text === "" ? "The cluster has no topics." : "No topic has this name."}
            columns={[
              { key: "name", title: "Topic", cell: (row) => <Link to={path("topics", row.name)}>{row.name}</Link>, compare: byText((row) => row.name) },
              { key: "partitions", title: "Partitions", cell: (row) => count(row.partitions), compare: byNumber((row) => row.partitions), number: true },
              { key: "replicas", title: "Replicas", cell: (row) => row.replication_factor, compare: byNumber((row) => row.replication_factor), number: true, optional: true },
              { key: "records", title: "Records", cell: (row) => <Known of={numbers.of(row.name)} name="records" />, number: true },
              { key: "bytes", title: "Size", cell: (row) => <Known of={numbers.of(row.name)} name="bytes" />, number: true, optional: true },
              { key: "groups", title: "Groups", cell: (row) => <Amount value={count(row.groups)} gap={row.groups_gap} />, compare: byNumber((row) => row.groups), number: true, optional: true },
              { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={row.lag_gap} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true, optional: true },
              { key: "state", title: "State", cell: (row) => <State row={row} />, compare: byNumber((row) => row.offline * 1000 + row.under_replicated) },
            ]}
          />
        )}
      </Shown>
      {creating && <CreateTopic onClose={() => setCreating(false)} />}
    </div>
  );
}

function State({ row }: { row: TopicRow }): JSX.Element {
  if (row.offline > 0) return <Badge kind="bad">{row.offline} without a leader</Badge>;
  if (row.under_replicated > 0) return <Badge kind="warning">{row.under_replicated} under-replicated</Badge>;
  return <Badge kind="ok">ok</Badge>;
}

/** One of the numbers of a row; nothing until they have come. */
function Known({ of, name }: { of: Numbers | string | undefined; name: "records" | "bytes" }): JSX.Element | null {
  if (of === undefined) return null;
  if (typeof of === "string") return <Amount value={null} gap={of} />;
  const value = of[name];
  return <Amount value={value === null ? null : name === "bytes" ? bytes(value) : count(value)} gap={of[`${name}_gap`]} />;
}

/** Records and bytes of the topics on the screen, asked for when they appear. */
function useNumbers() {
  const known = useRef(new Map<string, { numbers?: Numbers | string; at: number }>());
  const [, redraw] = useState(0);
  const show = async (names: string[]) => {
    const now = Date.now();
    const wanted = names.filter((name) => now - (known.current.get(name)?.at ?? 0) > REFRESH_MS).slice(0, 200);
    if (wanted.length === 0) return;
    for (const name of wanted) known.current.set(name, { ...known.current.get(name), at: now });
    try {
      const found = await post<Record<string, Numbers>>("/topic-numbers", { topics: wanted });
      for (const [name, numbers] of Object.entries(found)) known.current.set(name, { numbers, at: now });
      redraw((turn) => turn + 1);
    } catch (error) {
      // The rows tell why; the next screen asks again.
      for (const name of wanted) known.current.set(name, { numbers: error instanceof ApiError ? error.message : String(error), at: 0 });
      redraw((turn) => turn + 1);
    }
  };
  return { show: (names: string[]) => void show(names), of: (name: string) => known.current.get(name)?.numbers };
}

function CreateTopic({ onClose }: { onClose: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [replicas, setReplicas] = useState("");
  const command = ["headrace topics create", quoted(name || "NAME"), partitions && `--partitions ${partitions}`, replicas && `--replication-factor ${replicas}`].filter(Boolean).join(" ");
  const create = async () => {
    await post("/topics", { name, partitions: partitions || null, replication_factor: replicas || null });
    notify(`Topic ${name} was created.`);
    navigate(path("topics", name));
  };
  return (
    <Dialog title="Create topic" action="Create" command={command} onSubmit={create} onClose={onClose}>
      <TextField label="Name" value={name} onInput={setName} required />
      <TextField label="Partitions" value={partitions} onInput={setPartitions} type="number" placeholder="the cluster's default" />
      <TextField label="Replication factor" value={replicas} onInput={setReplicas} type="number" placeholder="the cluster's default" />
    </Dialog>
  );
}
