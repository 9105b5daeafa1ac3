import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, type Long } from "../api";
import { Field, TextField } from "../components/field";
import { TimeField } from "../components/time_field";
import { RecordTable } from "../components/record_table";
import { bytes, count } from "../numbers";
import { param, setParams } from "../router";
import type { RecordRow } from "../records";
import { durationText, notATime, parseTime, timeText } from "../time";

interface Progress {
  scanned: Long;
  total: Long;
  matched: number;
  bytes: Long;
  left: Record<string, [Long, Long]>;
  done?: string;
}

interface Running {
  progress: Progress | null;
  rows: RecordRow[];
  startedAt: number;
  tookMs: number;
  stopped: string;
}

/** Why a search ended that has seen all records. */
const FINISHED = "everything was searched";
const NOTHING: Running = { progress: null, rows: [], startedAt: 0, tookMs: 0, stopped: "" };

/** A search through a topic: what was scanned of how much, why it stopped, and how to go on. */
export function RecordSearch({ topic }: { topic: string }): JSX.Element {
  const [text, setText] = useState(param("q"));
  const [kind, setKind] = useState(param("kind") || "text");
  const [ignoreCase, setIgnoreCase] = useState(param("case") === "ignore");
  const [since, setSince] = useState(timeText(param("since"), true, false));
  const [until, setUntil] = useState(timeText(param("until"), true, false));
  const [partitions, setPartitions] = useState(param("partitions"));
  const [running, setRunning] = useState<Running>(NOTHING);
  const [error, setError] = useState("");
  const [withoutLeader, setWithoutLeader] = useState<number[]>([]);
  const source = useRef<EventSource | null>(null);

  const stop = (why: string) => {
    source.current?.close();
    source.current = null;
    setRunning((old) => ({ ...old, stopped: old.progress?.done ?? why, tookMs: Date.now() - old.startedAt }));
  };

  const start = async (left: string) => {
    source.current?.close();
    setError("");
    if (left === "") setWithoutLeader([]);
    const before = left === "" || running.progress === null ? null : ended(running.progress);
    setRunning((old) => ({ ...(left === "" ? NOTHING : { ...old, stopped: "" }), startedAt: Date.now() }));
    const query = new URLSearchParams({ q: text, kind, from: param("since"), to: param("until"), partitions: param("partitions"), left });
    if (ignoreCase) query.set("ignore_case", "true");
    const url = `/topics/${encodeURIComponent(topic)}/search?${query}`;
    const opened = new EventSource(`/api${url}`);
    source.current = opened;
    opened.addEventListener("record", (event) => {
      const { record } = JSON.parse((event as MessageEvent<string>).data) as { record: RecordRow };
      setRunning((old) => ({ ...old, rows: [...old.rows, record] }));
    });
    opened.addEventListener("progress", (event) => {
      const progress = added(before, (JSON.parse((event as MessageEvent<string>).data) as { progress: Progress }).progress);
      setRunning((old) => ({ ...old, progress, tookMs: Date.now() - old.startedAt }));
      if (progress.done !== undefined) stop(progress.done);
    });
    opened.addEventListener("without_leader", (event) => setWithoutLeader(JSON.parse((event as MessageEvent<string>).data) as number[]));
    opened.addEventListener("failed", (event) => stop(JSON.parse((event as MessageEvent<string>).data) as string));
    opened.onerror = () => {
      if (source.current !== opened) return;
      stop("the connection to the console was lost");
      // The browser does not tell why a stream was refused; a plain request does.
      void get(url).catch((problem: unknown) => setError(problem instanceof ApiError ? problem.message : ""));
    };
  };
  useEffect(() => {
    if (param("q") !== "") void start("");
    return () => source.current?.close();
  }, []);

  const submit = (event: Event) => {
    event.preventDefault();
    const bounds = [since, until].map((each) => (each.trim() === "" ? "" : parseTime(each)));
    const wrong = [since, until].find((_, index) => bounds[index] === null);
    if (wrong !== undefined) return setError(notATime(wrong));
    setParams({ q: text, kind: kind === "text" ? "" : kind, case: ignoreCase ? "ignore" : "", since: String(bounds[0]), until: String(bounds[1]), partitions: partitions.replaceAll(" ", "") });
    void start("");
  };
  const left = running.progress === null ? "" : Object.entries(running.progress.left).map(([partition, [from, to]]) => `${partition}:${from}:${to}`).join(",");
  const active = running.startedAt > 0 && running.stopped === "";
  return (
    <>
      <form class="toolbar" onSubmit={submit}>
        <Field label="Search for">
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
            <option value="text">a text</option>
            <option value="expression">an expression</option>
          </select>
        </Field>
        <TextField
          label={kind === "text" ? "Text in key, value or headers" : "Expression"}
          value={text}
          onInput={setText}
          placeholder={kind === "text" ? "" : 'value.amount > 100 and key contains "alice"'}
          required
        />
        {kind === "text" && (
          <label>
            <input type="checkbox" checked={ignoreCase} onChange={(event) => setIgnoreCase(event.currentTarget.checked)} /> ignore case
          </label>
        )}
        <TimeField label="From" value={since} onInput={setSince} />
        <TimeField label="Until" value={until} onInput={setUntil} />
        <TextField label="Partitions" value={partitions} onInput={setPartitions} placeholder="all" />
        <button type="submit" class="primary">
          Search
        </button>
        {active && (
          <button type="button" onClick={() => stop("you stopped it")}>
            Stop
          </button>
        )}
        {!active && left !== "" && (
          <button type="button" onClick={() => void start(left)}>
            Go on
          </button>
        )}
      </form>
      {error !== "" && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {withoutLeader.length > 0 && <p class="error">Partitions without a leader are not searched: {withoutLeader.join(", ")}</p>}
      {running.startedAt > 0 && error === "" && <ProgressLine running={running} active={active} />}
      {running.startedAt > 0 && (running.rows.length > 0 || !active) && error === "" && <RecordTable rows={running.rows} empty={running.progress?.done === FINISHED ? "No record matches." : "No record was found so far."} />}
    </>
  );
}

/** The progress of a search that stopped inside of a batch: what is left of it has not been searched. */
function ended(progress: Progress): Progress {
  const left = Object.values(progress.left).reduce((total, [from, to]) => total + BigInt(to) - BigInt(from), 0n);
  return { ...progress, scanned: String(BigInt(progress.total) - left) };
}

/** The progress of a search that goes on: the server counts only its new part. */
function added(before: Progress | null, part: Progress): Progress {
  if (part.done !== undefined) part = ended(part);
  if (before === null) return part;
  const sum = (a: Long, b: Long) => String(BigInt(a) + BigInt(b));
  return { ...part, scanned: sum(before.scanned, part.scanned), total: sum(before.scanned, part.total), matched: before.matched + part.matched, bytes: sum(before.bytes, part.bytes) };
}

function ProgressLine({ running, active }: { running: Running; active: boolean }): JSX.Element {
  const { progress, tookMs } = running;
  if (progress === null) return <p role="status">{active ? "Starting…" : `Stopped: ${running.stopped}.`}</p>;
  const share = progress.total === "0" ? 1 : Number(progress.scanned) / Number(progress.total);
  const perSecond = Number(progress.scanned) / Math.max(0.1, tookMs / 1000);
  const remaining = share > 0 && active ? durationText((tookMs / share) * (1 - share)) : "";
  return (
    <div class="progress" role="status">
      <progress value={share} max={1} aria-label="Searched" />
      <span>
        {count(progress.scanned)} of {count(progress.total)} records searched, {count(progress.matched)} found, {bytes(progress.bytes)} read, {count(Math.round(perSecond))} a second
        {remaining !== "" && `, ${remaining} left`}. {!active && `${progress.done === FINISHED ? "Finished" : "Stopped"}: ${running.stopped}.`}
      </span>
    </div>
  );
}
