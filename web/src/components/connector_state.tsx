import type { JSX } from "preact";
import { Badge } from "./states";

const KINDS: Record<string, "" | "ok" | "warning" | "bad"> = {
  RUNNING: "ok",
  PAUSED: "",
  STOPPED: "",
  RESTARTING: "warning",
  UNASSIGNED: "warning",
  FAILED: "bad",
};

/** The state of a connector or task, in Connect's words. */
export function ConnectorState({ state }: { state: string }): JSX.Element {
  return <Badge kind={KINDS[state] ?? ""}>{state.toLowerCase()}</Badge>;
}
