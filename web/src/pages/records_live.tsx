import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { subscribe } from "../events";
import { RecordTable } from "../components/record_table";
import { Badge } from "../components/states";
import { count, rate } from "../numbers";
import { RecordRing } from "../record_ring";
import type { RecordRow } from "../records";

const MOST_RECORDS = 50_000;
const MOST_CHARACTERS = 32_000_000;
const WINDOW_MS = 5_000;

interface LiveBatch {
  records: RecordRow[];
  seen: number;
  left_out: number;
}

/** New records as they arrive, the newest first. */
export function LiveRecords({ topic }: { topic: string }): JSX.Element {
  const kept = useRef(new RecordRing(MOST_RECORDS, MOST_CHARACTERS));
  const arrivals = useRef<[number, number][]>([]);
  const [state, setState] = useState({ seen: 0, leftOut: 0, connected: false, problem: "" });
  const [paused, setPaused] = useState(false);
  const [frozen, setFrozen] = useState<RecordRow[] | null>(null);

  useEffect(() => {
    kept.current = new RecordRing(MOST_RECORDS, MOST_CHARACTERS);
    return subscribe((last) => `/topics/${encodeURIComponent(topic)}/tail${last === "" ? "" : `?at=${encodeURIComponent(last)}`}`, ["ready", "records", "problem"], {
      // Only the event "ready" says that the topic is followed; it has the offsets to continue at.
      onState: (connected) => setState((old) => ({ ...old, connected: connected && old.connected })),
      onEvent: (name, data) => {
        if (name === "problem") return setState((old) => ({ ...old, problem: JSON.parse(data) as string }));
        if (name === "ready") return setState((old) => ({ ...old, connected: true, problem: "" }));
        // Only texts and small numbers are in it: offsets, timestamps and values are strings.
        const batch = JSON.parse(data) as LiveBatch;
        const now = Date.now();
        arrivals.current = [...arrivals.current.filter(([at]) => now - at < WINDOW_MS), [now, batch.seen]];
        kept.current.add(batch.records);
        setState((old) => ({ ...old, connected: true, seen: old.seen + batch.seen, leftOut: old.leftOut + batch.left_out }));
      },
    });
  }, [topic]);

  const now = Date.now();
  const recent = arrivals.current.filter(([at]) => now - at < WINDOW_MS).reduce((total, [, seen]) => total + seen, 0);
  return (
    <>
      <div class="toolbar" role="status">
        {state.problem !== "" ? <Badge kind="bad">{state.problem}</Badge> : state.connected ? <Badge kind="ok">live</Badge> : <Badge kind="warning">connecting…</Badge>}
        <span>
          {count(state.seen)} records, {rate(recent / (WINDOW_MS / 1000))}
        </span>
        {state.leftOut > 0 && <span class="muted">{count(state.leftOut)} of them are not listed: they came faster than the list can show, or long ago in a hidden tab</span>}
        <button
          type="button"
          aria-pressed={paused}
          onClick={() => {
            setPaused(!paused);
            setFrozen(paused ? null : kept.current.frozen());
          }}
        >
          {paused ? "Continue" : "Pause the list"}
        </button>
      </div>
      <RecordTable rows={frozen ?? kept.current.view()} empty="Waiting for new records." />
    </>
  );
}
