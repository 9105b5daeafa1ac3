import type { JSX } from "preact";
import { count } from "../numbers";
import { Link, path } from "../router";
import { typeText, type OffsetSummary, type QueryDescription, type SourceDescription, type SqlField } from "../sql";
import { SqlQueryState, SqlQueryTable } from "./sql_query_table";
import { Table } from "./table";

/** A page of its own has one level less than a result. */
type Heading = "h2" | "h3";

/** The columns of a stream, a table or a result. */
export function SqlFields({ fields, label = "Columns" }: { fields: SqlField[]; label?: string }): JSX.Element {
  return (
    <Table
      label={label}
      sortParam="columns"
      rows={fields}
      id={(row) => row.name}
      empty="No columns."
      columns={[
        { key: "name", title: "Column", cell: (row) => <bdi class="mono">{row.name}</bdi> },
        { key: "type", title: "Type", cell: (row) => <code>{typeText(row.schema)}</code> },
        { key: "role", title: "Role", cell: (row) => (row.type ?? "").toLowerCase() + (row.headerKey ? ` ${row.headerKey}` : "") },
      ]}
    />
  );
}

/** What DESCRIBE says of a stream or table. */
export function SourceFacts({ of, heading: Heading = "h3" }: { of: SourceDescription; heading?: Heading }): JSX.Element {
  const view = of.headrace?.view ?? null;
  return (
    <>
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{of.type.toLowerCase() + (of.windowType ? `, ${of.windowType.toLowerCase()} windows` : "")}</dd>
        <dt>Topic</dt>
        <dd>
          <Link to={path("topics", of.topic)}>{of.topic}</Link>
          {of.extended && of.partitions > 0 && `, ${count(of.partitions)} ${of.partitions === 1 ? "partition" : "partitions"}, replication factor ${of.replication}`}
        </dd>
        <dt>Formats</dt>
        <dd>
          key {of.keyFormat}, value {of.valueFormat}
        </dd>
        {of.timestamp !== "" && (
          <>
            <dt>Timestamp</dt>
            <dd>{of.timestamp}</dd>
          </>
        )}
        {view !== null && (
          <>
            <dt>View</dt>
            <dd>{view.error ? view.error : view.lag === null ? "the lag is unknown" : `${count(view.lag)} records behind the topic`}</dd>
          </>
        )}
      </dl>
      <SqlFields fields={of.fields} />
      {of.writeQueries.length > 0 && (
        <>
          <Heading>Written by</Heading>
          <SqlQueryTable label="Queries that write" queries={of.writeQueries} empty="" />
        </>
      )}
      {of.readQueries.length > 0 && (
        <>
          <Heading>Read by</Heading>
          <SqlQueryTable label="Queries that read" queries={of.readQueries} empty="" />
        </>
      )}
      {of.queryOffsetSummaries.map((each) => (
        <Offsets key={each.groupId} of={each} heading={Heading} />
      ))}
      {of.statement !== "" && <Code label="Statement" text={of.statement} heading={Heading} />}
    </>
  );
}

function Offsets({ of, heading: Heading }: { of: OffsetSummary; heading: Heading }): JSX.Element {
  const rows = of.topicSummaries.flatMap((topic) => topic.offsets.map((each) => ({ topic: topic.kafkaTopic, ...each })));
  return (
    <>
      <Heading>
        Offsets of <Link to={path("groups", of.groupId)}>{of.groupId}</Link>
      </Heading>
      <Table
        label={`Offsets of ${of.groupId}`}
        sortParam="offsets"
        rows={rows}
        id={(row) => `${row.topic} ${row.partition}`}
        empty="The query has committed no offsets."
        columns={[
          { key: "topic", title: "Topic", cell: (row) => <Link to={path("topics", row.topic)}>{row.topic}</Link> },
          { key: "partition", title: "Partition", cell: (row) => row.partition, number: true },
          { key: "offset", title: "Offset", cell: (row) => (BigInt(row.consumerOffset) < 0n ? "none" : count(row.consumerOffset)), number: true },
          { key: "end", title: "End", cell: (row) => count(row.logEndOffset), number: true },
          { key: "lag", title: "Lag", cell: (row) => count(lagOf(row)), number: true },
        ]}
      />
    </>
  );
}

function lagOf(row: OffsetSummary["topicSummaries"][number]["offsets"][number]): string {
  const at = BigInt(row.consumerOffset);
  return String(BigInt(row.logEndOffset) - (at < 0n ? BigInt(row.logStartOffset) : at));
}

/** What EXPLAIN says of a query or a SELECT. */
export function QueryFacts({ of, heading = "h3" }: { of: QueryDescription; heading?: Heading }): JSX.Element {
  return (
    <>
      <dl class="facts">
        <dt>Kind</dt>
        <dd>{KINDS[of.queryType] ?? of.queryType}</dd>
        {of.state !== "" && (
          <>
            <dt>State</dt>
            <dd>
              <SqlQueryState of={of} />
            </dd>
          </>
        )}
        {of.sources.length > 0 && (
          <>
            <dt>Reads</dt>
            <dd>
              <SourceLinks names={of.sources} />
            </dd>
          </>
        )}
        {of.sinks.length > 0 && (
          <>
            <dt>Writes to</dt>
            <dd>
              <SourceLinks names={of.sinks} />
            </dd>
          </>
        )}
        {of.consumerGroupId !== "" && (
          <>
            <dt>Group</dt>
            <dd>
              <Link to={path("groups", of.consumerGroupId)}>{of.consumerGroupId}</Link>
            </dd>
          </>
        )}
      </dl>
      {of.queryErrors.map((each) => (
        <p class="error" key={each.errorMessage}>
          {each.errorMessage}
        </p>
      ))}
      {of.id !== "" && <Code label="Statement" text={of.statementText} heading={heading} />}
      {of.fields.length > 0 && <SqlFields fields={of.fields} />}
      <Code label={of.queryType === "PULL" ? "How it is answered" : "Plan"} text={of.topology} heading={heading} />
    </>
  );
}

const KINDS: Record<string, string> = { PERSISTENT: "query into a topic", PUSH: "push query", PULL: "pull query" };

function SourceLinks({ names }: { names: string[] }): JSX.Element {
  return (
    <>
      {names.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <Link to={path("sql", "sources", name)}>{name}</Link>
        </span>
      ))}
    </>
  );
}

export function Code({ label, text, heading: Heading = "h3" }: { label: string; text: string; heading?: Heading }): JSX.Element {
  return (
    <>
      <Heading>{label}</Heading>
      <pre class="shown-text" tabIndex={0} aria-label={label} role="region">
        {text}
      </pre>
    </>
  );
}
