import type { JSX } from "preact";
import { Link, path } from "../router";
import type { Entity, QueryDescription, SourceDescription, SqlQuery, SqlSource } from "../sql";
import { Code, QueryFacts, SourceFacts } from "./sql_description";
import { SqlQueryTable } from "./sql_query_table";
import { Badge } from "./states";
import { Table, type Column } from "./table";

/** The result of a statement that returns no rows. */
export function SqlResult({ of }: { of: Entity }): JSX.Element {
  return (
    <>
      <Body of={of} />
      {(of.warnings ?? []).map((each) => (
        <p key={each.message}>
          <Badge kind="warning">warning</Badge> {each.message}
        </p>
      ))}
    </>
  );
}

function Body({ of }: { of: Entity }): JSX.Element {
  switch (of["@type"]) {
    case "currentStatus":
      return <Status of={of["commandStatus"] as { message: string; queryId: string | null }} />;
    case "warning_entity":
      return <p>{String(of["message"])}</p>;
    case "streams":
      return <SourceList label="Streams" sources={of["streams"] as SqlSource[]} />;
    case "tables":
      return <SourceList label="Tables" sources={of["tables"] as SqlSource[]} />;
    case "queries":
      return <SqlQueryTable label="Queries" queries={of["queries"] as SqlQuery[]} empty="No query runs." />;
    case "sourceDescription":
      return <SourceFacts of={of["sourceDescription"] as SourceDescription} />;
    case "source_descriptions":
      return <Several of={of["sourceDescriptions"] as SourceDescription[]} title={(each) => each.name} show={(each) => <SourceFacts of={each} />} />;
    case "queryDescription":
      return <QueryFacts of={of["queryDescription"] as QueryDescription} />;
    case "query_descriptions":
      return <Several of={of["queryDescriptions"] as QueryDescription[]} title={(each) => each.id} show={(each) => <QueryFacts of={each} />} />;
    case "kafka_topics":
    case "kafka_topics_extended":
      return <Rows label="Topics" rows={(of["topics"] as { name: string; replicaInfo: number[] }[]).map((each) => ({ name: each.name, partitions: each.replicaInfo.length }))} links="topics" />;
    case "function_names":
      return <Rows label="Functions" rows={of["functions"] as Values[]} />;
    case "properties":
      return <Rows label="Properties" rows={(of["properties"] as Values[]).map((each) => ({ name: each["name"], value: each["value"], changed_by: each["editable"] === true ? "SET" : "the operator" }))} />;
    case "variables":
      return <Rows label="Variables" rows={of["variables"] as Values[]} />;
    case "connector_list":
      return <Rows label="Connectors" rows={of["connectors"] as Values[]} links="connectors" />;
    default:
      return <Code label="Result" text={JSON.stringify(Object.fromEntries(Object.entries(of).filter(([name]) => !["@type", "statementText", "warnings"].includes(name))), null, 2)} />;
  }
}

function Status({ of }: { of: { message: string; queryId: string | null } }): JSX.Element {
  return (
    <p>
      <Badge kind="ok">done</Badge> {of.message} {of.queryId !== null && <Link to={path("sql", "queries", of.queryId)}>Show the query</Link>}
    </p>
  );
}

function Several<T>({ of, title, show }: { of: T[]; title: (each: T) => string; show: (each: T) => JSX.Element }): JSX.Element {
  if (of.length === 0) return <p class="empty">There are none.</p>;
  return (
    <>
      {of.map((each) => (
        <details key={title(each)} open={of.length === 1}>
          <summary>{title(each)}</summary>
          {show(each)}
        </details>
      ))}
    </>
  );
}

/** Streams or tables with their topics. */
export function SourceList({ label, sources }: { label: string; sources: SqlSource[] }): JSX.Element {
  const columns: Column<SqlSource> = { key: "columns", title: "Columns", cell: (row) => (row.fields ?? []).map((each) => each.name).join(", "), optional: true };
  return (
    <Table
      label={label}
      sortParam={label.toLowerCase()}
      rows={sources}
      id={(row) => row.name}
      empty={`There are no ${label.toLowerCase()}.`}
      columns={[
        { key: "name", title: "Name", cell: (row) => <Link to={path("sql", "sources", row.name)}>{row.name}</Link> },
        { key: "topic", title: "Topic", cell: (row) => <Link to={path("topics", row.topic)}>{row.topic}</Link> },
        ...(sources.some((each) => each.fields) ? [columns] : []),
        { key: "key", title: "Key", cell: (row) => row.keyFormat, optional: true },
        { key: "value", title: "Value", cell: (row) => row.valueFormat, optional: true },
      ]}
    />
  );
}

type Values = Record<string, unknown>;

/** Objects with the same fields. */
function Rows({ label, rows, links }: { label: string; rows: Values[]; links?: string }): JSX.Element {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].slice(0, 6);
  return (
    <Table
      label={label}
      sortParam="results"
      rows={rows}
      id={(row) => JSON.stringify(row)}
      empty="There are none."
      columns={names.map((name): Column<Values> => ({
        key: name,
        title: name.replaceAll("_", " "),
        cell: (row) => {
          const value = row[name];
          const text = typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
          return links !== undefined && name === "name" ? <Link to={path(links, text)}>{text}</Link> : text;
        },
      }))}
    />
  );
}
