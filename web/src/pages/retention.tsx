import type { JSX } from "preact";
import { useData, type Long } from "../api";
import { Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, path } from "../router";
import { durationText } from "../time";

interface ForecastRow {
  group: string;
  topic: string;
  partition: number;
  committed: Long;
  unread: Long;
  lost: Long;
  limit: string | null;
  left_ms: number | null;
  estimated: boolean;
  held: boolean;
}

interface Forecast {
  rows: ForecastRow[];
  /** Partitions that could not be looked at, the first of them by name. */
  unknown: string[];
  unknown_count: number;
  /** Groups whose offsets could not be read, the first of them by name. */
  refused_groups: string[];
  refused_count: number;
  problem: string;
}

/** Which group loses unread records next by retention, the most urgent first. */
export default function Retention(): JSX.Element {
  const forecast = useData<Forecast>("/retention", 30_000);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Retention</h1>
      </div>
      <p class="muted">
        Records that a consumer group has not read yet, and when retention may delete the first of them. The time is the earliest possible one: Kafka deletes whole segments.
      </p>
      <Shown of={forecast}>
        {(data) => (
          <>
          {data.problem !== "" && <p class="error">Groups may be missing or out of date: {data.problem}</p>}
          {data.unknown_count > 0 && <p class="error">Unknown for {count(data.unknown_count)} partitions, because no broker answers for them: {data.unknown.join(", ")}</p>}
          {data.refused_count > 0 && <p class="error">Unknown for {count(data.refused_count)} groups whose offsets cannot be read: {data.refused_groups.join(", ")}</p>}
          <Table
            label="Unread records"
            rows={data.rows}
            id={(row) => `${row.group} ${row.topic}-${row.partition}`}
            empty={data.problem === "" && data.unknown_count + data.refused_count === 0 ? "All groups have read everything." : "All groups and partitions that are known have been read."}
            columns={[
              { key: "group", title: "Group", cell: (row) => <Link to={path("groups", row.group)}>{row.group}</Link>, compare: byText((row) => row.group) },
              { key: "topic", title: "Partition", cell: (row) => <Link to={path("topics", row.topic)}>{`${row.topic}-${row.partition}`}</Link>, compare: byText((row) => row.topic) },
              { key: "unread", title: "Not read", cell: (row) => count(row.unread), compare: byNumber((row) => BigInt(row.unread)), number: true },
              { key: "lost", title: "Lost", cell: (row) => (row.lost === "0" ? "0" : <Badge kind="bad">{count(row.lost)}</Badge>), compare: byNumber((row) => BigInt(row.lost)), number: true },
              { key: "left", title: "Time left", cell: (row) => <TimeLeft row={row} />, compare: byNumber((row) => row.left_ms) },
              { key: "limit", title: "Deleted by", cell: (row) => (row.held ? "kept for the group" : (row.limit ?? "nothing")), optional: true },
            ]}
          />
          </>
        )}
      </Shown>
    </div>
  );
}

function TimeLeft({ row }: { row: ForecastRow }): JSX.Element {
  if (row.held) return <Badge kind="ok">held</Badge>;
  if (row.left_ms === null) return <span class="muted">{row.limit === null ? "not deleted" : "unknown"}</span>;
  const kind = row.left_ms < 3_600_000 ? "bad" : row.left_ms < 86_400_000 ? "warning" : "";
  return (
    <Badge kind={kind}>
      {row.left_ms <= 0 ? "now" : durationText(row.left_ms)}
      {row.estimated && " (estimated)"}
    </Badge>
  );
}
