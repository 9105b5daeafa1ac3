import type { JSX } from "preact";
import { useData, type Long } from "../api";
import { Filter } from "../components/field";
import { GroupStatus } from "../components/group_status";
import { Amount, Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, param, path, setParams } from "../router";
import { durationText, timeText } from "../time";
import { GroupPage } from "./group";

export interface GroupRow {
  name: string;
  state: string;
  type: string;
  members: number;
  topics: string[];
  lag: Long | null;
  lag_gap: string;
  lag_seconds: number | null;
  status: string;
  status_complete: boolean;
}

/** `/groups` and `/groups/NAME`. */
export default function Groups({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <GroupList /> : <GroupPage key={parts[0]} name={parts[0]} />;
}

function GroupList(): JSX.Element {
  const groups = useData<{ groups: GroupRow[]; problem: string; observed: Long }>("/groups", 5000);
  const text = param("q").toLowerCase();
  const rows = (groups.data?.groups ?? []).filter((row) => row.name.toLowerCase().includes(text));
  return (
    <div class="page">
      <div class="page-head">
        <h1>Consumer groups</h1>
      </div>
      <div class="toolbar">
        <Filter label="Filter by name" value={param("q")} onInput={(value) => setParams({ q: value })} />
        <span class="muted">{groups.data && `${count(rows.length)} of ${count(groups.data.groups.length)}`}</span>
      </div>
      <Shown of={groups}>
        {(data) => (
          <>
            {data.problem !== "" && <p class="error">Groups may be missing or out of date, last observed at {timeText(data.observed, false)}: {data.problem}</p>}
            <Table
              label="Consumer groups"
              rows={rows}
              id={(row) => row.name}
              sort="-lag"
              empty={data.problem !== "" ? "No group is known." : text === "" ? "The cluster has no consumer groups." : "No group has this name."}
              columns={[
                { key: "name", title: "Group", cell: (row) => <Link to={path("groups", row.name)}>{row.name}</Link>, compare: byText((row) => row.name) },
                { key: "status", title: "Status", cell: (row) => <GroupStatus status={row.status} complete={row.status_complete} />, compare: byText((row) => row.status) },
                { key: "state", title: "State", cell: (row) => row.state, compare: byText((row) => row.state), optional: true },
                { key: "members", title: "Members", cell: (row) => count(row.members), compare: byNumber((row) => row.members), number: true },
                { key: "lag", title: "Lag", cell: (row) => <Amount value={count(row.lag)} gap={row.lag_gap} />, compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
                { key: "seconds", title: "Lag in time", cell: (row) => (row.lag_seconds === null ? <Badge>unknown</Badge> : durationText(row.lag_seconds * 1000)), compare: byNumber((row) => row.lag_seconds), number: true },
                { key: "topics", title: "Topics", cell: (row) => topicNames(row.topics), optional: true },
              ]}
            />
          </>
        )}
      </Shown>
    </div>
  );
}

function topicNames(topics: string[]): JSX.Element {
  return (
    <>
      {topics.slice(0, 3).map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <Link to={path("topics", name)}>{name}</Link>
        </span>
      ))}
      {topics.length > 3 && ` and ${topics.length - 3} more`}
    </>
  );
}
