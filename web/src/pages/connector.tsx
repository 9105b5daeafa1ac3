import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, remove, useData } from "../api";
import { ConnectorState } from "../components/connector_state";
import { Dialog, quoted } from "../components/dialog";
import { notify } from "../components/notices";
import { JsonText } from "../components/shown_value";
import { Badge, Shown, Unavailable } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, navigate, path } from "../router";
import { mayChange } from "../session";
import { timeText } from "../time";
import { shortClass, type ConnectorRow, type Task } from "./connectors";
import { EditConnector } from "./connector_form";

export interface ConnectorInfo extends ConnectorRow {
  trace: string;
  worker: string;
  /** Without secrets. */
  configs: Record<string, string>;
  topics: string[];
  /** JSON texts: their numbers may be larger than JavaScript's. */
  offsets: { partition: string; offset: string }[];
  offsets_problem: string;
}

type Form = "" | "edit" | "stop" | "delete" | "offsets";

const ACTIONS: { action: string; title: string; done: string; when: (state: string) => boolean }[] = [
  { action: "pause", title: "Pause", done: "is paused", when: (state) => state === "RUNNING" },
  { action: "resume", title: "Resume", done: "runs again", when: (state) => state === "PAUSED" || state === "STOPPED" },
  { action: "restart", title: "Restart", done: "is restarted", when: (state) => state !== "STOPPED" },
];

export function ConnectorPage({ name }: { name: string }): JSX.Element {
  const place = `/connectors/${encodeURIComponent(name)}`;
  const info = useData<ConnectorInfo>(place, 3000);
  const [form, setForm] = useState<Form>("");
  const close = () => {
    setForm("");
    info.reload();
  };
  const act = (path: string, done: string) =>
    post(path, {})
      .then(() => notify(done))
      .catch((error: unknown) => notify(error instanceof Error ? error.message : String(error)))
      .finally(info.reload);
  const state = info.data?.state ?? "";
  return (
    <div class="page">
      <div class="page-head">
        <h1>{name}</h1>
        {mayChange() && info.data !== undefined && (
          <>
            {ACTIONS.filter((each) => each.when(state)).map((each) => (
              <button key={each.action} type="button" onClick={() => void act(`${place}/${each.action}`, `${name} ${each.done}.`)}>
                {each.title}
              </button>
            ))}
            {state !== "STOPPED" && (
              <button type="button" onClick={() => setForm("stop")}>
                Stop
              </button>
            )}
            <button type="button" class="primary" onClick={() => setForm("edit")}>
              Change settings
            </button>
            <button type="button" class="danger" onClick={() => setForm("delete")}>
              Delete
            </button>
          </>
        )}
      </div>
      <Shown of={info}>
        {(data) => (
          <>
            <Facts data={data} />
            <Tasks data={data} onRestart={(task) => void act(`${place}/tasks/${task}`, `Task ${task} of ${name} is restarted.`)} />
            <Settings configs={data.configs} />
            <Offsets data={data} onReset={() => setForm("offsets")} />
          </>
        )}
      </Shown>
      {form === "edit" && info.data !== undefined && <EditConnector name={name} plugin={info.data.plugin} configs={info.data.configs} onClose={close} />}
      {form === "stop" && (
        <Dialog title={`Stop ${name}`} action="Stop" command={`headrace connect stop ${quoted(name)}`} onClose={close} onSubmit={async () => void (await post(`${place}/stop`, {}))}>
          <p>The tasks end and free what they hold. The settings and the offsets stay; "Resume" starts the connector again.</p>
        </Dialog>
      )}
      {form === "delete" && (
        <Dialog
          title={`Delete ${name}`}
          action="Delete"
          dangerous
          command={`headrace connect delete ${quoted(name)}`}
          onClose={close}
          onSubmit={async () => {
            await remove(place);
            notify(`${name} was deleted.`);
            navigate("/connectors");
          }}
        >
          <p>The connector and its settings are deleted. Its topics and their records stay.</p>
        </Dialog>
      )}
      {form === "offsets" && (
        <Dialog title={`Reset the offsets of ${name}`} action="Reset" dangerous command={`headrace connect offsets ${quoted(name)} --reset`} onClose={close} onSubmit={async () => void (await remove(`${place}/offsets`))}>
          <p>The connector begins again: a source reads everything once more, a sink reads its topics as a new consumer group does.</p>
        </Dialog>
      )}
    </div>
  );
}

const PROGRESS: Record<string, string> = {
  records: "Records",
  lag: "Lag",
  last_record_at: "Last record",
  restarts: "Restarts",
  next_try_at: "Next try",
};

function progressText(name: string, value: string | null): string {
  if (value === null || !/^\d+$/.test(value)) return value ?? "";
  return name.endsWith("_at") ? timeText(Number(value)) : count(value);
}

function Facts({ data }: { data: ConnectorInfo }): JSX.Element {
  const progress = Object.entries(data.progress).filter(([, value]) => value !== null);
  return (
    <>
      <dl class="facts">
        <dt>State</dt>
        <dd>
          <ConnectorState state={data.state} /> {data.worker !== "" && <span class="muted">on {data.worker}</span>}
        </dd>
        <dt>Plug-in</dt>
        <dd>
          <span title={data.plugin}>{shortClass(data.plugin)}</span> <Badge>{data.type}</Badge>
        </dd>
        <dt>{data.type === "sink" ? "Reads" : "Writes"}</dt>
        <dd>
          {data.topics.length === 0
            ? "no topic known yet"
            : data.topics.map((topic, index) => (
                <span key={topic}>
                  {index > 0 && ", "}
                  <Link to={path("topics", topic)}>{topic}</Link>
                </span>
              ))}
        </dd>
        {progress.map(([name, value]) => (
          <>
            <dt>{PROGRESS[name] ?? name}</dt>
            <dd>{progressText(name, value)}</dd>
          </>
        ))}
      </dl>
      {data.trace !== "" && <Trace title="Why the connector failed" text={data.trace} />}
    </>
  );
}

function Tasks({ data, onRestart }: { data: ConnectorInfo; onRestart: (task: number) => void }): JSX.Element {
  return (
    <>
      <h2>Tasks</h2>
      <Table<Task>
        label="Tasks"
        sortParam="tasks"
        rows={data.tasks}
        id={(row) => String(row.id)}
        sort="id"
        empty="The connector has no tasks."
        columns={[
          { key: "id", title: "Task", cell: (row) => row.id, compare: byNumber((row) => row.id), number: true },
          { key: "state", title: "State", cell: (row) => <ConnectorState state={row.state} />, compare: byText((row) => row.state) },
          { key: "worker", title: "Worker", cell: (row) => row.worker, compare: byText((row) => row.worker) },
          {
            key: "restart",
            title: "Action",
            cell: (row) =>
              mayChange() && (
                <button type="button" class="link" aria-label={`Restart task ${row.id}`} onClick={() => onRestart(row.id)}>
                  Restart
                </button>
              ),
          },
        ]}
      />
      {data.tasks
        .filter((task) => task.trace !== "")
        .map((task) => (
          <Trace key={task.id} title={`Why task ${task.id} failed`} text={task.trace} />
        ))}
    </>
  );
}

function Trace({ title, text }: { title: string; text: string }): JSX.Element {
  return (
    <details open class="trace">
      <summary>{title}</summary>
      <pre class="shown-text" tabIndex={0}>
        {text}
      </pre>
    </details>
  );
}

function Settings({ configs }: { configs: Record<string, string> }): JSX.Element {
  return (
    <>
      <h2>Settings</h2>
      <Table
        label="Settings"
        sortParam="settings"
        rows={Object.entries(configs)}
        id={([name]) => name}
        sort="name"
        columns={[
          { key: "name", title: "Setting", cell: ([name]) => <code>{name}</code>, compare: byText(([name]) => name) },
          { key: "value", title: "Value", cell: ([, value]) => (value === "[hidden]" ? <Badge>secret</Badge> : <code>{value}</code>) },
        ]}
      />
    </>
  );
}

function Offsets({ data, onReset }: { data: ConnectorInfo; onReset: () => void }): JSX.Element {
  return (
    <>
      <h2>Offsets</h2>
      {data.offsets_problem !== "" ? (
        <Unavailable why={data.offsets_problem} />
      ) : (
        <Table
          label="Offsets"
          sortParam="offsets"
          rows={data.offsets}
          id={(row) => row.partition}
          sort="partition"
          empty="The connector has committed no offsets yet."
          columns={[
            { key: "partition", title: "Partition", cell: (row) => <code><JsonText text={row.partition} /></code>, compare: byText((row) => row.partition) },
            { key: "offset", title: "Offset", cell: (row) => <code><JsonText text={row.offset} /></code>, compare: byText((row) => row.offset) },
          ]}
        />
      )}
      {mayChange() && data.offsets.length > 0 && (
        <p>
          <button type="button" class="danger" disabled={data.state !== "STOPPED"} onClick={onReset}>
            Reset offsets
          </button>{" "}
          {data.state !== "STOPPED" && <span class="muted">Stop the connector first.</span>}
        </p>
      )}
    </>
  );
}
