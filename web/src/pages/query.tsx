import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { useData, type Long } from "../api";
import { Chart } from "../components/chart";
import { QueryState } from "../components/query_state";
import { Shown, Unavailable } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { bytes, count, rate } from "../numbers";
import { Link, path } from "../router";
import { durationText, timeText } from "../time";
import { rateText, type QueryRow } from "./queries";

interface QueryTopic {
  topic: string;
  lag: Long | null;
  position: Long | null;
}

interface QuerySource {
  description: string;
  rows: Long;
  rows_per_s: number | null;
  lag: Long | null;
  topics: QueryTopic[];
}

/** Time, rows in and processed per second, lag, batch time, rows and bytes of the state. */
type Point = [number, number | null, number | null, Long | null, number | null, Long, Long];

export interface QueryInfo extends QueryRow {
  run: string;
  application_id: string;
  started: Long;
  rows: Long;
  rows_total: Long;
  restarts: number;
  restart_reason: string | null;
  sink: string | null;
  durations_ms: Record<string, number>;
  sources: QuerySource[];
  history: Point[];
}

const PHASES: Record<string, string> = {
  triggerExecution: "whole batch",
  latestOffset: "asking for the newest offsets",
  getOffset: "asking for the newest offsets",
  queryPlanning: "planning",
  getBatch: "preparing the source",
  addBatch: "reading, computing and writing",
  walCommit: "writing the offsets to the checkpoint",
  commitOffsets: "committing the batch to the checkpoint",
  commitBatch: "committing the batch",
};

export function QueryPage({ name }: { name: string }): JSX.Element {
  const query = useData<QueryInfo>(`/queries/${encodeURIComponent(name)}`, 2000);
  return (
    <div class="page">
      <div class="page-head">
        <h1>{query.data?.name ?? name}</h1>
      </div>
      <Shown of={query}>{(data) => <Details data={data} />}</Shown>
    </div>
  );
}

function Details({ data }: { data: QueryInfo }): JSX.Element {
  const phases = Object.entries(data.durations_ms);
  const topics = data.sources.flatMap((source) => source.topics);
  return (
    <>
      <div class="cards">
        <div class="card">
          <span class="figure">
            <QueryState of={data} />
          </span>
          <span>last report {timeText(data.time, false)}</span>
        </div>
        <Figure value={rateText(data.input_rows_per_s)} label={`rows in; ${rateText(data.processed_rows_per_s)} while it works`} />
        <Figure value={data.lag === null ? "unknown" : count(data.lag)} label="records not read" />
        <Figure value={data.batch_ms === null ? "none yet" : durationText(data.batch_ms)} label={data.batch === null ? "no batch finished" : `batch ${count(data.batch)}`} />
        <Figure value={count(data.state_rows)} label={`state rows, ${bytes(data.state_bytes)}`} />
        <Figure value={count(data.late_rows)} label="late rows dropped" />
      </div>
      <History points={data.history} />
      <h2>Topics that it reads</h2>
      {topics.length === 0 && data.sources.length > 0 ? (
        <Unavailable why={`the sources do not report offsets: ${data.sources.map((source) => source.description).join(", ")}`} />
      ) : (
        <Table
          label="Topics"
          sortParam="topics"
          rows={topics}
          id={(row) => row.topic}
          empty="The query has not finished a batch yet."
          columns={[
            { key: "topic", title: "Topic", cell: (row) => <Link to={path("topics", row.topic)}>{row.topic}</Link>, compare: byText((row) => row.topic) },
            { key: "lag", title: "Lag", cell: (row) => (row.lag === null ? "unknown" : count(row.lag)), compare: byNumber((row) => (row.lag === null ? null : BigInt(row.lag))), number: true },
            { key: "position", title: "Position", cell: (row) => (row.position === null ? "unknown" : <span title="Sum of the offsets of all partitions">{count(row.position)}</span>), number: true },
          ]}
        />
      )}
      <h2>Time of the last batch by phase</h2>
      <Table
        label="Phases"
        sortParam="phases"
        sort="-time"
        rows={phases}
        id={([phase]) => phase}
        empty="The query has not finished a batch yet."
        columns={[
          { key: "phase", title: "Phase", cell: ([phase]) => <><code>{phase}</code> <span class="muted">{PHASES[phase] ?? ""}</span></>, compare: byText(([phase]) => phase) },
          { key: "time", title: "Time", cell: ([, ms]) => durationText(ms), compare: byNumber(([, ms]) => ms), number: true },
        ]}
      />
      <h2>About the query</h2>
      <dl class="facts">
        <dt>Program</dt>
        <dd>
          {data.application} <code>{data.application_id}</code>
        </dd>
        <dt>Started</dt>
        <dd>{timeText(data.started)}</dd>
        <dt>Rows</dt>
        <dd>
          {count(data.rows)} in the last batch, {count(data.rows_total)} since its start
        </dd>
        <dt>Watermark</dt>
        <dd>{data.watermark === null ? "none" : watermarkText(data.watermark)}</dd>
        <dt>Sources</dt>
        <dd>{data.sources.map((source) => source.description).join(", ") || "not reported yet"}</dd>
        <dt>Sink</dt>
        <dd>{data.sink ?? "not reported yet"}</dd>
        <dt>Restarts</dt>
        <dd>{data.restarts === 0 ? "none" : `${count(data.restarts)}, last because of ${data.restart_reason ?? "an unknown reason"}`}</dd>
        <dt>Id</dt>
        <dd>
          <code>{data.id}</code>, run <code>{data.run}</code>
        </dd>
      </dl>
    </>
  );
}

function Figure({ value, label }: { value: string; label: string }): JSX.Element {
  return (
    <div class="card">
      <span class="figure">{value}</span>
      <span>{label}</span>
    </div>
  );
}

/** Spark writes 1970 before the first row with a time. */
function watermarkText(text: string): string {
  const moment = Date.parse(text);
  if (Number.isNaN(moment)) return text;
  return moment === 0 ? "no row with a time so far" : timeText(moment);
}

/** Axes have room for few digits; the exact figures are on the cards. */
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function History({ points }: { points: Point[] }): JSX.Element {
  const shown = useMemo(() => {
    const times = points.map(([time]) => time);
    const number = (value: Long | number | null) => (value === null ? null : Number(value));
    const records = (value: number) => COMPACT.format(Math.round(value));
    return {
      times,
      rows: [
        { label: "Rows in", values: points.map((each) => each[1]), format: (value: number) => rate(value) },
        { label: "Lag in records", values: points.map((each) => number(each[3])), format: records, axis: "right" as const },
      ],
      work: [
        { label: "Batch time", values: points.map((each) => each[4]), format: durationText },
        { label: "State rows", values: points.map((each) => number(each[5])), format: records, axis: "right" as const },
      ],
    };
  }, [points]);
  if (points.length < 2) return <p class="muted">The figures over time are shown after the second report of the query.</p>;
  return (
    <div class="charts">
      <div class="card">
        <Chart label="Rows and lag over time" times={shown.times} series={shown.rows} />
      </div>
      <div class="card">
        <Chart label="Batch time and state over time" times={shown.times} series={shown.work} />
      </div>
    </div>
  );
}
