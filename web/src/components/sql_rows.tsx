import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "../api";
import { count } from "../numbers";
import { Badge } from "./states";
import { Table, type Column } from "./table";

export interface StartedQuery {
  id: string;
  columns: { name: string; type: string }[];
  is_push: boolean;
}

interface Taken {
  /** Values as JSON texts: numbers keep all their digits. */
  rows: string[][];
  dropped: number;
  end: "" | "ended" | "stopped" | "failed";
  reason: string;
}

interface Row {
  number: number;
  values: string[];
}

const VISIBLE_MS = 300;
const HIDDEN_MS = 20_000;
const MOST_ROWS = 5_000;
const NUMBERS = /^(TINYINT|SMALLINT|INT|INTEGER|BIGINT|DOUBLE|FLOAT|DECIMAL)/;

/** The rows of a query as they come. Leaving it ends the query. */
export function SqlRows({ query }: { query: StartedQuery }): JSX.Element {
  const rows = useRef<Row[]>([]);
  const [state, setState] = useState({ seen: 0, dropped: 0, end: "" as Taken["end"], reason: "" });
  const stop = useRef<() => void>(() => undefined);

  useEffect(() => {
    let active = true;
    let running = true;
    let timer = 0;
    const finish = (end: Taken["end"], reason: string) => {
      running = false;
      setState((old) => ({ ...old, end, reason }));
    };
    const take = async () => {
      window.clearTimeout(timer);
      try {
        const found = await get<Taken>(`/sql/rows/${query.id}`);
        if (!active || !running) return;
        const first = rows.current.length === 0 ? 0 : Math.max(rows.current[0]!.number, rows.current[rows.current.length - 1]!.number);
        const added = found.rows.map((values, index) => ({ number: first + index + 1, values }));
        // The newest row of a push query is the first one of the table.
        rows.current = query.is_push ? [...added.reverse(), ...rows.current].slice(0, MOST_ROWS) : [...rows.current, ...added];
        setState((old) => ({ ...old, seen: old.seen + found.rows.length, dropped: old.dropped + found.dropped }));
        if (found.end !== "") return finish(found.end, found.reason);
      } catch (error) {
        if (active && running) finish("failed", error instanceof ApiError ? error.message : String(error));
        return;
      }
      timer = window.setTimeout(() => void take(), document.hidden ? HIDDEN_MS : VISIBLE_MS);
    };
    const leave = () => {
      if (running) void fetch(`/api/sql/rows/${query.id}`, { method: "DELETE", keepalive: true }).catch(() => undefined);
    };
    const visible = () => {
      if (!document.hidden && running) void take();
    };
    stop.current = () => {
      leave();
      window.clearTimeout(timer);
      finish("stopped", "");
    };
    document.addEventListener("visibilitychange", visible);
    window.addEventListener("pagehide", leave);
    void take();
    return () => {
      active = false;
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
      window.removeEventListener("pagehide", leave);
      leave();
    };
  }, [query.id]);

  return (
    <>
      <div class="toolbar">
        <span role="status" class="toolbar">
          <State end={state.end} isPush={query.is_push} />
          <span>
            {count(state.seen)} {state.seen === 1 ? "row" : "rows"}
          </span>
        </span>
        {state.reason !== "" && state.end !== "failed" && <span class="muted">{state.reason}</span>}
        {state.dropped > 0 && <span class="muted">{count(state.dropped)} more came faster than the page asked for them, and are not shown</span>}
        {query.is_push && state.seen > MOST_ROWS && <span class="muted">the newest {count(MOST_ROWS)} are shown</span>}
        {state.end === "" && (
          <button type="button" onClick={() => stop.current()}>
            Stop
          </button>
        )}
      </div>
      {state.end === "failed" && (
        <p class="error" role="alert">
          {state.reason}
        </p>
      )}
      <div class="sql-rows">
        <Table
          label="Rows"
          sortParam="rows"
          rows={rows.current}
          id={(row) => String(row.number)}
          empty={state.end === "" ? "Waiting for rows." : "No rows."}
          columns={query.columns.map((column, index): Column<Row> => ({
            key: `${index}`,
            title: column.name,
            note: column.type,
            cell: (row) => <Value text={row.values[index] ?? "null"} />,
            number: NUMBERS.test(column.type),
          }))}
        />
      </div>
    </>
  );
}

function State({ end, isPush }: { end: Taken["end"]; isPush: boolean }): JSX.Element {
  if (end === "failed") return <Badge kind="bad">failed</Badge>;
  if (end === "stopped") return <Badge kind="warning">stopped</Badge>;
  if (end === "ended") return <Badge kind="ok">complete</Badge>;
  return <Badge kind={isPush ? "ok" : ""}>{isPush ? "live" : "reading…"}</Badge>;
}

/** A value, from its JSON text. Only texts are decoded. */
function Value({ text }: { text: string }): JSX.Element {
  if (text === "null") return <span class="null">null</span>;
  let shown = text;
  if (text.startsWith('"')) {
    try {
      shown = JSON.parse(text) as string;
    } catch {
      // A text that was cut has no closing quote.
    }
  }
  return (
    <bdi class="mono" title={shown.length > 40 ? shown : undefined}>
      {shown}
    </bdi>
  );
}
