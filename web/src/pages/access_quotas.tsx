import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { patch, useData } from "../api";
import { Dialog, quoted } from "../components/dialog";
import { Field, TextField } from "../components/field";
import { notify } from "../components/notices";
import { Shown } from "../components/states";
import { Table } from "../components/table";
import { count } from "../numbers";
import { mayAdminister } from "../session";

interface Quota {
  entity: Record<string, string | null>;
  values: Record<string, number>;
}

const CLIENT_KEYS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"];
const KEYS: Record<string, string[]> = { user: CLIENT_KEYS, "client-id": CLIENT_KEYS, ip: ["connection_creation_rate"] };

export function Quotas(): JSX.Element {
  const quotas = useData<{ quotas: Quota[] }>("/quotas", 5000);
  const [form, setForm] = useState<Quota | null>(null);
  return (
    <>
      {mayAdminister() && (
        <div class="toolbar">
          <button type="button" class="primary" onClick={() => setForm({ entity: { user: "" }, values: {} })}>
            Set quota
          </button>
        </div>
      )}
      <Shown of={quotas}>
        {(data) => (
          <Table
            label="Quotas"
            rows={data.quotas}
            id={(row) => entityText(row.entity)}
            empty="The cluster has no quotas."
            columns={[
              { key: "entity", title: "For", cell: (row) => entityText(row.entity) },
              { key: "values", title: "Quotas", cell: (row) => Object.entries(row.values).map(([name, value]) => <div key={name}>{`${name.replaceAll("_", " ")}: ${count(value)}`}</div>) },
              {
                key: "change",
                title: "Action",
                cell: (row) =>
                  mayAdminister() && (
                    <button type="button" class="link" aria-label={`Change the quotas of ${entityText(row.entity)}`} onClick={() => setForm(row)}>
                      Change
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Shown>
      {form !== null && (
        <ChangeQuota
          quota={form}
          onClose={() => {
            setForm(null);
            quotas.reload();
          }}
        />
      )}
    </>
  );
}

function entityText(entity: Record<string, string | null>): string {
  return Object.entries(entity)
    .map(([kind, name]) => (name === null ? `all other ${kind}s` : `${kind} ${name}`))
    .join(", ");
}

function commandLine(entity: Record<string, string | null>, set: Record<string, string>, removed: string[]): string {
  const whom = Object.entries(entity).map(([kind, name]) => `--${kind} ${name === null ? "''" : quoted(name || "NAME")}`);
  const pairs = Object.entries(set).map(([key, value]) => quoted(`${key}=${value}`));
  const lines = [];
  if (pairs.length > 0 || removed.length === 0) lines.push(["headrace quotas set", ...(pairs.length > 0 ? pairs : ["KEY=LIMIT"]), ...whom].join(" "));
  if (removed.length > 0) lines.push(["headrace quotas remove", ...removed, ...whom].join(" "));
  return lines.join(" && ");
}

function ChangeQuota({ quota, onClose }: { quota: Quota; onClose: () => void }): JSX.Element {
  const isNew = Object.values(quota.entity).includes("");
  const [kind, setKind] = useState(Object.keys(quota.entity)[0] ?? "user");
  const [name, setName] = useState("");
  const [everyone, setEveryone] = useState(false);
  const [texts, setTexts] = useState<Record<string, string>>(Object.fromEntries(Object.entries(quota.values).map(([key, value]) => [key, String(value)])));
  const entity = isNew ? { [kind]: everyone ? null : name } : quota.entity;
  const keys = KEYS[Object.keys(entity)[0] ?? "user"] ?? CLIENT_KEYS;
  const set = Object.fromEntries(Object.entries(texts).filter(([key, text]) => text !== "" && keys.includes(key)));
  const removed = Object.keys(quota.values).filter((key) => (texts[key] ?? "") === "");
  const submit = async () => {
    await patch("/quotas", { entity, set, remove: removed });
    notify("The quotas were changed.");
  };
  return (
    <Dialog title={isNew ? "Set quota" : `Quotas of ${entityText(quota.entity)}`} action="Set" command={commandLine(entity, set, removed)} onSubmit={submit} onClose={onClose}>
      {isNew && (
        <>
          <Field label="For">
            <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
              {Object.keys(KEYS).map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </Field>
          <label>
            <input type="checkbox" checked={everyone} onChange={(event) => setEveryone(event.currentTarget.checked)} /> all that have no quota of their own
          </label>
          {!everyone && <TextField label="Name" value={name} onInput={setName} required />}
        </>
      )}
      {keys.map((key) => (
        <TextField key={key} label={key.replaceAll("_", " ")} value={texts[key] ?? ""} onInput={(text) => setTexts({ ...texts, [key]: text })} placeholder="no quota" />
      ))}
    </Dialog>
  );
}
