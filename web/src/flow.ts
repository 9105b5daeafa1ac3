// Lineage as the console's server sends it.

import type { Long } from "./api";

export interface FlowNode {
  key: string;
  kind: "topic" | "query" | "table" | "group" | "connector";
  id: string;
  title: string;
  detail: string;
  trouble: string;
  /** Records that are written to a topic; null while it is not known, and for other nodes. */
  records_per_s: number | null;
}

export interface FlowEdge {
  from: string;
  to: string;
  known_from: string;
  lag: Long | null;
  /** Why the lag is unknown or too small; empty if it is exact. */
  lag_gap: string;
  records_per_s: number | null;
}

export interface Flow {
  nodes: FlowNode[];
  edges: FlowEdge[];
  /** Nodes that are not in the answer, by kind. */
  left_out: Record<string, number>;
  /** What could not be read, and why. */
  missing: Record<string, string>;
}
