import type { JSX } from "preact";
import type { Long } from "../api";
import { TopicList } from "./topic_list";
import { RecordPage } from "./record";
import { TopicPage } from "./topic";

export interface TopicRow {
  name: string;
  internal: boolean;
  partitions: number;
  replication_factor: number;
  under_replicated: number;
  offline: number;
  groups: number | null;
  groups_gap: string;
  lag: Long | null;
  lag_gap: string;
}

/** `/topics`, `/topics/NAME`, `/topics/NAME/PART` and `/topics/NAME/PARTITION/OFFSET`. */
export default function Topics({ parts }: { parts: string[] }): JSX.Element {
  const [name, part = "records", offset] = parts;
  if (name === undefined) return <TopicList />;
  if (offset !== undefined) return <RecordPage topic={name} partition={part} offset={offset} />;
  return <TopicPage key={name} name={name} part={part} />;
}
