import type { JSX } from "preact";
import { useData } from "../api";
import { SqlQueryActions, SqlQueryState, SqlQueryTable } from "../components/sql_query_table";
import { QueryFacts, SourceFacts } from "../components/sql_description";
import { SourceList } from "../components/sql_result";
import { ErrorText, Shown, Unavailable } from "../components/states";
import { Tabs } from "../components/tabs";
import { bytes, count, rate } from "../numbers";
import { Link, navigate, path } from "../router";
import { has, mayChange, restriction } from "../session";
import type { QueryDescription, SourceDescription, SqlQuery, SqlSource } from "../sql";
import { quotedName } from "../sql_text";
import "../styles/sql.css";
import { timeText } from "../time";
import { SqlWorkbench } from "./sql_workbench";

export interface SqlServerInfo {
  version: string;
  service: string;
  status: string;
  functions: string[];
}

export interface SourceRows {
  sources: SqlSource[];
  warnings: string[];
}

const TITLES = { "": "Editor", queries: "Queries", sources: "Streams and tables" };

/** `/sql`, `/sql/queries`, `/sql/queries/ID`, `/sql/sources` and `/sql/sources/NAME`. */
export default function Sql({ parts }: { parts: string[] }): JSX.Element {
  const [part = "", name] = parts;
  const info = useData<SqlServerInfo>("/sql");
  if (name !== undefined && part === "queries") return <OneQuery key={name} id={name} />;
  if (name !== undefined && part === "sources") return <OneSource key={name} name={name} />;
  return (
    <div class="page">
      <div class="page-head">
        <h1>SQL</h1>
        {info.data !== undefined && <span class="muted">service {info.data.service}, version {info.data.version}</span>}
      </div>
      {info.error !== undefined ? (
        <ErrorText error={info.error} />
      ) : (
        <>
          <Tabs label="Parts of the SQL page" tabs={Object.entries(TITLES).map(([key, title]) => ({ to: key === "" ? "/sql" : path("sql", key), title, current: key === part }))} />
          {part === "" && (has("read") ? <SqlWorkbench functions={info.data?.functions ?? []} /> : <Unavailable why={restriction()} />)}
          {part === "queries" && <Queries />}
          {part === "sources" && <Sources />}
        </>
      )}
    </div>
  );
}

function Queries(): JSX.Element {
  const list = useData<{ queries: SqlQuery[]; warnings: string[] }>("/sql/queries", 2000);
  return (
    <Shown of={list}>
      {(data) => (
        <>
          <Warnings of={data.warnings} />
          <SqlQueryTable label="Queries" queries={data.queries} empty="No query runs. CREATE STREAM ... AS SELECT and CREATE TABLE ... AS SELECT start one." onChange={list.reload} />
        </>
      )}
    </Shown>
  );
}

function Sources(): JSX.Element {
  const list = useData<SourceRows>("/sql/sources", 5000);
  return (
    <Shown of={list}>
      {(data) => (
        <>
          <Warnings of={data.warnings} />
          <h2>Streams</h2>
          <SourceList label="Streams" sources={data.sources.filter((each) => each.type === "STREAM")} />
          <h2>Tables</h2>
          <SourceList label="Tables" sources={data.sources.filter((each) => each.type === "TABLE")} />
        </>
      )}
    </Shown>
  );
}

function Warnings({ of }: { of: string[] }): JSX.Element {
  return (
    <>
      {of.map((each) => (
        <p class="error" key={each}>
          {each}
        </p>
      ))}
    </>
  );
}

function OneSource({ name }: { name: string }): JSX.Element {
  const found = useData<{ sourceDescription: SourceDescription }>(`/sql/sources/${encodeURIComponent(name)}`, 5000);
  const described = found.data?.sourceDescription;
  const text = (select: string) => `/sql?sql=${encodeURIComponent(select)}`;
  return (
    <div class="page">
      <div class="page-head">
        <h1>{name}</h1>
        <Link to="/sql/sources">All streams and tables</Link>
        {described !== undefined && has("read") && (
          <button type="button" class="primary" onClick={() => navigate(text(described.type === "TABLE" ? `SELECT * FROM ${quotedName(described.name)};` : `SELECT * FROM ${quotedName(described.name)} EMIT CHANGES;`))}>
            Query in the editor
          </button>
        )}
      </div>
      <Shown of={found}>{(data) => <SourceFacts of={data.sourceDescription} heading="h2" />}</Shown>
    </div>
  );
}

function OneQuery({ id }: { id: string }): JSX.Element {
  const list = useData<{ queries: SqlQuery[] }>("/sql/queries", 2000);
  // The plan is asked of Spark, which is not done every second.
  const plan = useData<{ queryDescription: QueryDescription }>(`/sql/queries/${encodeURIComponent(id)}`);
  const query = list.data?.queries.find((each) => each.id === id);
  return (
    <div class="page">
      <div class="page-head">
        <h1>{id}</h1>
        <Link to="/sql/queries">All queries</Link>
        {query !== undefined && mayChange() && <SqlQueryActions query={query} onDone={(terminated) => (terminated ? navigate("/sql/queries") : list.reload())} />}
      </div>
      {query?.headrace !== undefined && (
        <div class="cards">
          <div class="card">
            <span class="figure">
              <SqlQueryState of={query} />
            </span>
            <span>
              {query.headrace.epochAt === null ? "no epoch finished" : `epoch ${count(query.headrace.epoch)}, ${timeText(query.headrace.epochAt, false)}`}
              {query.headrace.restarts > 0 && `; ${count(query.headrace.restarts)} ${query.headrace.restarts === 1 ? "restart" : "restarts"}`}
            </span>
          </div>
          <Figure value={rate(query.headrace.rate)} label={`${count(query.headrace.rows)} rows since the start`} />
          <Figure value={query.headrace.lag === null ? "unknown" : count(query.headrace.lag)} label="records not read" />
          <Figure value={count(query.headrace.stateRows)} label={`state rows, ${bytes(query.headrace.stateBytes)}`} />
          <Figure value={count(query.headrace.lateRows)} label="late rows, not counted" />
          <Figure value={count(query.headrace.badRecords)} label="bad records, in the processing log" />
        </div>
      )}
      <Shown of={plan}>{(data) => <QueryFacts of={{ ...data.queryDescription, state: "" }} heading="h2" />}</Shown>
    </div>
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
