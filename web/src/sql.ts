// What the SQL server answers, as far as pages show it. Numbers that JavaScript would round are texts.

import type { Long } from "./api";

export interface SqlField {
  name: string;
  schema: SqlType;
  /** KEY, HEADER or nothing. */
  type?: string;
  headerKey?: string;
}

export interface SqlType {
  type: string;
  fields?: SqlField[] | null;
  memberSchema?: SqlType | null;
  parameters?: { precision: number; scale: number };
}

export interface SqlSource {
  type: "STREAM" | "TABLE";
  name: string;
  topic: string;
  keyFormat: string;
  valueFormat: string;
  isWindowed: boolean;
  /** Null if there are too many streams and tables to ask for their columns. */
  fields?: SqlField[] | null;
}

/** Figures that only Headrace's server has. */
export interface SqlFigures {
  group: string;
  error: string | null;
  rows: Long | number;
  rate: number;
  lag: Long | number | null;
  watermark: number | null;
  lateRows: Long | number;
  badRecords: Long | number;
  stateRows: Long | number;
  stateBytes: Long | number;
  epoch: Long | number | null;
  epochAt: number | null;
  lastRowAt: number | null;
  restarts: number;
  nextTryAt: number | null;
}

export interface SqlQuery {
  id: string;
  queryString: string;
  sinks: string[];
  sinkKafkaTopics: string[];
  state: string;
  headrace?: SqlFigures;
}

export interface SourceDescription {
  name: string;
  type: string;
  topic: string;
  keyFormat: string;
  valueFormat: string;
  windowType: string | null;
  timestamp: string;
  fields: SqlField[];
  readQueries: SqlQuery[];
  writeQueries: SqlQuery[];
  extended: boolean;
  partitions: number;
  replication: number;
  statement: string;
  queryOffsetSummaries: OffsetSummary[];
  headrace?: { view: { lag: Long | number | null; badRecords: Long | number; error: string | null } | null };
}

export interface OffsetSummary {
  groupId: string;
  topicSummaries: { kafkaTopic: string; offsets: { partition: number; logStartOffset: Long | number; logEndOffset: Long | number; consumerOffset: Long | number }[] }[];
}

export interface QueryDescription {
  id: string;
  statementText: string;
  queryType: string;
  windowType: string | null;
  fields: SqlField[];
  sources: string[];
  sinks: string[];
  topology: string;
  executionPlan: string;
  consumerGroupId: string;
  state: string;
  queryErrors: { errorMessage: string }[];
}

/** One result of a statement; `@type` says which. */
export type Entity = { "@type": string; statementText: string; warnings?: { message: string }[] } & Record<string, unknown>;

/** The type of a column, as in a statement. */
export function typeText(type: SqlType): string {
  switch (type.type) {
    case "ARRAY":
      return `ARRAY<${type.memberSchema ? typeText(type.memberSchema) : "?"}>`;
    case "MAP":
      return `MAP<STRING, ${type.memberSchema ? typeText(type.memberSchema) : "?"}>`;
    case "STRUCT":
      return `STRUCT<${(type.fields ?? []).map((each) => `${each.name} ${typeText(each.schema)}`).join(", ")}>`;
    case "DECIMAL":
      return type.parameters === undefined ? "DECIMAL" : `DECIMAL(${type.parameters.precision}, ${type.parameters.scale})`;
    default:
      return type.type;
  }
}
