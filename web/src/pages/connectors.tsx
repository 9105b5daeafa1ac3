import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { useData, type Long } from "../api";
import { ConnectorState } from "../components/connector_state";
import { Filter } from "../components/field";
import { Badge, Shown } from "../components/states";
import { Table, byText } from "../components/table";
import { count } from "../numbers";
import { Link, param, path, setParams } from "../router";
import { mayChange } from "../session";
import { ConnectorPage } from "./connector";
import { NewConnector } from "./connector_form";

export interface Task {
  id: number;
  state: string;
  worker: string;
  trace: string;
}

export interface ConnectorRow {
  name: string;
  type: string;
  plugin: string;
  state: string;
  tasks: Task[];
  /** The first line of why something has failed. */
  problem: string;
  /** Figures that only Headrace's Connect has. */
  progress: Record<string, Long | null>;
}

/** `/connectors` and `/connectors/NAME`. */
export default function Connectors({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <ConnectorList /> : <ConnectorPage key={parts[0]} name={parts[0]} />;
}

function ConnectorList(): JSX.Element {
  const list = useData<{ connectors: ConnectorRow[] }>("/connectors", 3000);
  const [creating, setCreating] = useState(false);
  const text = param("q").toLowerCase();
  const all = list.data?.connectors ?? [];
  const rows = all.filter((row) => `${row.name} ${row.plugin}`.toLowerCase().includes(text));
  return (
    <div class="page">
      <div class="page-head">
        <h1>Connectors</h1>
        {mayChange() && list.data !== undefined && (
          <button type="button" class="primary" onClick={() => setCreating(true)}>
            New connector
          </button>
        )}
      </div>
      <Shown of={list}>
        {() => (
          <>
            <div class="toolbar">
              <Filter label="Filter by name or plug-in" value={param("q")} onInput={(value) => setParams({ q: value })} />
              <span class="muted">
                {count(rows.length)} of {count(all.length)}
              </span>
            </div>
            <Table
              label="Connectors"
              rows={rows}
              id={(row) => row.name}
              sort="state"
              empty={text === "" ? "There are no connectors." : "No connector has this name."}
              columns={[
                { key: "name", title: "Connector", cell: (row) => <Link to={path("connectors", row.name)}>{row.name}</Link>, compare: byText((row) => row.name) },
                { key: "state", title: "State", cell: (row) => <StateCell row={row} />, compare: byText((row) => urgency(row) + row.name) },
                { key: "tasks", title: "Tasks", cell: (row) => taskText(row.tasks) },
                { key: "type", title: "Type", cell: (row) => row.type, compare: byText((row) => row.type), optional: true },
                { key: "plugin", title: "Plug-in", cell: (row) => <span title={row.plugin}>{shortClass(row.plugin)}</span>, compare: byText((row) => shortClass(row.plugin)), optional: true },
              ]}
            />
          </>
        )}
      </Shown>
      {creating && <NewConnector onClose={() => setCreating(false)} />}
    </div>
  );
}

function StateCell({ row }: { row: ConnectorRow }): JSX.Element {
  return (
    <>
      <ConnectorState state={row.state} />
      {row.state !== "FAILED" && row.problem !== "" && (
        <>
          {" "}
          <Badge kind="bad">task failed</Badge>
        </>
      )}
      {row.problem !== "" && (
        <small class="reason" title={row.problem}>
          <bdi>{row.problem}</bdi>
        </small>
      )}
    </>
  );
}

/** `2 of 3 running`: a connector can be running while its tasks are not. */
function taskText(tasks: Task[]): string {
  if (tasks.length === 0) return "none";
  return `${tasks.filter((task) => task.state === "RUNNING").length} of ${tasks.length} running`;
}

function urgency(row: ConnectorRow): string {
  if (row.problem !== "" || row.state === "FAILED") return "0";
  return row.state === "RUNNING" ? "2" : "1";
}

export function shortClass(name: string): string {
  return name.slice(name.lastIndexOf(".") + 1);
}
