import type { JSX } from "preact";
import { TopicList } from "./topic_list";
import { TopicPage } from "./topic";

export interface TopicRow {
  name: string;
  internal: boolean;
  partitions: number;
  replication_factor: number;
  under_replicated: number;
  offline: number;
}

/** `/topics`, `/topics/NAME` and `/topics/NAME/PART`. */
export default function Topics({ parts }: { parts: string[] }): JSX.Element {
  const [name, part = "partitions"] = parts;
  return name === undefined ? <TopicList /> : <TopicPage key={name} name={name} part={part} />;
}
