// Records as the console's server sends them.

import { signal } from "@preact/signals";
import type { Long } from "./api";

/** A key, a value or a header's value. The text is never parsed as JSON in the browser. */
export interface Shown {
  format: "schema" | "json" | "text" | "hex";
  text: string;
  /** Whether the text is only the beginning. */
  cut: boolean;
  bytes: number;
  schema_id?: number;
  /** Why a schema could not decode it. */
  problem?: string;
}

export interface RecordRow {
  partition: number;
  offset: Long;
  timestamp: Long;
  append_time: boolean;
  key: Shown | null;
  value: Shown | null;
  headers: { name: string; value: Shown | null }[];
  header_count: number;
  /** Which of key, value and headers have masked fields. */
  masked: ("key" | "value" | "headers")[];
}

export function recordId(row: RecordRow): string {
  return `${row.partition}:${row.offset}`;
}

/** How many records this tab has produced; lists load again when it changes. */
export const produced = signal(0);
