import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { post, useData, type Long } from "../api";
import { notify } from "../components/notices";
import { ShownLine } from "../components/shown_value";
import { Badge, Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import type { Shown as ShownValue } from "../records";
import { Link, param, path, setParams } from "../router";
import { mayChange } from "../session";
import { timeText } from "../time";
import { EditLetter } from "./dead_letter_edit";
import { SendBack } from "./dead_letter_send";

export interface Letter {
  partition: number;
  offset: Long;
  key: ShownValue | null;
  value: ShownValue | null;
  kind: string | null;
  origin: string | null;
  error: string | null;
  message: string | null;
  resends: number;
}

export interface Cause {
  id: string;
  kind: string | null;
  topic: string | null;
  error: string | null;
  message: string | null;
  count: Long;
  newest: Long;
  samples: Letter[];
}

export interface Reason {
  reason: string;
  count: Long;
}

export interface Job {
  state: "running" | "stopped" | "finished" | "failed";
  started: Long;
  total: Long;
  done: Long;
  sent: Long;
  passed_over: Long;
  refused: Reason[];
  problem: string;
  rate: number;
  target: string | null;
}

interface Causes {
  group: string;
  causes: Cause[];
  scanned: Long;
  total: Long;
  stopped: string;
}

type Form = { kind: "send"; cause: Cause | null } | { kind: "edit"; letter: Letter };

export function DeadLetterTopic({ topic }: { topic: string }): JSX.Element {
  const base = `/dead-letters/${encodeURIComponent(topic)}`;
  const all = param("all") === "true";
  const causes = useData<Causes>(`${base}?all=${all}`);
  const job = useData<{ job: Job | null }>(`${base}/job`, 1000);
  const [form, setForm] = useState<Form | null>(null);
  const running = job.data?.job?.state === "running";
  const open = causes.data?.causes.find((each) => each.id === param("cause"));
  const reload = () => {
    setForm(null);
    causes.reload();
    job.reload();
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>Dead letters in {topic}</h1>
        {mayChange() && (
          <button type="button" disabled={running} onClick={() => setForm({ kind: "send", cause: null })}>
            Send back
          </button>
        )}
      </div>
      <div class="toolbar">
        <label>
          <input type="checkbox" checked={all} onChange={(event) => setParams({ all: event.currentTarget.checked ? "true" : "" })} /> Also letters that were sent or passed over before
        </label>
        <button type="button" onClick={causes.reload}>
          Read again
        </button>
        <Link to={path("topics", topic)}>Records of the topic</Link>
      </div>
      {job.data?.job != null && <JobCard job={job.data.job} base={base} onChange={reload} />}
      <Shown of={causes}>
        {(data) => (
          <>
            <p class="muted">
              {count(data.scanned)} of {count(data.total)} offsets read
              {data.stopped !== "" && `; stopped because ${data.stopped}`}. What was sent is remembered as the offsets of the group{" "}
              <Link to={path("groups", data.group)}>{data.group}</Link>.
            </p>
            <CauseTable causes={data.causes} running={running} onSend={(cause) => setForm({ kind: "send", cause })} />
          </>
        )}
      </Shown>
      {open !== undefined && <Samples topic={topic} cause={open} running={running} onEdit={(letter) => setForm({ kind: "edit", letter })} />}
      {form?.kind === "send" && <SendBack topic={topic} cause={form.cause} onClose={reload} />}
      {form?.kind === "edit" && <EditLetter topic={topic} letter={form.letter} onClose={reload} />}
    </div>
  );
}

function CauseTable({ causes, running, onSend }: { causes: Cause[]; running: boolean; onSend: (cause: Cause) => void }): JSX.Element {
  return (
    <Table
      label="Causes"
      rows={causes}
      id={(row) => row.id}
      sort="-count"
      empty="No letters are left."
      columns={[
        { key: "count", title: "Letters", cell: (row) => count(row.count), compare: byNumber((row) => BigInt(row.count)), number: true },
        { key: "error", title: "Error", cell: (row) => <CauseText cause={row} />, compare: byText((row) => `${row.error} ${row.message}`) },
        { key: "topic", title: "From topic", cell: (row) => (row.topic === null ? <Badge>unknown</Badge> : <Link to={path("topics", row.topic)}>{row.topic}</Link>), compare: byText((row) => row.topic ?? "") },
        { key: "kind", title: "Written by", cell: (row) => row.kind ?? "unknown", compare: byText((row) => row.kind ?? ""), optional: true },
        { key: "newest", title: "Newest", cell: (row) => timeText(row.newest, false), compare: byNumber((row) => BigInt(row.newest)), optional: true },
        {
          key: "actions",
          title: "Actions",
          cell: (row) => (
            <>
              <button type="button" class="link" aria-label={`Show letters of ${causeName(row)}`} aria-pressed={param("cause") === row.id} onClick={() => setParams({ cause: param("cause") === row.id ? "" : row.id })}>
                Letters
              </button>{" "}
              {mayChange() && (
                <button type="button" class="link" disabled={running} aria-label={`Send back letters of ${causeName(row)}`} onClick={() => onSend(row)}>
                  Send back
                </button>
              )}
            </>
          ),
        },
      ]}
    />
  );
}

/** In one line, for labels. */
export function causeName(cause: Cause): string {
  return [cause.error, cause.message].filter(Boolean).join(": ") || "an unknown cause";
}

function CauseText({ cause }: { cause: Cause }): JSX.Element {
  if (cause.error === null && cause.message === null) return <Badge>headers do not say</Badge>;
  return (
    <>
      <bdi>{cause.error}</bdi>
      {cause.message !== null && (
        <small class="reason" title={cause.message}>
          <bdi>{cause.message}</bdi>
        </small>
      )}
    </>
  );
}

function Samples({ topic, cause, running, onEdit }: { topic: string; cause: Cause; running: boolean; onEdit: (letter: Letter) => void }): JSX.Element {
  return (
    <>
      <h2>Newest letters of this cause</h2>
      <Table
        label="Letters"
        sortParam="letters"
        rows={cause.samples}
        id={(row) => `${row.partition}:${row.offset}`}
        columns={[
          { key: "place", title: "Record", cell: (row) => <Link to={path("topics", topic, row.partition, row.offset)}>{`${row.partition} / ${count(row.offset)}`}</Link> },
          { key: "message", title: "Message", cell: (row) => <small class="reason" title={row.message ?? ""}><bdi>{row.message}</bdi></small> },
          { key: "key", title: "Key", cell: (row) => <ShownLine of={row.key} />, optional: true },
          { key: "value", title: "Value", cell: (row) => <ShownLine of={row.value} /> },
          { key: "resends", title: "Sent back before", cell: (row) => count(row.resends), number: true, optional: true },
          {
            key: "edit",
            title: "Actions",
            cell: (row) =>
              mayChange() && (
                <button type="button" class="link" disabled={running} aria-label={`Edit and send partition ${row.partition} offset ${row.offset}`} onClick={() => onEdit(row)}>
                  Edit and send
                </button>
              ),
          },
        ]}
      />
    </>
  );
}

function JobCard({ job, base, onChange }: { job: Job; base: string; onChange: () => void }): JSX.Element {
  const stop = async () => {
    await post(`${base}/stop`, {});
    notify("Sending was stopped. It continues with the next letter when it is started again.");
    onChange();
  };
  return (
    <section class="card" aria-label="Sending back">
      <div class="progress">
        <span role="status">
          <Badge kind={job.state === "failed" ? "bad" : job.state === "finished" ? "ok" : ""}>{job.state}</Badge> {count(job.sent)} sent
          {job.passed_over !== "0" && `, ${count(job.passed_over)} of other causes passed over`}, {count(job.done)} of {count(job.total)} offsets, at most {count(job.rate)} a second.
        </span>
        <progress aria-label="Progress of sending back" max={Math.max(1, Number(job.total))} value={Number(job.done)} />
      </div>
      {job.problem !== "" && <p class="error">{job.problem}</p>}
      <Refused reasons={job.refused} />
      {job.state === "running" && mayChange() && (
        <button type="button" class="danger" onClick={() => void stop()}>
          Stop
        </button>
      )}
    </section>
  );
}

/** Letters that are not sent, by reason. */
export function Refused({ reasons }: { reasons: Reason[] }): JSX.Element | null {
  if (reasons.length === 0) return null;
  return (
    <ul>
      {reasons.map((each) => (
        <li key={each.reason}>
          {count(each.count)} not sent: {each.reason}
        </li>
      ))}
    </ul>
  );
}
