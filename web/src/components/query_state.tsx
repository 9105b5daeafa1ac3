import type { JSX } from "preact";
import { Badge } from "./states";

const MEANING: Record<string, string> = {
  starting: "The query has started and has not finished a batch.",
  running: "The query has finished a batch.",
  idle: "The query waits for new data.",
  stopped: "The query was stopped.",
  failed: "The query ended with an error.",
};

/** The state of a query, with the reason if it failed or has become silent. */
export function QueryState({ of }: { of: { state: string; silent: boolean; trouble: string } }): JSX.Element {
  const kind = of.state === "failed" ? "bad" : of.silent ? "warning" : of.state === "running" || of.state === "idle" ? "ok" : "";
  return (
    <>
      <span title={MEANING[of.state] ?? ""}>
        <Badge kind={kind}>{of.silent ? `silent (was ${of.state})` : of.state}</Badge>
      </span>
      {of.trouble !== "" && (
        <small class="reason" title={of.trouble}>
          <bdi>{of.trouble}</bdi>
        </small>
      )}
    </>
  );
}
