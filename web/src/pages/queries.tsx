import type { JSX } from "preact";
import { useData, type Long } from "../api";
import { Filter } from "../components/field";
import { QueryState } from "../components/query_state";
import { Shown, Unavailable } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { bytes, count, rate } from "../numbers";
import { Link, param, path, setParams } from "../router";
import { durationText } from "../time";
import { QueryPage } from "./query";

export interface QueryRow {
  id: string;
  name: string;
  application: string;
  state: string;
  silent: boolean;
  /** Why it failed, or why it is counted as silent. */
  trouble: string;
  time: Long;
  batch: Long | null;
  batch_ms: number | null;
  input_rows_per_s: number | null;
  processed_rows_per_s: number | null;
  lag: Long | null;
  state_rows: Long;
  state_bytes: Long;
  late_rows: Long;
  watermark: string | null;
  topics: string[];
}

interface QueryList {
  topic: string;
  exists: boolean;
  problem: string;
  position: Long;
  end: Long;
  queries: QueryRow[];
}

/** `/queries` and `/queries/NAME`. */
export default function Queries({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <QueryTable /> : <QueryPage key={parts[0]} name={parts[0]} />;
}

function QueryTable(): JSX.Element {
  const list = useData<QueryList>("/queries", 2000);
  const text = param("q").toLowerCase();
  const all = list.data?.queries ?? [];
  const rows = all.filter((row) => `${row.name} ${row.application}`.toLowerCase().includes(text));
  const names = new Map<string, number>();
  for (const row of all) names.set(row.name, (names.get(row.name) ?? 0) + 1);
  /** Two programs may use one name; the id is unique. */
  const address = (row: QueryRow) => path("queries", names.get(row.name) === 1 ? row.name : row.id);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Spark queries</h1>
      </div>
      <div class="toolbar">
        <Filter label="Filter by name or program" value={param("q")} onInput={(value) => setParams({ q: value })} />
        <span class="muted">{list.data && `${count(rows.length)} of ${count(all.length)}`}</span>
      </div>
      <Shown of={list}>
        {(data) =>
          !data.exists ? (
            <Unavailable why={`the cluster has no topic ${data.topic}. Programs that are started with "headrace spark run" write their progress to it.`} />
          ) : (
            <>
              {data.problem !== "" && <p class="error">{data.problem}</p>}
              {data.position !== data.end && (
                <p role="status">
                  Reading the history: offset {count(data.position)} of {count(data.end)}.
                </p>
              )}
              <Table
                label="Spark queries"
                rows={rows}
                id={(row) => row.id}
                sort="state"
                empty={text === "" ? "No query has reported its progress." : "No query has this name."}
                columns={[
                  { key: "name", title: "Query", cell: (row) => <Link to={address(row)}>{row.name}</Link>, compare: byText((row) => row.name) },
                  { key: "state", title: "State", cell: (row) => <QueryState of={row} />, compare: byText((row) => urgency(row) + row.name) },
                  { key: "application", title: "Program", cell: (row) => row.application, compare: byText((row) => row.application), optional: true },
                  { key: "in", title: "Rows in", cell: (row) => rateText(row.input_rows_per_s), compare: byNumber((row) => row.input_rows_per_s), number: true },
                  { key: "lag", title: "Lag", cell: (row) => (row.lag === null ? "unknown" : count(row.lag)), compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
                  { key: "batch_ms", title: "Batch time", cell: (row) => (row.batch_ms === null ? "" : durationText(row.batch_ms)), compare: byNumber((row) => row.batch_ms), number: true },
                  { key: "rows", title: "State rows", cell: (row) => count(row.state_rows), compare: byNumber((row) => BigInt(row.state_rows)), number: true, optional: true },
                  { key: "bytes", title: "State size", cell: (row) => bytes(row.state_bytes), compare: byNumber((row) => BigInt(row.state_bytes)), number: true, optional: true },
                  { key: "topics", title: "Reads", cell: (row) => row.topics.map((name, index) => <span key={name}>{index > 0 && ", "}<Link to={path("topics", name)}>{name}</Link></span>), optional: true },
                ]}
              />
            </>
          )
        }
      </Shown>
    </div>
  );
}

/** Failed and silent queries first, then those that run. */
function urgency(row: QueryRow): string {
  if (row.state === "failed") return "0";
  if (row.silent) return "1";
  return row.state === "stopped" ? "3" : "2";
}

export function rateText(value: number | null): string {
  return value === null ? "unknown" : rate(value);
}
