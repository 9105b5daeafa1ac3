import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get, useLoaded, type Long } from "../api";
import { Field, TextField } from "../components/field";
import { RecordTable } from "../components/record_table";
import { RecordView } from "../components/record_view";
import { ErrorText } from "../components/states";
import { TimeField } from "../components/time_field";
import { param, setParams } from "../router";
import { produced, type RecordRow } from "../records";
import { notATime, parseTime, timeText, zone } from "../time";
import { LiveRecords } from "./records_live";
import { RecordVolume } from "./records_volume";
import { RecordSearch } from "./records_search";

interface RecordPage {
  records: RecordRow[];
  next: Record<string, Long>;
  bounds: Record<string, { begin: Long; end: Long }>;
  without_leader: number[];
  stopped: string;
}

/** The records of a topic. What is shown (start, search, live, open record) is in the address. */
export function Records({ topic }: { topic: string }): JSX.Element {
  const mode = param("mode") || "browse";
  const open = param("open").split(":");
  return (
    <>
      <div class="segments" role="group" aria-label="How records are shown">
        {(
          [
            ["browse", "Browse"],
            ["live", "Live"],
            ["search", "Search"],
          ] as const
        ).map(([key, title]) => (
          <button key={key} type="button" aria-pressed={mode === key} onClick={() => setParams({ mode: key === "browse" ? "" : key }, true)}>
            {title}
          </button>
        ))}
      </div>
      <RecordVolume topic={topic} />
      <div class={open.length === 2 ? "with-panel" : ""}>
        <div>
          {mode === "live" ? <LiveRecords topic={topic} /> : mode === "search" ? <RecordSearch topic={topic} /> : <Browse topic={topic} />}
        </div>
        {open.length === 2 && (
          <aside class="card panel" aria-label="Open record">
            <div class="page-head">
              <h2>Record</h2>
              <span class="spacer" />
              <button type="button" onClick={() => setParams({ open: "" })}>
                Close
              </button>
            </div>
            <RecordView topic={topic} partition={open[0]!} offset={open[1]!} />
          </aside>
        )}
      </div>
    </>
  );
}

function Browse({ topic }: { topic: string }): JSX.Element {
  const from = param("from") || "newest";
  const query = new URLSearchParams({ from, limit: param("limit") || "50", partitions: param("partitions") }).toString();
  const first = useLoaded<RecordPage>(`${topic} ${query} ${produced.value}`, () => get(`/topics/${encodeURIComponent(topic)}/records?${query}`));
  const [more, setMore] = useState<{ of: RecordPage | undefined; pages: RecordPage[]; error?: string; busy?: boolean }>({ of: undefined, pages: [] });
  const pages = more.of === first.data ? more.pages : [];
  const rows = [first.data, ...pages].flatMap((page) => page?.records ?? []);
  const last = pages[pages.length - 1] ?? first.data;
  const ended = last !== undefined && isAtEnd(last, from);

  const loadMore = async () => {
    if (last === undefined) return;
    const at = Object.entries(last.next).map(([partition, offset]) => `${partition}:${offset}`).join(",");
    setMore({ of: first.data, pages, busy: true });
    try {
      const page = await get<RecordPage>(`/topics/${encodeURIComponent(topic)}/records?${query}&at=${encodeURIComponent(at)}`);
      setMore({ of: first.data, pages: [...pages, page] });
    } catch (error) {
      setMore({ of: first.data, pages, error: String(error) });
    }
  };

  return (
    <>
      <StartForm from={from} reload={first.reload} />
      {first.error !== undefined && <ErrorText error={first.error} />}
      {first.data !== undefined && (
        <>
          {first.data.without_leader.length > 0 && <p class="error">Partitions without a leader are left out: {first.data.without_leader.join(", ")}</p>}
          <RecordTable rows={rows} empty="No records here." />
          {last?.stopped && <p class="muted">The page is shorter than usual: {last.stopped}.</p>}
          {more.error !== undefined && <p class="error">{more.error}</p>}
          {rows.length > 0 && (
            <p class="toolbar">
              <a href={`/api/topics/${encodeURIComponent(topic)}/download?${new URLSearchParams({ from, partitions: param("partitions") })}`}>Download as JSON lines</a>
              {ended ? (
                <span class="muted">{from === "newest" ? "These are the oldest records." : "These are the newest records."}</span>
              ) : (
                <button type="button" disabled={more.busy === true} onClick={loadMore}>
                  {from === "newest" ? "Older records" : "Newer records"}
                </button>
              )}
            </p>
          )}
        </>
      )}
    </>
  );
}

function isAtEnd(page: RecordPage, from: string): boolean {
  return Object.entries(page.bounds).every(([partition, { begin, end }]) => {
    const next = BigInt(page.next[partition] ?? "0");
    return from === "newest" ? next <= BigInt(begin) : next >= BigInt(end);
  });
}

/** Where the list begins. */
function StartForm({ from, reload }: { from: string; reload: () => void }): JSX.Element {
  const [kind, value = ""] = splitOnce(from);
  const [shownKind, setKind] = useState(kind);
  const [text, setText] = useState(kind === "time" ? timeText(value, true, false) : value);
  const [partitions, setPartitions] = useState(param("partitions"));
  useEffect(() => {
    setKind(kind);
    setText(kind === "time" ? timeText(value, true, false) : value);
  }, [from, zone()]);
  const [problem, setProblem] = useState("");
  const apply = (event: Event) => {
    event.preventDefault();
    const moment = shownKind === "time" ? parseTime(text) : 0;
    setProblem(moment === null ? notATime(text) : "");
    if (moment === null) return;
    const start = shownKind === "offset" ? `offset:${text || "0"}` : shownKind === "time" ? `time:${moment}` : shownKind;
    setParams({ from: start === "newest" ? "" : start, partitions: partitions.replaceAll(" ", ""), open: "" }, true);
    reload();
  };
  return (
    <form class="toolbar" onSubmit={apply}>
      <Field label="Start">
        <select value={shownKind} onChange={(event) => setKind(event.currentTarget.value)}>
          <option value="newest">newest</option>
          <option value="oldest">oldest</option>
          <option value="offset">offset</option>
          <option value="time">time</option>
        </select>
      </Field>
      {shownKind === "offset" && <TextField label="Offset" value={text} onInput={setText} required />}
      {shownKind === "time" && <TimeField label="Time" value={text} onInput={setText} required />}
      <TextField label="Partitions" value={partitions} onInput={setPartitions} placeholder="all" />
      <button type="submit">Show</button>
      {problem !== "" && (
        <p class="error" role="alert">
          {problem}
        </p>
      )}
    </form>
  );
}

function splitOnce(text: string): [string, string?] {
  const at = text.indexOf(":");
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}
