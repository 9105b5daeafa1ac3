import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { put, remove, useData, type Long } from "../api";
import { Dialog, kafkaTool, quoted } from "../components/dialog";
import { Field, Filter, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Shown } from "../components/states";
import { Table, byNumber, byText } from "../components/table";
import { count } from "../numbers";
import { Link, param, path, setParams } from "../router";
import { mayAdminister } from "../session";
import { durationText } from "../time";

interface Subscription {
  name: string;
  metrics: string[];
  interval_ms: Long | null;
  match: string[];
}

interface Client {
  id: string;
  instance: string;
  source: string;
  metrics: number;
}

interface Metric {
  name: string;
  labels: Record<string, string>;
  value: string;
  source: string;
}

interface Gaps {
  /** Why brokers are missing. */
  problems: string[];
  left_out: number;
}

/** `/client-metrics` and `/client-metrics/INSTANCE`: metrics that clients push to brokers (KIP-714). */
export default function ClientMetrics({ parts }: { parts: string[] }): JSX.Element {
  return parts[0] === undefined ? <Overview /> : <ClientPage key={parts[0]} instance={parts[0]} />;
}

function Overview(): JSX.Element {
  const subscriptions = useData<{ subscriptions: Subscription[] }>("/client-metrics", 10_000);
  const clients = useData<{ clients: Client[] } & Gaps>("/metrics-clients", 10_000);
  const [form, setForm] = useState<{ kind: "edit" | "delete"; of: Subscription | null } | null>(null);
  const close = () => {
    setForm(null);
    subscriptions.reload();
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>Client metrics</h1>
        {mayAdminister() && (
          <button type="button" class="primary" onClick={() => setForm({ kind: "edit", of: null })}>
            Create subscription
          </button>
        )}
      </div>
      <p class="muted">A subscription asks clients to push metrics to their brokers. Clients learn of a change within the interval of their present subscription.</p>
      <h2>Subscriptions</h2>
      <Shown of={subscriptions}>
        {(data) => (
          <Table
            label="Subscriptions"
            rows={data.subscriptions}
            id={(row) => row.name}
            sort="name"
            empty="No client is asked for metrics."
            columns={[
              { key: "name", title: "Subscription", cell: (row) => row.name, compare: byText((row) => row.name) },
              { key: "metrics", title: "Metrics", cell: (row) => row.metrics.join(", ") || "none" },
              { key: "interval", title: "Interval", cell: (row) => (row.interval_ms === null ? "default" : durationText(Number(row.interval_ms))), compare: byNumber((row) => (row.interval_ms === null ? null : BigInt(row.interval_ms))), number: true },
              { key: "match", title: "Clients", cell: (row) => row.match.join(", ") || "all", optional: true },
              {
                key: "action",
                title: "Action",
                cell: (row) =>
                  mayAdminister() && (
                    <>
                      <button type="button" class="link" aria-label={`Change ${row.name}`} onClick={() => setForm({ kind: "edit", of: row })}>
                        Change
                      </button>{" "}
                      <button type="button" class="link" aria-label={`Delete ${row.name}`} onClick={() => setForm({ kind: "delete", of: row })}>
                        Delete
                      </button>
                    </>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      <h2>Clients</h2>
      <Shown of={clients}>
        {(data) => (
          <>
            <Missing of={data} />
            <Table
              label="Clients"
              sortParam="clients"
              rows={data.clients}
              id={(row) => `${row.instance} ${row.source}`}
              empty={data.problems.length === 0 ? "No client has pushed metrics." : "No client is known that has pushed metrics."}
              columns={[
                { key: "id", title: "Client", cell: (row) => <Link to={path("client-metrics", row.instance)}>{row.id || "(no client id)"}</Link>, compare: byText((row) => row.id) },
                { key: "instance", title: "Instance", cell: (row) => <code>{row.instance}</code>, compare: byText((row) => row.instance), optional: true },
                { key: "metrics", title: "Values", cell: (row) => count(row.metrics), compare: byNumber((row) => row.metrics), number: true },
                { key: "source", title: "Broker", cell: (row) => row.source, compare: byText((row) => row.source), optional: true },
              ]}
            />
          </>
        )}
      </Shown>
      {form?.kind === "edit" && <EditSubscription of={form.of} onClose={close} />}
      {form?.kind === "delete" && form.of !== null && <DeleteSubscription name={form.of.name} onClose={close} />}
    </div>
  );
}

function Missing({ of }: { of: Gaps }): JSX.Element {
  return (
    <>
      {of.problems.map((problem) => (
        <p key={problem} class="error">
          Clients may be missing: {problem}
        </p>
      ))}
      {of.left_out > 0 && <p class="muted">{count(of.left_out)} further values are not shown.</p>}
    </>
  );
}

function ClientPage({ instance }: { instance: string }): JSX.Element {
  const found = useData<{ metrics: Metric[] } & Gaps>(`/metrics-clients/${encodeURIComponent(instance)}`, 5000);
  const text = param("q").toLowerCase();
  const labels = (row: Metric) => Object.entries(row.labels).map(([name, value]) => `${name}=${value}`).join(", ");
  return (
    <div class="page">
      <div class="page-head">
        <h1>
          <Link to="/client-metrics">Client metrics</Link> / {instance}
        </h1>
      </div>
      <div class="toolbar">
        <Filter label="Filter by name or label" value={param("q")} onInput={(value) => setParams({ q: value })} />
      </div>
      <Shown of={found}>
        {(data) => (
          <>
            <Missing of={data} />
            <Table
              label="Values"
              rows={data.metrics.filter((row) => `${row.name} ${labels(row)}`.toLowerCase().includes(text))}
              id={(row) => `${row.name} ${labels(row)} ${row.source}`}
              sort="name"
              empty="No metric matches."
              columns={[
                { key: "name", title: "Metric", cell: (row) => <code>{row.name}</code>, compare: byText((row) => row.name) },
                { key: "labels", title: "Labels", cell: (row) => <bdi>{labels(row)}</bdi>, compare: byText(labels), optional: true },
                { key: "value", title: "Value", cell: (row) => row.value, compare: byNumber((row) => Number(row.value)), number: true },
              ]}
            />
          </>
        )}
      </Shown>
    </div>
  );
}

const words = (text: string) => text.split(/[\s,]+/).filter(Boolean);

function EditSubscription({ of, onClose }: { of: Subscription | null; onClose: () => void }): JSX.Element {
  const [name, setName] = useState(of?.name ?? "");
  const [metrics, setMetrics] = useState(of?.metrics.join("\n") ?? "org.apache.kafka.");
  const [interval, setInterval] = useState(of?.interval_ms ?? "");
  const [match, setMatch] = useState(of?.match.join("\n") ?? "");
  const save = async () => {
    await put(`/client-metrics/${encodeURIComponent(name)}`, { metrics: words(metrics), interval_ms: interval || null, match: words(match) });
    notify(`Subscription ${name} was ${of === null ? "created" : "changed"}.`);
  };
  const options = [words(metrics).length > 0 && `--metrics ${quoted(words(metrics).join(","))}`, interval !== "" && `--interval ${quoted(interval)}`, words(match).length > 0 && `--match ${quoted(words(match).join(","))}`];
  return (
    <Dialog title={of === null ? "Create subscription" : `Change subscription ${of.name}`} action={of === null ? "Create" : "Change"} command={kafkaTool("kafka-client-metrics", "--alter", "--name", quoted(name || "NAME"), ...options.filter((each) => each !== false))} onSubmit={save} onClose={onClose}>
      {of === null && <TextField label="Name" value={name} onInput={setName} required />}
      <Field label="Metrics" hint="Prefixes of names, one a line; * is all metrics">
        <textarea rows={3} value={metrics} spellcheck={false} onInput={(event) => setMetrics(event.currentTarget.value)} />
      </Field>
      <TextField label="Interval in milliseconds" type="number" value={interval} onInput={setInterval} placeholder="the cluster's default" />
      <Field label="Clients" hint="One a line, all must match: client_id=expression, client_software_name=expression, …; empty: all clients">
        <textarea rows={2} value={match} spellcheck={false} onInput={(event) => setMatch(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

function DeleteSubscription({ name, onClose }: { name: string; onClose: () => void }): JSX.Element {
  const submit = async () => {
    await remove(`/client-metrics/${encodeURIComponent(name)}`);
    notify(`Subscription ${name} was deleted.`);
  };
  return (
    <Dialog title={`Delete subscription ${name}`} action="Delete" dangerous command={kafkaTool("kafka-client-metrics", "--delete", "--name", quoted(name))} onSubmit={submit} onClose={onClose}>
      <p>Clients stop to push the metrics of this subscription.</p>
    </Dialog>
  );
}
