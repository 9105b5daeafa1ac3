import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { remove, useData, type Long } from "../api";
import { Chart } from "../components/chart";
import { Dialog, quoted } from "../components/dialog";
import { GroupStatus } from "../components/group_status";
import { notify } from "../components/notices";
import { Amount, Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, navigate, path } from "../router";
import { mayChange } from "../session";
import { durationText } from "../time";
import { ResetOffsets } from "./group_reset";

interface Member {
  id: string;
  client_id: string;
  host: string;
  instance_id: string | null;
  lag: Long | null;
  lag_gap: string;
  partitions: string[] | null;
}

export interface GroupPartition {
  topic: string;
  partition: number;
  committed: Long | null;
  end: Long | null;
  lag: Long | null;
  lag_seconds: number | null;
  lag_seconds_note: string | null;
  member: string | null;
  status: string;
  status_complete: boolean;
}

export interface GroupInfo {
  name: string;
  state: string;
  type: string;
  assignor: string | null;
  coordinator: { id: number; host: string; port: number };
  lag: Long | null;
  lag_gap: string;
  lag_seconds: number | null;
  status: string;
  status_complete: boolean;
  members: Member[];
  partitions: GroupPartition[];
  history: [number, Long | null, number | null][];
}

export function GroupPage({ name }: { name: string }): JSX.Element {
  const group = useData<GroupInfo>(`/groups/${encodeURIComponent(name)}`, 5000);
  const [form, setForm] = useState<"" | "reset" | "delete">("");
  return (
    <div class="page">
      <div class="page-head">
        <h1>{name}</h1>
        {mayChange() && (
          <>
            <button type="button" onClick={() => setForm("reset")}>
              Reset offsets
            </button>
            <button type="button" class="danger" onClick={() => setForm("delete")}>
              Delete group
            </button>
          </>
        )}
      </div>
      <Shown of={group}>{(data) => <Details data={data} />}</Shown>
      {form === "reset" && group.data !== undefined && (
        <ResetOffsets
          group={group.data}
          onClose={() => {
            setForm("");
            group.reload();
          }}
        />
      )}
      {form === "delete" && (
        <Dialog
          title={`Delete group ${name}`}
          action="Delete"
          dangerous
          command={`headrace groups delete ${quoted(name)} --yes`}
          onClose={() => setForm("")}
          onSubmit={async () => {
            await remove(`/groups/${encodeURIComponent(name)}`);
            notify(`Group ${name} was deleted.`);
            navigate("/groups");
          }}
        >
          <p>The committed offsets of the group are deleted. Its consumers must have stopped.</p>
        </Dialog>
      )}
    </div>
  );
}

function Details({ data }: { data: GroupInfo }): JSX.Element {
  return (
    <>
      <div class="cards">
        <div class="card">
          <span class="figure">
            <Amount value={count(data.lag)} gap={data.lag_gap} />
          </span>
          <span>records not read</span>
        </div>
        <div class="card">
          <span class="figure">{data.lag_seconds === null ? "unknown" : `${data.lag_gap === "" ? "" : "at least "}${durationText(data.lag_seconds * 1000)}`}</span>
          <span>age of the oldest of them</span>
        </div>
        <div class="card">
          <span class="figure">
            <GroupStatus status={data.status} complete={data.status_complete} />
          </span>
          <span>{data.state}</span>
        </div>
        <div class="card">
          <span class="figure">{count(data.members.length)}</span>
          <span>members</span>
        </div>
      </div>
      <LagChart history={data.history} />
      <h2>Members</h2>
      <Table
        label="Members"
        sortParam="members"
        rows={data.members}
        id={(row) => row.id}
        empty="The group has no active members."
        columns={[
          { key: "client", title: "Client", cell: (row) => row.client_id, compare: byText((row) => row.client_id) },
          { key: "host", title: "Host", cell: (row) => row.host, compare: byText((row) => row.host) },
          { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={row.lag_gap} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
          { key: "partitions", title: "Partitions", cell: (row) => (row.partitions === null ? <Badge>unknown assignment</Badge> : row.partitions.join(", ") || "none") },
          { key: "id", title: "Member id", cell: (row) => <code>{row.instance_id ?? row.id}</code>, optional: true },
        ]}
      />
      <h2>Partitions</h2>
      <Table
        label="Partitions"
        rows={data.partitions}
        id={(row) => `${row.topic}-${row.partition}`}
        empty="The group has no offsets."
        columns={[
          { key: "topic", title: "Topic", cell: (row) => <Link to={path("topics", row.topic)}>{row.topic}</Link>, compare: byText((row) => row.topic) },
          { key: "partition", title: "Partition", cell: (row) => row.partition, compare: byNumber((row) => row.partition), number: true },
          { key: "committed", title: "Committed", cell: (row) => (row.committed === null ? "none" : count(row.committed)), number: true, optional: true },
          { key: "end", title: "End", cell: (row) => (row.end === null ? "unknown" : count(row.end)), number: true, optional: true },
          { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={lagGap(row)} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
          { key: "seconds", title: "Lag in time", cell: (row) => <Seconds row={row} />, compare: byNumber((row) => row.lag_seconds), number: true },
          { key: "status", title: "Status", cell: (row) => <GroupStatus status={row.status} complete={row.status_complete} />, compare: byText((row) => row.status) },
          { key: "member", title: "Member", cell: (row) => row.member ?? "", compare: byText((row) => row.member ?? ""), optional: true },
        ]}
      />
    </>
  );
}

function lagGap(row: GroupPartition): string {
  if (row.lag !== null) return "";
  return row.committed === null ? "no committed offset" : "the partition has no end offset";
}

function Seconds({ row }: { row: GroupPartition }): JSX.Element {
  const text = row.lag_seconds === null ? "unknown" : durationText(row.lag_seconds * 1000);
  return row.lag_seconds_note === null ? <>{text}</> : <span title={row.lag_seconds_note}>{text} *</span>;
}

function LagChart({ history }: { history: GroupInfo["history"] }): JSX.Element {
  const shown = useMemo(
    () => ({
      times: history.map(([time]) => time),
      series: [
        { label: "Lag in records", values: history.map(([, lag]) => (lag === null ? null : Number(lag))), format: (value: number) => count(Math.round(value)) },
        { label: "Lag in time", values: history.map(([, , delay]) => delay), format: durationText, axis: "right" as const },
      ],
    }),
    [history],
  );
  if (history.length < 2) return <p class="muted">The lag over time is shown after some seconds: the console has observed the group since it started.</p>;
  return (
    <div class="card">
      <Chart label="Lag over time" times={shown.times} series={shown.series} />
    </div>
  );
}
