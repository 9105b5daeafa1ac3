import type { JSX } from "preact";
import { Badge } from "./states";

const MEANING: Record<string, string> = {
  ok: "The group keeps up, or its lag falls.",
  unknown: "The lag of the group is not known.",
  warning: "The group reads, and its lag does not fall.",
  stalled: "The group commits, and its offsets do not move.",
  stopped: "The group has not committed for longer than the observed time.",
  rewind: "The offsets of the group went back.",
};

/** What a group does, by the rules of Burrow. */
export function GroupStatus({ status, complete }: { status: string; complete: boolean }): JSX.Element {
  const kind = status === "ok" ? "ok" : status === "unknown" ? "" : status === "warning" || status === "rewind" ? "warning" : "bad";
  return (
    <span title={`${MEANING[status] ?? ""}${complete ? "" : " Observed for a short time so far."}`}>
      <Badge kind={kind}>
        {status}
        {!complete && status !== "unknown" && " so far"}
      </Badge>
    </span>
  );
}
