import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ApiError, post } from "../api";
import { count, rate } from "../numbers";
import { Link, path } from "../router";
import { mayChange } from "../session";
import type { SqlQuery } from "../sql";
import { Dialog, quoted } from "./dialog";
import { notify } from "./notices";
import { Badge } from "./states";
import { Table, byNumber, byText } from "./table";

const MEANING: Record<string, string> = {
  RUNNING: "The query runs.",
  STARTING: "The query is being started.",
  PAUSED: "The query was paused, and continues where it was.",
  RESTARTING: "The query has failed, and is started again after a pause.",
  FAILED: "The query has failed, and is not started again.",
  UNKNOWN: "The server does not know: Spark may be starting.",
};

export function SqlQueryState({ of }: { of: { state: string; headrace?: { error: string | null } } }): JSX.Element {
  const kind = of.state === "RUNNING" ? "ok" : of.state === "FAILED" || of.state === "ERROR" ? "bad" : of.state === "PAUSED" ? "" : "warning";
  const error = of.headrace?.error ?? "";
  return (
    <>
      <span title={MEANING[of.state] ?? ""}>
        <Badge kind={kind}>{of.state.toLowerCase()}</Badge>
      </span>
      {error !== "" && (
        <small class="reason" title={error}>
          <bdi>{error}</bdi>
        </small>
      )}
    </>
  );
}

interface SqlQueryTableProps {
  label: string;
  queries: SqlQuery[];
  empty: string;
  /** Called after a query was changed; without it nothing can be. */
  onChange?: () => void;
}

/** Queries with their states and figures. */
export function SqlQueryTable({ label, queries, empty, onChange }: SqlQueryTableProps): JSX.Element {
  return (
    <Table
      label={label}
      sortParam="queries"
      rows={queries}
      id={(row) => row.id}
      empty={empty}
      columns={[
        { key: "id", title: "Query", cell: (row) => <Link to={path("sql", "queries", row.id)}>{row.id}</Link>, compare: byText((row) => row.id) },
        { key: "state", title: "State", cell: (row) => <SqlQueryState of={row} />, compare: byText((row) => row.state) },
        { key: "sink", title: "Writes to", cell: (row) => row.sinkKafkaTopics.map((topic, index) => <Link key={topic} to={path("topics", topic)}>{row.sinks[index] ?? topic}</Link>), optional: true },
        { key: "rate", title: "Rows", cell: (row) => (row.headrace === undefined ? "unknown" : rate(row.headrace.rate)), compare: byNumber((row) => row.headrace?.rate), number: true, optional: true },
        { key: "lag", title: "Lag", cell: (row) => <Lag of={row} />, compare: byNumber((row) => Number(row.headrace?.lag ?? -1)), number: true },
        { key: "late", title: "Late", cell: (row) => count(row.headrace?.lateRows), number: true, optional: true },
        { key: "bad", title: "Bad", cell: (row) => count(row.headrace?.badRecords), number: true, optional: true },
        ...(onChange !== undefined && mayChange() ? [{ key: "actions", title: "Change", cell: (row: SqlQuery) => <SqlQueryActions query={row} onDone={onChange} /> }] : []),
      ]}
    />
  );
}

function Lag({ of }: { of: SqlQuery }): JSX.Element {
  const figures = of.headrace;
  if (figures === undefined || figures.lag === null) return <>unknown</>;
  return <Link to={path("groups", figures.group)}>{count(figures.lag)}</Link>;
}

/** Buttons that pause, resume and terminate a query. */
export function SqlQueryActions({ query, onDone }: { query: { id: string; state: string }; onDone: (terminated: boolean) => void }): JSX.Element {
  const [asking, setAsking] = useState(false);
  const place = `/sql/queries/${encodeURIComponent(query.id)}`;
  const act = (action: string, done: string) =>
    post(`${place}/${action}`, {})
      .then(() => notify(`${query.id} ${done}.`))
      .catch((error: unknown) => notify(error instanceof ApiError ? error.message : String(error)))
      .finally(() => onDone(false));
  return (
    <span class="row-actions">
      {query.state === "PAUSED" ? (
        <button type="button" aria-label={`Resume ${query.id}`} onClick={() => void act("resume", "runs again")}>
          Resume
        </button>
      ) : (
        <button type="button" aria-label={`Pause ${query.id}`} onClick={() => void act("pause", "is paused")}>
          Pause
        </button>
      )}
      <button type="button" class="danger" aria-label={`Terminate ${query.id}`} onClick={() => setAsking(true)}>
        Terminate
      </button>
      {asking && (
        <Dialog
          title={`Terminate ${query.id}`}
          action="Terminate"
          dangerous
          command={`headrace sql -e ${quoted(`TERMINATE \`${query.id}\`;`)}`}
          onClose={() => setAsking(false)}
          onSubmit={async () => {
            await post(`${place}/terminate`, {});
            notify(`${query.id} is terminated.`);
            onDone(true);
          }}
        >
          <p>The query ends, and its checkpoint is deleted: it cannot continue where it was. Its stream or table, and the records of its topic, stay.</p>
        </Dialog>
      )}
    </span>
  );
}
